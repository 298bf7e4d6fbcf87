//! What to do about one account, decided from what is there.

use time::OffsetDateTime;

use super::{ACCOUNT_ANNOTATION, AccountOptions, CERT_CHAIN, KEY, ROOT_CERT, SECRET_TYPE};
use crate::ca::authority::Authority;
use crate::ca::certificate::Certificate;
use crate::ca::renewal;
use crate::ca::store::{Account, Namespace, Secret};
use crate::store::objects::ObjectName;
use crate::tls::spiffe::SpiffeId;

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing before the given moment, unless something changes; `None` if nothing at all.
    Keep {
        until: Option<OffsetDateTime>,
    },
    /// Make a new key and certificate.
    Issue(IssueReason),
    /// Write the present roots; key and certificate stay.
    UpdateRoots,
    Delete,
    /// The name is taken by a Secret of another type, which is not touched.
    Foreign,
}

/// Why a new key and certificate are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IssueReason {
    Missing,
    /// Certificate or key do not parse, or do not belong together.
    Unusable,
    /// Other names than the account should have now.
    NamesChanged,
    /// Another certificate signs now than the one that signed it.
    SignerChanged,
    /// The account was deleted and made again under its name.
    AccountReplaced,
    /// Near its end, or past it.
    Due,
}

/// Whether accounts of a namespace get Secrets.
///
/// | `ca.istio.io/override` | `ca.istio.io/env` | managed |
/// |---|---|---|
/// | `true` / `false` | any | yes / no |
/// | other | absent | the default |
/// | other | the CA's own namespace | yes |
/// | other | other | no |
pub fn managed(namespace: Option<&Namespace>, options: &AccountOptions) -> bool {
    let Some(namespace) = namespace else { return options.enable_by_default };
    let label = |name: &str| namespace.labels.get(name).map(String::as_str);
    match (label("ca.istio.io/override"), label("ca.istio.io/env")) {
        (Some("true"), _) => true,
        (Some("false"), _) => false,
        (_, None) => options.enable_by_default,
        (_, Some(environment)) => environment == options.storage_namespace,
    }
}

/// Decides for the account `name`. `account` is `None` when it does not exist (any more).
pub fn plan(
    name: &ObjectName,
    account: Option<&Account>,
    namespace: Option<&Namespace>,
    existing: Option<&Secret>,
    authority: &Authority,
    options: &AccountOptions,
    now: OffsetDateTime,
) -> Action {
    let managed = managed(namespace, options);
    let terminating = namespace.is_some_and(|namespace| namespace.terminating);
    let (account, existing) = match (account, existing) {
        (_, Some(secret)) if secret.kind != SECRET_TYPE => return Action::Foreign,
        (None, Some(_)) => return Action::Delete,
        (Some(_), None) if managed && !terminating => return Action::Issue(IssueReason::Missing),
        (_, None) => return Action::Keep { until: None },
        (Some(account), Some(secret)) => (account, secret),
    };
    let wanted = change(name, account, existing, authority, options, now);
    match wanted {
        Action::Keep { .. } => wanted,
        // A namespace that opted out keeps what it has until that would have to be renewed.
        _ if !managed => Action::Delete,
        _ if terminating => Action::Keep { until: None },
        _ => wanted,
    }
}

fn change(
    name: &ObjectName,
    account: &Account,
    existing: &Secret,
    authority: &Authority,
    options: &AccountOptions,
    now: OffsetDateTime,
) -> Action {
    let leaf = renewal::usable_leaf(existing.bytes(CERT_CHAIN), existing.bytes(KEY));
    let Some(leaf) = leaf else { return Action::Issue(IssueReason::Unusable) };
    let replaced =
        |owner: &Account| !owner.uid.is_empty() && !account.uid.is_empty() && owner.uid != account.uid;
    if existing.owner.as_ref().is_some_and(replaced) {
        return Action::Issue(IssueReason::AccountReplaced);
    }
    if !has_names(&leaf, name, existing, options) {
        return Action::Issue(IssueReason::NamesChanged);
    }
    renewal::plan_current(&leaf, existing.bytes(ROOT_CERT), name, authority, &options.grace, now)
}

fn has_names(leaf: &Certificate, name: &ObjectName, secret: &Secret, options: &AccountOptions) -> bool {
    let Ok(id) = SpiffeId::new(&options.trust_domain, &name.namespace, &name.name) else { return false };
    leaf.uris == [id.to_string()]
        && leaf.dns_names == options.dns_names.of(&name.namespace, &name.name)
        && secret.annotations.get(ACCOUNT_ANNOTATION).is_some_and(|account| **account == *name.name)
}
