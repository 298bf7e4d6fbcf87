//! Key pairs from Secrets and PEM files, parsed once, when they arrive.

use std::fmt;
use std::sync::Arc;

use rustls::sign::CertifiedKey;
use serde::Serialize;

use crate::names::HostPattern;

/// A certificate chain, leaf first, with the private key that matches it. `Debug` shows no secret bytes.
pub struct KeyPair {
    /// Chain and key as rustls serves them, without a staple.
    pub certified: Arc<CertifiedKey>,
    /// DNS names of the SAN extension (the common name only where there is no SAN); malformed ones left out.
    pub names: Box<[HostPattern]>,
    /// Serial number of the leaf, lower-case hex.
    pub serial: Box<str>,
    pub algorithm: Algorithm,
    /// Seconds since the Unix epoch.
    pub not_before: i64,
    pub not_after: i64,
    /// SHA-256 of the leaf in DER.
    pub fingerprint: [u8; 32],
    /// SHA-256 over chain and public key: equal pairs are the same certificate for the data plane.
    pub digest: [u8; 32],
    /// What was odd, but not enough to refuse the pair.
    pub warnings: Box<[KeyPairWarning]>,
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyPair")
            .field("names", &self.names)
            .field("serial", &self.serial)
            .finish_non_exhaustive()
    }
}

/// What kind of key a certificate has; a host may have one certificate of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Algorithm {
    EcdsaP256,
    EcdsaP384,
    EcdsaP521,
    Ed25519,
    Rsa,
}

/// Something odd about a pair that is served all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPairWarning {}

/// Why a pair was refused. Never carries input bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyPairError {}
