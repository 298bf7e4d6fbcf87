//! The data plane above TLS: requests in, responses out.
//!
//! Everything here lives on one worker thread and is `!Send` where that is cheaper: no lock and no channel lies
//! on the way of a request.

mod affinity;
mod answers;
pub mod body;
mod canary;
mod client_cert_header;
mod client_stream;
mod cookies;
mod cork;
mod cross_origin;
mod date;
mod derived;
mod entrance;
mod floods;
pub mod guards;
mod hbone;
mod headers;
pub(crate) mod http1;
mod http2;
pub mod limiter;
mod passwords;
mod pipeline;
mod record;
mod service;
pub mod upstream;
pub mod worker;
