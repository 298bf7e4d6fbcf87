//! When a certificate that the CA keeps in a Secret has to be made anew.
//!
//! Pure decisions that `accounts` and `hosts` have in common.

use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use time::OffsetDateTime;

use super::accounts::{Action, IssueReason};
use super::authority::Authority;
use super::bundle::RootBundle;
use super::certificate::Certificate;
use super::key::PrivateKey;
use crate::store::objects::ObjectName;

/// How early certificates are replaced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grace {
    /// In this last share of its life, between 0 and 1…
    pub ratio: f64,
    /// …and at least this long before its end.
    pub least: Duration,
    /// Share of the life over which replacements of a fleet that was born together are spread, earlier only.
    pub jitter: f64,
}

/// Why a share was refused.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("the grace ratio is {0}: it must lie between 0 and 1")]
pub struct RatioError(pub f64);

impl Grace {
    /// Refuses a ratio outside of 0 to 1.
    pub fn check(&self) -> Result<(), RatioError> {
        match (0.0..=1.0).contains(&self.ratio) {
            true => Ok(()),
            false => Err(RatioError(self.ratio)),
        }
    }
}

impl Default for Grace {
    fn default() -> Self {
        Self { ratio: 0.5, least: Duration::from_secs(600), jitter: 0.05 }
    }
}

/// The leaf in `chain`, if `key` is its key; both PEM.
pub fn usable_leaf(chain: &[u8], key: &[u8]) -> Option<Certificate> {
    let leaf = Certificate::first_from_pem(chain).ok()?;
    let key = PrivateKey::from_pem(key).ok()?;
    (leaf.public_key_info == key.public_key_info()).then_some(leaf)
}

/// Decides for a leaf whose key and names are as they should be, with the PEM `roots` beside it in its Secret.
pub fn plan_current(
    leaf: &Certificate,
    roots: &[u8],
    name: &ObjectName,
    authority: &Authority,
    grace: &Grace,
    now: OffsetDateTime,
) -> Action {
    if !is_signed_with(leaf, authority) {
        return Action::Issue(IssueReason::SignerChanged);
    }
    let due = due_at(leaf, name, grace);
    // Where the signing certificate ends first, a new certificate would end no later than this one.
    let renewable = authority.end_of_life() > leaf.not_after;
    if renewable && now >= due {
        return Action::Issue(IssueReason::Due);
    }
    let roots = RootBundle::from_pem(roots).unwrap_or_default();
    match roots.same_as(authority.roots()) {
        true => Action::Keep { until: renewable.then_some(due) },
        false => Action::UpdateRoots,
    }
}

/// Whether the present signing certificate, or one it was renewed from with its key, signed the leaf.
pub fn is_signed_with(leaf: &Certificate, authority: &Authority) -> bool {
    let signer = authority.signer();
    leaf.issuer == signer.subject
        && match (&leaf.authority_key_id, &signer.subject_key_id) {
            (Some(of_leaf), Some(of_signer)) => of_leaf == of_signer,
            // Another key may have the same name: only the signature tells.
            _ => leaf.is_signed_by(signer),
        }
}

/// When the certificate is to be replaced: in the last `max(ratio × life, least)` of its life, and up to
/// `jitter × life` earlier, by an amount that is fixed for each certificate.
pub fn due_at(leaf: &Certificate, name: &ObjectName, grace: &Grace) -> OffsetDateTime {
    let life = (leaf.not_after - leaf.not_before).as_seconds_f64();
    let before = (life * grace.ratio).max(grace.least.as_secs_f64());
    let early = life * grace.jitter * fraction(name, &leaf.serial);
    leaf.not_after - time::Duration::saturating_seconds_f64(before + early)
}

/// A number from 0 to 1, the same for the same certificate and even over a fleet.
fn fraction(name: &ObjectName, serial: &str) -> f64 {
    let hash = digest(&SHA256, format!("{name}/{serial}").as_bytes());
    let number = hash.as_ref().iter().take(4).fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
    f64::from(number) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ca::fixtures::{HOUR, Made, NOW, ca_params};

    #[test]
    fn where_key_identifiers_are_missing_the_signature_tells_who_signed() {
        // Two keys under one name.
        let (ca, other) = (Made::root(ca_params("root")), Made::root(ca_params("root")));
        let mut params = rcgen::CertificateParams::default();
        (params.not_before, params.not_after) = (NOW, NOW + HOUR);
        let leaf = ca.below(params).signer().clone();
        assert_eq!(leaf.authority_key_id, None);
        let is_of = |ca: &Made| {
            let (signer, key) = (ca.signer().clone(), ca.key());
            let made = Authority::new(signer, key, Vec::new(), ca.root_bundle(), Vec::new(), NOW);
            is_signed_with(&leaf, &made.unwrap())
        };
        assert!(is_of(&ca) && !is_of(&other));
    }
}
