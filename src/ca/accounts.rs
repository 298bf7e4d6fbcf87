//! A Secret with key and certificate for every ServiceAccount of the managed namespaces.
//!
//! [`plan`] is the whole decision for one account: pure, level-triggered, from what is there to what to do. A new
//! account, a deleted Secret, a certificate near its end, a rotated root and a namespace that opted out are not
//! events here but states. [`reconcile_all`] carries the plans for all of them out.

mod plan;
mod reconcile;

use std::time::Duration;

pub use self::plan::{Action, IssueReason, managed, plan};
pub(super) use self::reconcile::outcome;
pub use self::reconcile::{Outcome, Reconciled, SecretError, reconcile_all};
use super::identity::CustomDnsNames;
use super::key::KeyAlgorithm;
use super::renewal::Grace;
use crate::store::objects::ObjectName;

pub const SECRET_TYPE: &str = "istio.io/key-and-cert";
pub const CERT_CHAIN: &str = "cert-chain.pem";
pub const KEY: &str = "key.pem";
pub const ROOT_CERT: &str = "root-cert.pem";

const ACCOUNT_ANNOTATION: &str = "istio.io/service-account.name";
const NAME_PREFIX: &str = "istio.";

/// How Secrets of accounts are made and kept.
#[derive(Clone, Debug)]
pub struct AccountOptions {
    pub trust_domain: String,
    /// The namespace of the CA itself, which is always managed.
    pub storage_namespace: String,
    /// Whether a namespace without labels is managed.
    pub enable_by_default: bool,
    pub key: KeyAlgorithm,
    pub life: Duration,
    pub grace: Grace,
    pub dns_names: CustomDnsNames,
}

impl Default for AccountOptions {
    fn default() -> Self {
        Self {
            trust_domain: super::identity::DEFAULT_TRUST_DOMAIN.to_owned(),
            storage_namespace: "istio-system".to_owned(),
            enable_by_default: true,
            key: KeyAlgorithm::default(),
            life: Duration::from_secs(90 * 24 * 3600),
            grace: Grace::default(),
            dns_names: CustomDnsNames::default(),
        }
    }
}

/// The Secret of an account.
pub fn secret_name(account: &ObjectName) -> ObjectName {
    ObjectName::new(account.namespace.clone(), format!("{NAME_PREFIX}{}", account.name))
}

/// The account a Secret is for; `None` if its name is not one of ours.
pub fn account_name(secret: &ObjectName) -> Option<ObjectName> {
    let account = secret.name.strip_prefix(NAME_PREFIX).filter(|name| !name.is_empty())?;
    Some(ObjectName::new(secret.namespace.clone(), account))
}

#[cfg(test)]
mod tests;
