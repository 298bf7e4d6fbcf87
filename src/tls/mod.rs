//! The only place that names rustls: keys, certificate choice, tickets, server and client configurations.

pub mod accept;
pub mod client;
pub mod client_auth;
mod client_element;
mod distinguished_name;
pub mod hbone;
pub mod hbone_client;
pub mod keys;
pub mod mesh;
pub mod ocsp;
pub mod own_identity;
pub(crate) mod peer_verifier;
pub mod policy;
pub mod services;
pub mod spiffe;
pub mod tickets;

use std::sync::{Arc, LazyLock};

use rustls::crypto::{CryptoProvider, aws_lc_rs};

/// Makes aws-lc-rs what every part of the process that speaks TLS uses. Called once, first thing.
pub fn install_provider() {
    // Fails only where it has been called before, which is fine.
    let _ = CryptoProvider::clone(&provider()).install_default();
}

/// aws-lc-rs with all of its suites, made once.
fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> =
        LazyLock::new(|| Arc::new(aws_lc_rs::default_provider()));
    PROVIDER.clone()
}
