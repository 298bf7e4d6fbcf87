//! Replacing the CA key without an outage, in three phases that an operator walks one by one.
//!
//! 1. **trust**: a new root with a new key joins the bundle; the old key signs.
//! 2. **sign**: the new key signs; the old root stays trusted.
//! 3. **drop**: the roots of other keys leave the bundle; the replacement is over.
//!
//! A phase is entered only once the previous one has reached everyone: [`Reach`] says who is missing. What the CA
//! writes itself (ConfigMaps, Secrets of accounts and of hosts) is looked at; callers of the CSR service cannot be, so the
//! longest life that a certificate may have must pass.

use std::time::Duration;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{Material, RolloverState, RootError, RootOptions, SelfSigned, read, self_sign};
use crate::ca::accounts;
use crate::ca::bundle::RootBundle;
use crate::ca::certificate::Certificate;
use crate::ca::distribution::{self, MapNames};
use crate::ca::hosts;
use crate::ca::key::PrivateKey;
use crate::ca::profile;
use crate::ca::store::{Secret, Store, StoreError};

/// The phases, as an operator names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    Steady,
    Trust,
    Sign,
}

impl RolloverState {
    pub fn phase(&self) -> Phase {
        match self {
            Self::Steady => Phase::Steady,
            Self::Trust { .. } => Phase::Trust,
            Self::Sign { .. } => Phase::Sign,
        }
    }

    pub fn since(&self) -> Option<OffsetDateTime> {
        match self {
            Self::Steady => None,
            Self::Trust { since, .. } | Self::Sign { since } => Some(*since),
        }
    }
}

/// What must still happen before the next phase may be entered; nothing means it may.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    pub missing: Vec<String>,
}

impl Reach {
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }
}

/// Why a phase was not entered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RolloverError {
    #[error(transparent)]
    Root(#[from] RootError),
    #[error("the present phase has not reached everyone: {}", .0.missing.join("; "))]
    NotReached(Reach),
}

impl From<StoreError> for RolloverError {
    fn from(error: StoreError) -> Self {
        Self::Root(error.into())
    }
}

/// Who the present phase has not reached. `settle` is how long callers of the CSR service may hold on to a
/// certificate and bundle: the longest life that is issued, unless the operator knows better.
pub async fn reach<S: Store>(
    store: &S,
    options: &RootOptions,
    maps: &MapNames,
    settle: Duration,
    now: OffsetDateTime,
) -> Result<Reach, RolloverError> {
    Ok(missing(store, options, maps, &read(store, options).await?, settle, now).await?)
}

/// Enters the next phase and returns the CA as it then is. With `force`, whoever is missing is left behind.
pub async fn advance<S: Store>(
    store: &S,
    options: &RootOptions,
    maps: &MapNames,
    settle: Duration,
    force: bool,
    now: OffsetDateTime,
) -> Result<SelfSigned, RolloverError> {
    let mut material = read(store, options).await?;
    let reach = missing(store, options, maps, &material, settle, now).await?;
    if !force && !reach.is_complete() {
        return Err(RolloverError::NotReached(reach));
    }
    enter_next(&mut material, options, now)?;
    store.write_secret(&material.secret).await?;
    Ok(read(store, options).await?.into_self_signed(options, now)?)
}

fn enter_next(material: &mut Material, options: &RootOptions, now: OffsetDateTime) -> Result<(), RootError> {
    let refused = |reason| RootError::Refused { secret: options.secret_name(), reason };
    match material.rollover.phase() {
        Phase::Steady => {
            let key = PrivateKey::generate(options.key)?;
            let name = profile::organization_name(&options.trust_domain)?;
            let next = self_sign(&key, &name, None, options, now)?;
            material.set_next(&next, &key, now);
        }
        Phase::Trust => {
            let (next, key) = material.take_next().map_err(refused)?;
            material.set_signer(next, Some(&key), now);
            material.set_phase(Some("sign"), now);
        }
        Phase::Sign => {
            let ours = material.certificate.public_key_info.clone();
            let kept = material.roots.iter().filter(|root| root.public_key_info == ours).cloned();
            let kept = RootBundle::new(kept);
            material.set_roots(kept);
            material.set_phase(None, now);
        }
    }
    Ok(())
}

async fn missing<S: Store>(
    store: &S,
    options: &RootOptions,
    maps: &MapNames,
    material: &Material,
    settle: Duration,
    now: OffsetDateTime,
) -> Result<Reach, StoreError> {
    let mut missing = Vec::new();
    let secrets = match material.rollover {
        RolloverState::Steady => return Ok(Reach::default()),
        _ => [store.secrets(accounts::SECRET_TYPE).await?, store.issued_secrets().await?].concat(),
    };
    match &material.rollover {
        RolloverState::Steady => {}
        RolloverState::Trust { next, .. } => {
            missing.extend(maps_without(store, options, maps, next).await?);
            missing.extend(
                secrets
                    .iter()
                    .filter(|secret| !trusts(secret, next))
                    .map(|secret| format!("Secret {} does not hold the next root yet", secret.name)),
            );
        }
        RolloverState::Sign { .. } => {
            let signer = &material.certificate;
            missing.extend(
                secrets
                    .iter()
                    .filter(|secret| !is_signed_by(secret, signer, now))
                    .map(|secret| format!("Secret {} holds a certificate of the old key", secret.name)),
            );
        }
    }
    if let Some(since) = material.rollover.since() {
        let settled = since + settle;
        if now < settled {
            let until = settled.format(&Rfc3339).unwrap_or_default();
            missing.push(format!("callers of the CSR service may hold older certificates until {until}"));
        }
    }
    Ok(Reach { missing })
}

async fn maps_without<S: Store>(
    store: &S,
    options: &RootOptions,
    maps: &MapNames,
    next: &Certificate,
) -> Result<Vec<String>, StoreError> {
    let namespaces = store.namespaces().await?;
    let existing = distribution::existing(store, maps).await?;
    let wanted = distribution::places(&namespaces, &options.storage_namespace, maps);
    let holds = |name: &crate::store::objects::ObjectName| {
        let bundle = existing.get(name).and_then(distribution::bundle_of);
        bundle.is_some_and(|bundle| bundle.contains(next))
    };
    Ok(wanted
        .into_iter()
        .filter(|name| !holds(name))
        .map(|name| format!("ConfigMap {name} does not hold the next root yet"))
        .collect())
}

fn trusts(secret: &Secret, root: &Certificate) -> bool {
    let key = if hosts::is_ours(secret) { hosts::ROOTS } else { accounts::ROOT_CERT };
    RootBundle::from_pem(secret.bytes(key)).is_ok_and(|bundle| bundle.contains(root))
}

/// Whether the certificate in a Secret of an account or a host verifies against this root alone.
fn is_signed_by(secret: &Secret, root: &Certificate, now: OffsetDateTime) -> bool {
    let key = if hosts::is_ours(secret) { hosts::CERTIFICATE } else { accounts::CERT_CHAIN };
    let Ok(chain) = Certificate::from_pem(secret.bytes(key)) else { return false };
    let Some((leaf, rest)) = chain.split_first() else { return false };
    let bundle = RootBundle::new([root.clone()]);
    crate::ca::authority::verify(leaf.der(), rest, &bundle, webpki::KeyUsage::server_auth(), now).is_ok()
}

#[cfg(test)]
mod tests;
