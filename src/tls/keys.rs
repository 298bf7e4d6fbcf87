//! Key pairs from Secrets.

/// A parsed certificate chain with its private key. `Debug` shows no secret bytes.
#[derive(Debug)]
pub struct KeyPair {}

/// Why a pair was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyPairError {}
