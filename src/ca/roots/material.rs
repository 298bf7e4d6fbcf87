//! The Secret `istio-ca-secret` as typed material, and the edits that rotation makes to it.

use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{RootError, RootOptions, SelfSigned};
use crate::ca::authority::{Authority, MaterialError};
use crate::ca::bundle::RootBundle;
use crate::ca::certificate::Certificate;
use crate::ca::key::PrivateKey;
use crate::ca::store::Secret;

pub const CA_CERT: &str = "ca-cert.pem";
pub const CA_KEY: &str = "ca-key.pem";
pub const CERT_CHAIN: &str = "cert-chain.pem";
pub const KEY: &str = "key.pem";
pub const ROOT_CERT: &str = "root-cert.pem";

/// The next root and key, present in the trust phase only.
const NEXT_CERT: &str = "next-ca-cert.pem";
const NEXT_KEY: &str = "next-ca-key.pem";

const PHASE: &str = "ca.portcullis.dev/rollover-phase";
const SINCE: &str = "ca.portcullis.dev/rollover-since";
/// In seconds.
const LONGEST_LIFE: &str = "ca.portcullis.dev/longest-life";

/// Where a replacement of the CA key stands; see [`super::rollover`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RolloverState {
    /// No replacement is under way.
    Steady,
    /// Peers are being told to trust the next root; the old key signs.
    Trust { since: OffsetDateTime, next: Box<Certificate> },
    /// The new key signs; the old root is still trusted.
    Sign { since: OffsetDateTime },
}

/// Parsed content of the Secret. The key matches the certificate; nothing is said about validity.
#[derive(Debug)]
pub struct Material {
    pub certificate: Certificate,
    pub key: PrivateKey,
    /// The signing root first, then superseded and coming ones.
    pub roots: RootBundle,
    pub rollover: RolloverState,
    /// The Secret itself, as it was read. Keys and annotations that are not ours stay in it.
    pub secret: Secret,
}

impl Material {
    pub fn from_secret(secret: Secret) -> Result<Self, MaterialError> {
        let certificate = Certificate::first_from_pem(secret.bytes(CA_CERT))
            .map_err(|error| MaterialError::Certificate(CA_CERT, error))?;
        let key =
            PrivateKey::from_pem(secret.bytes(CA_KEY)).map_err(|error| MaterialError::Key(CA_KEY, error))?;
        if certificate.public_key_info != key.public_key_info() {
            return Err(MaterialError::KeyMismatch);
        }
        let stored = Certificate::from_pem(secret.bytes(ROOT_CERT))
            .map_err(|error| MaterialError::Certificate(ROOT_CERT, error))?;
        let roots = RootBundle::new(std::iter::once(certificate.clone()).chain(stored));
        let rollover = rollover_state(&secret)?;
        Ok(Self { certificate, key, roots, rollover, secret })
    }

    pub fn into_self_signed(
        self,
        options: &RootOptions,
        now: OffsetDateTime,
    ) -> Result<SelfSigned, RootError> {
        let refused = |reason| RootError::Refused { secret: options.secret_name(), reason };
        let key = PrivateKey::from_pem(self.secret.bytes(CA_KEY))
            .map_err(|error| refused(MaterialError::Key(CA_KEY, error)))?;
        let mut roots = self.roots.clone();
        for extra in options.extra_roots.iter() {
            roots.insert(extra.clone());
        }
        let roots = roots.without_expired(now);
        let authority = Authority::new(self.certificate.clone(), key, Vec::new(), roots, Vec::new(), now)
            .map_err(refused)?;
        Ok(SelfSigned { authority: Arc::new(authority), rollover: self.rollover.clone(), material: self })
    }

    /// Makes `root` the signing one, with `key` if it is another than before. Roots that have ended leave the
    /// bundle, the others stay behind the new one.
    pub(super) fn set_signer(&mut self, root: Certificate, key: Option<&PrivateKey>, now: OffsetDateTime) {
        let previous = self.roots.clone().without_expired(now);
        self.certificate = root.clone();
        self.set(CA_CERT, root.to_pem());
        if let Some(key) = key {
            self.set(CA_KEY, key.to_pem().to_string());
        }
        self.set_roots(RootBundle::new(std::iter::once(root).chain(previous.iter().cloned())));
    }

    /// The longest life that callers of the CSR service could get so far, as it was noted.
    pub fn longest_life(&self) -> Option<Duration> {
        let seconds = self.secret.annotations.get(LONGEST_LIFE)?.parse().ok()?;
        Some(Duration::from_secs(seconds))
    }

    /// Notes a life that is longer than any before; says whether it is. A shorter one does not shorten what was issued.
    pub(super) fn note_longest_life(&mut self, life: Option<Duration>) -> bool {
        let Some(life) = life.filter(|life| self.longest_life().is_none_or(|noted| noted < *life)) else {
            return false;
        };
        self.secret.annotations.insert(LONGEST_LIFE.to_owned(), life.as_secs().to_string());
        true
    }

    pub(super) fn set_roots(&mut self, roots: RootBundle) {
        self.set(ROOT_CERT, roots.to_pem());
        self.roots = roots;
    }

    /// Enters the trust phase: `next` becomes trusted and is kept with its key for the phase after.
    pub(super) fn set_next(&mut self, next: &Certificate, key: &PrivateKey, now: OffsetDateTime) {
        self.set(NEXT_CERT, next.to_pem());
        self.set(NEXT_KEY, key.to_pem().to_string());
        let mut roots = self.roots.clone();
        roots.insert(next.clone());
        self.set_roots(roots);
        self.set_phase(Some("trust"), now);
    }

    /// The next root and its key, taken out.
    pub(super) fn take_next(&mut self) -> Result<(Certificate, PrivateKey), MaterialError> {
        let (next, key) = next_of(&self.secret)?;
        self.secret.data.remove(NEXT_CERT);
        self.secret.data.remove(NEXT_KEY);
        Ok((next, key))
    }

    pub(super) fn set_phase(&mut self, phase: Option<&str>, now: OffsetDateTime) {
        let annotations = &mut self.secret.annotations;
        match phase {
            None => {
                annotations.remove(PHASE);
                annotations.remove(SINCE);
            }
            Some(phase) => {
                annotations.insert(PHASE.to_owned(), phase.to_owned());
                let since = now.replace_nanosecond(0).unwrap_or(now).format(&Rfc3339).unwrap_or_default();
                annotations.insert(SINCE.to_owned(), since);
            }
        }
    }

    fn set(&mut self, key: &str, text: String) {
        self.secret.data.insert(key.to_owned(), text.into());
    }
}

fn rollover_state(secret: &Secret) -> Result<RolloverState, MaterialError> {
    let since = || {
        let text = secret.annotations.get(SINCE).map_or("", String::as_str);
        OffsetDateTime::parse(text, &Rfc3339).map_err(|_| MaterialError::Rollover(SINCE))
    };
    match secret.annotations.get(PHASE).map(String::as_str) {
        None => Ok(RolloverState::Steady),
        Some("trust") => Ok(RolloverState::Trust { since: since()?, next: Box::new(next_of(secret)?.0) }),
        Some("sign") => Ok(RolloverState::Sign { since: since()? }),
        Some(_) => Err(MaterialError::Rollover(PHASE)),
    }
}

fn next_of(secret: &Secret) -> Result<(Certificate, PrivateKey), MaterialError> {
    let next = Certificate::first_from_pem(secret.bytes(NEXT_CERT))
        .map_err(|error| MaterialError::Certificate(NEXT_CERT, error))?;
    let key =
        PrivateKey::from_pem(secret.bytes(NEXT_KEY)).map_err(|error| MaterialError::Key(NEXT_KEY, error))?;
    match next.public_key_info == key.public_key_info() {
        true => Ok((next, key)),
        false => Err(MaterialError::KeyMismatch),
    }
}
