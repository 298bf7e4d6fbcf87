//! Tests of the binary and of the library's public face, a module for each area.

mod admin;
mod architecture;
mod backends;
mod ca;
mod certificates;
mod check;
mod demo;
mod diff;
mod draining;
mod forwarded;
mod framing;
mod gateway;
mod http1;
mod http2;
mod manifests;
mod mesh;
mod ocsp;
mod policy;
mod proxy_protocol;
mod responses;
mod restart;
mod rotation;
mod routing;
mod site;
mod timeouts;
mod tls;
