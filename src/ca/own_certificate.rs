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
        let roots = authority.roots().iter().filter(|root| root.is_valid_at(now)).map(|root| root.der());
        self.identity.set(chain, key, roots, self.id.trust_domain())?;
        self.made = Some(Made { by: Arc::clone(authority), renew_at });
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ca::fixtures::{HOUR, NOW, hours, self_signed, web};
    use crate::ca::roots::{RootOptions, rotate};
    use crate::ca::store::memory::Memory;

    #[tokio::test]
    async fn it_is_renewed_at_half_of_its_life_and_with_the_ca() {
        let store = Memory::default();
        let first = self_signed(&store).await.authority;
        let identity = OwnIdentity::default();
        let mut own = OwnCertificate::new(web().id().clone(), 2 * HOUR, identity.clone());
        assert!(own.refresh(&first, NOW).unwrap());
        let before = identity.certificate();
        assert!(!own.refresh(&first, NOW + hours(1) - time::Duration::seconds(1)).unwrap());
        assert_eq!(identity.certificate(), before);
        assert!(own.refresh(&first, NOW + hours(1)).unwrap());
        assert_ne!(identity.certificate(), before);

        let second = rotate(&store, &RootOptions::default(), NOW).await.unwrap().authority;
        assert!(own.refresh(&second, NOW + hours(1)).unwrap());
    }

    #[tokio::test]
    async fn a_failed_renewal_drops_nothing_and_is_tried_again() {
        let options = RootOptions { life: 2 * HOUR, ..RootOptions::default() };
        let store = Memory::default();
        let root = crate::ca::roots::load_or_create(&store, &options, NOW).await.unwrap();
        let identity = OwnIdentity::default();
        let mut own = OwnCertificate::new(web().id().clone(), HOUR, identity.clone());
        own.refresh(&root.authority, NOW).unwrap();
        let before = identity.certificate();
        for _ in 0..2 {
            assert!(own.refresh(&root.authority, NOW + hours(3)).is_err(), "the CA has ended");
            assert_eq!(identity.certificate(), before);
        }
        let renewed = rotate(&store, &options, NOW + hours(3)).await.unwrap().authority;
        assert!(own.refresh(&renewed, NOW + hours(3)).unwrap());
        assert_ne!(identity.certificate(), before);
    }
}
