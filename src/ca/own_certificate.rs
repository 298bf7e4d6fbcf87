//! The gateway's own certificate: made when the CA is up, renewed at half of its life, and at once when the CA signs
//! with another certificate or trusts other roots.
//!
//! [`OwnCertificate::refresh`] is cheap and called at every turn. Whatever fails, the present certificate stays in use
//! for as long as it lives, and the next turn tries again.

use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;

use super::authority::{Authority, IssueError};
use super::csr::PublicKey;
use super::identity::WorkloadNames;
use super::key::{KeyError, PrivateKey};
use crate::tls::mesh::TrustBundle;
use crate::tls::own_identity::{MaterialError, OwnIdentity};
use crate::tls::spiffe::SpiffeId;

/// Why there is no new certificate.
#[derive(Debug, thiserror::Error)]
pub enum OwnCertificateError {
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Issue(#[from] IssueError),
    #[error(transparent)]
    Material(#[from] MaterialError),
}

/// Keeps an identity supplied.
pub struct OwnCertificate {
    id: SpiffeId,
    life: Duration,
    identity: OwnIdentity,
    made: Option<Made>,
}

struct Made {
    by: Arc<Authority>,
    renew_at: OffsetDateTime,
}

impl OwnCertificate {
    pub fn new(id: SpiffeId, life: Duration, identity: OwnIdentity) -> Self {
        Self { id, life, identity, made: None }
    }

    /// Makes a certificate if there is none, it is due, or `authority` is another than before; says whether it did.
    pub fn refresh(
        &mut self,
        authority: &Arc<Authority>,
        now: OffsetDateTime,
    ) -> Result<bool, OwnCertificateError> {
        let current = |made: &Made| Arc::ptr_eq(&made.by, authority) && now < made.renew_at;
        if self.made.as_ref().is_some_and(current) {
            return Ok(false);
        }
        let key = PrivateKey::generate(authority.key_algorithm())?;
        let names = WorkloadNames::of(self.id.clone());
        let issued = authority.issue(&PublicKey::from_own_key(&key), &names, self.life, now)?;
        let renew_at = now + (issued.not_after - now) / 2;
        let chain = authority.chain_der(issued.leaf);
        let key = key.to_der().ok_or(KeyError::Malformed)?;
        let bundle = TrustBundle {
            roots: authority.roots().to_pem().into(),
            revocations: authority.revocations_pem().into(),
            trust_domains: vec![self.id.trust_domain().to_owned()],
        };
        self.identity.set(chain, key, bundle, now.unix_timestamp())?;
        self.made = Some(Made { by: Arc::clone(authority), renew_at });
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
