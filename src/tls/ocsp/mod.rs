//! OCSP without I/O policy: what a certificate says about its responder, the request, the verification of the
//! answer and when to ask again (RFC 6960, RFC 5019).
//!
//! `sources::ocsp` calls this to fill the staple cache; the data plane only sees the finished [`Staple`].
//! Invariant: a [`Staple`] exists only after [`response::verify`] accepted its bytes for one certificate.

pub mod certificate;
pub mod https;
pub mod request;
pub mod response;
pub mod schedule;
mod signed;
pub mod stapled;
pub mod status;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use response::{Refusal, Staple};
pub use stapled::Stapled;
pub use status::{OcspState, OcspStatus};
