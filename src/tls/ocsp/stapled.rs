//! A chain and its key with the staple of its leaf: what a handshake serves while the staple is fresh. Made by
//! `compile` once for each staple, so that no handshake copies a chain.

use std::fmt;
use std::sync::Arc;

use rustls::sign::CertifiedKey;

use super::Staple;
use crate::tls::keys::KeyPair;

/// A [`KeyPair`] with a verified staple.
pub struct Stapled {
    certified: Arc<CertifiedKey>,
    /// Seconds since 1970; from this second on the staple must not be sent.
    ends: u64,
}

impl Stapled {
    /// `staple` must have been verified for the leaf of `pair`.
    pub fn new(pair: &KeyPair, staple: &Staple) -> Self {
        let plain = &pair.certified;
        let mut certified = CertifiedKey::new(plain.cert.clone(), plain.key.clone());
        certified.ocsp = Some(staple.der.to_vec());
        Self { certified: Arc::new(certified), ends: staple.next_update }
    }

    /// What rustls serves at `now`, in seconds since 1970; `None` when the staple has ended.
    pub(in crate::tls) fn certified(&self, now: u64) -> Option<&Arc<CertifiedKey>> {
        (now < self.ends).then_some(&self.certified)
    }
}

impl fmt::Debug for Stapled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stapled").field("ends", &self.ends).finish_non_exhaustive()
    }
}
