//! TLS Secrets for hosts of Ingresses that ask for one with the annotation `issue-certificate`.
//!
//! The `tls` entry of the Ingress names Secret and hosts; the Secret that is written comes back to the gateway through
//! its ordinary source. What is ours carries a label. A Secret without it is never touched, and one that no Ingress
//! asks for any more is removed. Names that clients of the mesh know its own parts by are not issued to anyone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use time::OffsetDateTime;

use super::accounts::{Action, IssueReason, Outcome, Reconciled, SecretError, outcome};
use super::authority::Authority;
use super::csr::PublicKey;
use super::identity::is_dns_name;
use super::key::{KeyAlgorithm, PrivateKey};
use super::profile::SubjectName;
use super::renewal::{self, Grace};
use super::store::{CertificateRequest, Secret, Store, StoreError};
use crate::store::objects::ObjectName;

pub const SECRET_TYPE: &str = "kubernetes.io/tls";
/// What our Secrets are labelled with.
pub const LABEL: (&str, &str) = ("portcullis.dev/issued-by", "workload-ca");

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const ROOTS: &str = "ca.crt";

/// Writes under way at once.
const WRITES_AT_ONCE: usize = 16;

/// How certificates of hosts are made and kept.
#[derive(Clone, Debug)]
pub struct HostOptions {
    pub key: KeyAlgorithm,
    pub life: Duration,
    pub grace: Grace,
    /// Names of the CA's own service.
    pub reserved: Vec<String>,
}

/// Why a name gets no certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    #[error("{0:?} is not a host name")]
    Malformed(String),
    #[error("{0:?} has one label only: such names belong to parts of the mesh")]
    SingleLabel(String),
    #[error("{0:?} is a name inside of the cluster or of the CA itself")]
    Reserved(String),
}

/// What Ingresses ask for, by Secret.
#[derive(Debug, Default)]
pub struct Asked {
    pub hosts: BTreeMap<ObjectName, BTreeSet<String>>,
    /// Ingresses with names that are not issued; their other names are.
    pub refused: Vec<(ObjectName, HostError)>,
}

/// Gathers requests; several for one Secret add up.
pub fn asked(requests: &[CertificateRequest], options: &HostOptions) -> Asked {
    let mut asked = Asked::default();
    for request in requests {
        let hosts = asked.hosts.entry(request.secret.clone()).or_default();
        for host in &request.hosts {
            let host = host.to_ascii_lowercase();
            match check(&host, options) {
                Ok(()) => drop(hosts.insert(host)),
                Err(error) => asked.refused.push((request.ingress.clone(), error)),
            }
        }
    }
    asked.hosts.retain(|_, hosts| !hosts.is_empty());
    asked
}

/// Decides for one Secret; `hosts` is `None` when nobody asks for it, `existing` only ever one of ours.
pub fn plan(
    name: &ObjectName,
    hosts: Option<&BTreeSet<String>>,
    existing: Option<&Secret>,
    authority: &Authority,
    options: &HostOptions,
    now: OffsetDateTime,
) -> Action {
    let (hosts, existing) = match (hosts, existing) {
        (None, None) => return Action::Keep { until: None },
        (None, Some(_)) => return Action::Delete,
        (Some(_), None) => return Action::Issue(IssueReason::Missing),
        (Some(_), Some(existing)) if existing.kind != SECRET_TYPE => return Action::Foreign,
        (Some(hosts), Some(existing)) => (hosts, existing),
    };
    let leaf = renewal::usable_leaf(existing.bytes(CERTIFICATE), existing.bytes(KEY));
    let Some(leaf) = leaf else { return Action::Issue(IssueReason::Unusable) };
    if !leaf.uris.is_empty() || !leaf.dns_names.iter().eq(hosts) {
        return Action::Issue(IssueReason::NamesChanged);
    }
    renewal::plan_current(&leaf, existing.bytes(ROOTS), name, authority, &options.grace, now)
}

/// Brings all Secrets of hosts up to date. Also says which Ingresses ask for names that are not issued.
pub async fn reconcile<S: Store>(
    store: &S,
    authority: &Authority,
    options: &HostOptions,
    now: OffsetDateTime,
) -> Result<(Reconciled, Vec<(ObjectName, HostError)>), StoreError> {
    let Asked { hosts, refused } = asked(&store.certificate_requests().await?, options);
    let ours: BTreeMap<ObjectName, Secret> =
        store.issued_secrets().await?.into_iter().map(|secret| (secret.name.clone(), secret)).collect();
    let names: BTreeSet<ObjectName> = hosts.keys().chain(ours.keys()).cloned().collect();
    let one = async |name: ObjectName| {
        let (hosts, existing) = (hosts.get(&name), ours.get(&name));
        let action = plan(&name, hosts, existing, authority, options, now);
        let outcome = carry_out(store, &name, hosts, existing, action.clone(), authority, options, now).await;
        (name, action, outcome)
    };
    let mut outcomes = stream::iter(names).map(one).buffer_unordered(WRITES_AT_ONCE);
    let mut done = Reconciled::default();
    while let Some((name, action, outcome)) = outcomes.next().await {
        done.add(name, action, outcome);
    }
    Ok((done, refused))
}

#[allow(clippy::too_many_arguments, reason = "the inputs of the plan, once more")]
async fn carry_out<S: Store>(
    store: &S,
    name: &ObjectName,
    hosts: Option<&BTreeSet<String>>,
    existing: Option<&Secret>,
    action: Action,
    authority: &Authority,
    options: &HostOptions,
    now: OffsetDateTime,
) -> Result<Outcome, SecretError> {
    let done = match (action, hosts, existing) {
        (Action::Delete, _, Some(existing)) => store.delete_secret(existing).await,
        (Action::Foreign, ..) => return Err(SecretError::Foreign(name.clone())),
        (Action::UpdateRoots, _, Some(existing)) => {
            let mut secret = existing.clone();
            secret.data.insert(ROOTS.to_owned(), authority.roots().to_pem().into());
            store.write_secret(&secret).await
        }
        (Action::Issue(_), Some(hosts), _) => {
            store.write_secret(&issue(name, hosts, existing, authority, options, now)?).await
        }
        _ => Ok(()),
    };
    outcome(store, done, is_ours).await
}

/// Whether the CA made this Secret.
pub fn is_ours(secret: &Secret) -> bool {
    secret.labels.get(LABEL.0).is_some_and(|value| value == LABEL.1)
}

fn issue(
    name: &ObjectName,
    hosts: &BTreeSet<String>,
    existing: Option<&Secret>,
    authority: &Authority,
    options: &HostOptions,
    now: OffsetDateTime,
) -> Result<Secret, SecretError> {
    let names: Vec<_> = hosts.iter().cloned().map(SubjectName::Dns).collect();
    let key = PrivateKey::generate(options.key)?;
    let issued = authority.issue_server(&PublicKey::from_own_key(&key), &names, options.life, now)?;
    let mut secret = existing.cloned().unwrap_or_else(|| Secret::new(name.clone(), SECRET_TYPE));
    secret.labels.insert(LABEL.0.to_owned(), LABEL.1.to_owned());
    secret.data.insert(CERTIFICATE.to_owned(), authority.chain_pem(&issued.leaf).into());
    secret.data.insert(KEY.to_owned(), key.to_pem().as_bytes().into());
    secret.data.insert(ROOTS.to_owned(), authority.roots().to_pem().into());
    Ok(secret)
}

/// Clients of the mesh verify its own parts by names such as `istiod.istio-system.svc`: whoever may write an Ingress
/// must not become one of them.
fn check(host: &str, options: &HostOptions) -> Result<(), HostError> {
    let name = host.strip_prefix("*.").unwrap_or(host);
    if !is_dns_name(name) {
        return Err(HostError::Malformed(host.to_owned()));
    }
    if !name.contains('.') {
        return Err(HostError::SingleLabel(host.to_owned()));
    }
    let inside = ["svc", "cluster.local"].iter().any(|domain| {
        let rest = name.strip_suffix(domain);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    });
    match inside || options.reserved.iter().any(|reserved| reserved == host) {
        true => Err(HostError::Reserved(host.to_owned())),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests;
