use std::sync::Arc;

use super::Metadata;
use crate::tls::keys::{KeyPair, KeyPairError};

/// `v1 Secret`, already parsed: the key-and-certificate pair becomes a [`KeyPair`] when it arrives and its
/// PEM bytes are dropped. `Debug` shows no secret bytes.
#[derive(Clone, Debug)]
pub struct Secret {
    pub metadata: Metadata,
    /// `type`, for messages only: the keys of `data` decide what a Secret is.
    pub kind: String,
    pub origin: SecretOrigin,
    /// The pair in `tls.crt` and `tls.key`; `None` where the Secret has neither key.
    pub pair: Option<Result<Arc<KeyPair>, KeyPairError>>,
}

/// Where a Secret comes from, which decides what it is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretOrigin {
    /// An object: bound to hosts by the Ingresses that name it.
    Object,
    /// A plain PEM pair in a manifests folder: bound to the names in its SANs.
    PemPair,
}
