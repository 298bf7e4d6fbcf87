//! Portcullis: a TLS ingress gateway with dynamic certificates.
//!
//! ```text
//! sources ──events──► store ──changes──► compile ──Snapshot──► one pointer ──► workers (data plane)
//!  directory            the only           pure        immutable,               one current-thread
//!  kubernetes           mutable            function    shares structure         runtime each
//!  ocsp answers         state                 └──► Report ──► status, Events, diagnostics
//! ```
//!
//! Data flows one way. The data plane (`tls`, `proxy`, `net`) reads `snapshot` and never reaches back into
//! `compile`, `store` or `sources`; `docs/architecture.md` has the whole picture.

pub mod admin;
pub mod admission;
pub mod annotations;
pub mod api_server;
pub mod app;
pub mod ca;
pub mod cli;
pub mod clock;
pub mod compile;
pub mod demo;
pub mod diagnostics;
pub mod http_exchange;
pub mod names;
pub mod net;
pub mod pod;
pub mod proxy;
pub mod settings;
pub mod snapshot;
pub mod sources;
pub mod status;
pub mod store;
pub mod supervisor;
pub mod telemetry;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod tls;
