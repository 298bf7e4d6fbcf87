//! Integration tests: one binary, a module per area.

mod diff;
mod framing;
mod gateway;
mod http1;
mod http2;
mod manifests;
mod timeouts;
