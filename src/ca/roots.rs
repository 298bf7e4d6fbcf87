//! The self-signed root: how it comes to be, how it is renewed with the same key, how its key is replaced.
//!
//! Everything lives in one Secret, `istio-ca-secret`, and every change is one write of it against the version that
//! was read. So a failed write changes nothing, two replicas cannot both win, and whoever lost reads the winner's.
//! Material that does not parse is refused and never overwritten. Memory follows the Secret, never leads it.

mod material;
pub mod rollover;

use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;

pub use self::material::{Material, RolloverState};
use super::authority::{Authority, BACKDATE, MaterialError};
use super::bundle::RootBundle;
use super::certificate::Certificate;
use super::key::{KeyAlgorithm, KeyError, PrivateKey};
use super::profile::{self, ProfileError, Root};
use super::store::{Secret, Store, StoreError};
use crate::store::objects::ObjectName;

pub const SECRET_NAME: &str = "istio-ca-secret";
pub const SECRET_TYPE: &str = "istio.io/ca-root";

/// How a self-signed root is made and kept.
#[derive(Clone, Debug)]
pub struct RootOptions {
    /// Where the Secret lives, and its name.
    pub storage_namespace: String,
    pub secret: String,
    /// The organization of the root's subject.
    pub trust_domain: String,
    pub key: KeyAlgorithm,
    /// Life of a root.
    pub life: Duration,
    /// Renewal is due in this last part of a root's life, in percent.
    pub grace_percent: u32,
    /// Roots of others that peers shall trust too; they are never written to the Secret.
    pub extra_roots: RootBundle,
    /// The longest life that a caller of the CSR service may get, where this process serves it. It is noted in the
    /// Secret, for whoever replaces the key.
    pub longest_life: Option<Duration>,
}

impl Default for RootOptions {
    fn default() -> Self {
        Self {
            storage_namespace: "istio-system".to_owned(),
            secret: SECRET_NAME.to_owned(),
            trust_domain: super::identity::DEFAULT_TRUST_DOMAIN.to_owned(),
            key: KeyAlgorithm::default(),
            life: Duration::from_secs(3650 * 24 * 3600),
            grace_percent: 20,
            extra_roots: RootBundle::default(),
            longest_life: None,
        }
    }
}

impl RootOptions {
    pub fn secret_name(&self) -> ObjectName {
        ObjectName::new(self.storage_namespace.as_str(), self.secret.as_str())
    }
}

/// Why there is no root to sign with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RootError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("Secret {secret}: {reason}; it is left as it is")]
    Refused { secret: ObjectName, reason: MaterialError },
    #[error("Secret {0} does not exist: there is no root yet")]
    Missing(ObjectName),
    #[error("a new root could not be made: {0}")]
    Generation(#[from] ProfileError),
    #[error("a new key could not be made: {0}")]
    Key(#[from] KeyError),
}

/// A root that signs, with the Secret it came from.
#[derive(Debug)]
pub struct SelfSigned {
    pub authority: Arc<Authority>,
    pub rollover: RolloverState,
    pub material: Material,
}

impl SelfSigned {
    /// When the first root of the bundle ends beside the one that signs: it leaves the bundle then.
    pub fn bundle_ends(&self) -> Option<OffsetDateTime> {
        let signer = self.authority.signer();
        let ends = self.authority.roots().iter().map(|root| root.not_after);
        ends.filter(|end| *end < signer.not_after).min()
    }
}

/// What a check of the root did.
#[derive(Debug)]
pub enum Checked {
    /// The root in the store is the one in memory and not due.
    Unchanged,
    /// Another replica, or an operator, changed the Secret, or a superseded root has ended.
    Reloaded(Box<SelfSigned>),
    /// The root was due and has been renewed.
    Renewed(Box<SelfSigned>),
}

/// Reads the root, or makes one if there certainly is none. Of several starters all get the one root that was
/// created first.
pub async fn load_or_create<S: Store>(
    store: &S,
    options: &RootOptions,
    now: OffsetDateTime,
) -> Result<SelfSigned, RootError> {
    match load(store, options, now).await {
        Err(RootError::Missing(_)) => {}
        other => return other,
    }
    match store.write_secret(&create(options, now)?).await {
        Ok(()) | Err(StoreError::AlreadyExists(_)) => load(store, options, now).await,
        Err(error) => Err(error.into()),
    }
}

/// Reads the root and renews it first if its life is over, since an ended root cannot sign.
pub async fn load<S: Store>(
    store: &S,
    options: &RootOptions,
    now: OffsetDateTime,
) -> Result<SelfSigned, RootError> {
    let material = read(store, options).await?;
    match material.certificate.not_after < now {
        true => renew(store, options, material, now).await,
        false => material.into_self_signed(options, now),
    }
}

/// One turn of the rotator: follows the Secret, and renews the root if that is due and `may_renew` says that it is
/// for this replica to do.
pub async fn check<S: Store>(
    store: &S,
    options: &RootOptions,
    current: &SelfSigned,
    may_renew: bool,
    now: OffsetDateTime,
) -> Result<Checked, RootError> {
    let mut material = read(store, options).await?;
    if may_renew && material.note_longest_life(options.longest_life) {
        store.write_secret(&material.secret).await?;
        material = read(store, options).await?;
    }
    if may_renew && is_due(&material.certificate, options.grace_percent, now) {
        return Ok(Checked::Renewed(Box::new(renew(store, options, material, now).await?)));
    }
    let same = material.secret.version == current.material.secret.version;
    match same && current.bundle_ends().is_none_or(|end| now <= end) {
        true => Ok(Checked::Unchanged),
        false => Ok(Checked::Reloaded(Box::new(material.into_self_signed(options, now)?))),
    }
}

/// Replaces the root by one with the same key and subject and a new life, due or not. The superseded root stays
/// in the bundle until it ends.
pub async fn rotate<S: Store>(
    store: &S,
    options: &RootOptions,
    now: OffsetDateTime,
) -> Result<SelfSigned, RootError> {
    renew(store, options, read(store, options).await?, now).await
}

/// Whether a root is in the last `grace_percent` of its life, the first moment of it included.
pub fn is_due(root: &Certificate, grace_percent: u32, now: OffsetDateTime) -> bool {
    now >= due_at(root, grace_percent)
}

/// When the last `grace_percent` of a root's life begin.
pub fn due_at(root: &Certificate, grace_percent: u32) -> OffsetDateTime {
    let life = root.not_after - root.not_before;
    // In floating point: whole seconds times a percentage overflow for very long lives.
    let grace = life.as_seconds_f64() * f64::from(grace_percent) / 100.0;
    root.not_after - time::Duration::saturating_seconds_f64(grace)
}

async fn read<S: Store>(store: &S, options: &RootOptions) -> Result<Material, RootError> {
    let name = options.secret_name();
    let secret = store.secret(&name).await?.ok_or_else(|| RootError::Missing(name.clone()))?;
    Material::from_secret(secret).map_err(|reason| RootError::Refused { secret: name, reason })
}

async fn renew<S: Store>(
    store: &S,
    options: &RootOptions,
    mut material: Material,
    now: OffsetDateTime,
) -> Result<SelfSigned, RootError> {
    let old = &material.certificate;
    let root = self_sign(&material.key, &old.subject, old.subject_key_id.as_deref(), options, now)?;
    material.set_signer(root.clone(), None, now);
    store.write_secret(&material.secret).await?;
    // The Secret as the store now has it, with the version that the next write must name.
    read(store, options).await?.into_self_signed(options, now)
}

/// The Secret of a first root. Its five keys are those of `istio_ca`, of which two stay empty.
fn create(options: &RootOptions, now: OffsetDateTime) -> Result<Secret, RootError> {
    let key = PrivateKey::generate(options.key)?;
    let name = profile::organization_name(&options.trust_domain)?;
    let root = self_sign(&key, &name, None, options, now)?;
    let mut secret = Secret::new(options.secret_name(), SECRET_TYPE);
    for (data_key, value) in [
        (material::CA_CERT, root.to_pem()),
        (material::CA_KEY, key.to_pem().to_string()),
        (material::CERT_CHAIN, String::new()),
        (material::KEY, String::new()),
        (material::ROOT_CERT, root.to_pem()),
    ] {
        secret.data.insert(data_key.to_owned(), value.into());
    }
    Ok(secret)
}

fn self_sign(
    key: &PrivateKey,
    name: &[u8],
    key_id: Option<&[u8]>,
    options: &RootOptions,
    now: OffsetDateTime,
) -> Result<Certificate, RootError> {
    let now = now.replace_nanosecond(0).unwrap_or(now);
    let life = time::Duration::try_from(options.life).unwrap_or(time::Duration::MAX);
    let not_after = now.checked_add(life).ok_or(ProfileError::Encoding("time"))?;
    let root = Root { name, key_id, not_before: now - BACKDATE, not_after };
    let signed = profile::sign_root(&root, key)?;
    Certificate::from_der(signed.der).map_err(|_| ProfileError::Encoding("root").into())
}

#[cfg(test)]
mod tests;
