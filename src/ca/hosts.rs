//! TLS Secrets for hosts of Ingresses that ask for one with the annotation `issue-certificate`.
//!
//! The `tls` entry of the Ingress names Secret and hosts; the Secret that is written comes back to the gateway through
//! its ordinary source. What is ours carries a label. A Secret without it is never touched, and one that no Ingress
//! asks for any more is removed. Whoever may write an Ingress must not become somebody else by it: names that a service
//! has inside of the cluster are not issued to anyone, hosts that an Ingress of another namespace claimed first only
//! there, and the certificates are for servers only.

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
use super::store::{IngressHosts, Secret, Store, StoreError};
use crate::store::objects::ObjectName;

pub const SECRET_TYPE: &str = "kubernetes.io/tls";
/// What our Secrets are labelled with.
pub const LABEL: (&str, &str) = ("portcullis.dev/issued-by", "workload-ca");

pub(super) const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
pub(super) const ROOTS: &str = "ca.crt";

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
    #[error("{0:?} is a name inside of the cluster: its last label is a namespace")]
    InNamespace(String),
    #[error("{host:?} is claimed by an older Ingress of namespace {namespace}")]
    Claimed { host: String, namespace: String },
}

/// What Ingresses ask for, by Secret.
#[derive(Debug, Default)]
pub struct Asked {
    pub hosts: BTreeMap<ObjectName, BTreeSet<String>>,
    /// Ingresses with names that are not issued; their other names are.
    pub refused: Vec<(ObjectName, HostError)>,
}

/// Gathers requests; several for one Secret add up. `namespaces` are those of the cluster.
pub fn asked(ingresses: &[IngressHosts], namespaces: &BTreeSet<&str>, options: &HostOptions) -> Asked {
    let claims = Claims::of(ingresses);
    let mut asked = Asked::default();
    for (ingress, request) in ingresses.iter().flat_map(|it| it.requests.iter().map(move |one| (it, one))) {
        let hosts = asked.hosts.entry(request.secret.clone()).or_default();
        for host in &request.hosts {
            let host = host.to_ascii_lowercase();
            let namespace = &*ingress.ingress.namespace;
            let checked = check(&host, namespaces, options);
            match checked.and_then(|()| claims.check(&host, namespace)) {
                Ok(()) => drop(hosts.insert(host)),
                Err(error) => asked.refused.push((request.ingress.clone(), error)),
            }
        }
    }
    asked.hosts.retain(|_, hosts| !hosts.is_empty());
    asked
}

/// Who was first: rules before mere `tls` entries, then the order of routes, the oldest Ingress first.
type Rank<'a> = (bool, i64, &'a str, &'a str);

/// Which Ingress claims each host first.
#[derive(Default)]
struct Claims<'a> {
    first: BTreeMap<String, Rank<'a>>,
    /// The hosts one label below each name: what a wildcard there stands for.
    below: BTreeMap<String, BTreeSet<String>>,
}

impl<'a> Claims<'a> {
    fn of(ingresses: &'a [IngressHosts]) -> Self {
        let mut claims = Self::default();
        for it in ingresses {
            let rank = |in_tls| {
                let created = it.created.unwrap_or(i64::MAX);
                (in_tls, created, &*it.ingress.namespace, &*it.ingress.name)
            };
            it.claims.iter().for_each(|host| claims.add(host.clone(), rank(false)));
            let asked = it.requests.iter().flat_map(|request| &request.hosts);
            asked.for_each(|host| claims.add(host.to_ascii_lowercase(), rank(true)));
        }
        claims
    }

    fn add(&mut self, host: String, rank: Rank<'a>) {
        if let Some((_, parent)) = host.split_once('.') {
            self.below.entry(parent.to_owned()).or_default().insert(host.clone());
        }
        let first = self.first.entry(host).or_insert(rank);
        *first = rank.min(*first);
    }

    /// Whether `namespace` has the host, and a wildcard before all that others have of what it stands for.
    fn check(&self, host: &str, namespace: &str) -> Result<(), HostError> {
        let claimed = |(.., owner, _): &Rank<'_>| HostError::Claimed {
            host: host.to_owned(),
            namespace: (*owner).to_owned(),
        };
        let Some(own) = self.first.get(host) else { return Ok(()) };
        if own.2 != namespace {
            return Err(claimed(own));
        }
        let covered = host.strip_prefix("*.").and_then(|parent| self.below.get(parent));
        let covered = covered.into_iter().flatten().filter_map(|host| self.first.get(host));
        match covered.filter(|rank| rank.2 != namespace && *rank < own).min() {
            Some(older) => Err(claimed(older)),
            None => Ok(()),
        }
    }
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
    // One that is good for clients as well is none of ours any more.
    if !leaf.uris.is_empty() || !leaf.dns_names.iter().eq(hosts) || leaf.rights.usages_nest {
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
    let (ingresses, namespaces) = (store.ingresses().await?, store.namespaces().await?);
    let of_ingresses = ingresses.iter().map(|it| &*it.ingress.namespace);
    let namespaces = namespaces.iter().map(|it| it.name.as_str()).chain(of_ingresses).collect();
    let Asked { hosts, refused } = asked(&ingresses, &namespaces, options);
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

/// Clients inside of the cluster know services by `NAME.NAMESPACE`, `NAME.NAMESPACE.svc` and what is below the domain of
/// the cluster, whatever that is: none of these may be somebody's who writes an Ingress.
fn check(host: &str, namespaces: &BTreeSet<&str>, options: &HostOptions) -> Result<(), HostError> {
    let name = host.strip_prefix("*.").unwrap_or(host);
    if !is_dns_name(name) {
        return Err(HostError::Malformed(host.to_owned()));
    }
    let Some((_, last)) = name.rsplit_once('.') else {
        return Err(HostError::SingleLabel(host.to_owned()));
    };
    if namespaces.contains(last) {
        return Err(HostError::InNamespace(host.to_owned()));
    }
    let inside = name.split('.').any(|label| label == "svc") || is_below(name, "cluster.local");
    match inside || options.reserved.iter().any(|reserved| stands_for(host, reserved)) {
        true => Err(HostError::Reserved(host.to_owned())),
        false => Ok(()),
    }
}

fn is_below(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Whether a certificate for `host`, perhaps a wildcard, is good for `name` (RFC 9525, section 6.3).
fn stands_for(host: &str, name: &str) -> bool {
    match host.strip_prefix("*.") {
        Some(parent) => name.split_once('.').is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(parent)),
        None => name.eq_ignore_ascii_case(host),
    }
}

#[cfg(test)]
mod tests;
