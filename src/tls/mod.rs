//! The only place that names rustls: keys, certificate choice, tickets, server and client configurations.

pub mod accept;
pub mod admission_server;
pub mod ca_client;
pub mod ca_server;
pub mod client;
mod client_element;
pub mod hbone;
pub mod hbone_client;
pub mod keys;
pub mod mesh;
pub mod ocsp;
pub mod own_identity;
pub mod policy;
pub mod spiffe;
pub mod tickets;

/// Makes aws-lc-rs what every part of the process that speaks TLS uses. Called once, first thing.
pub fn install_provider() {
    // Fails only where it has been called before, which is fine.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}
