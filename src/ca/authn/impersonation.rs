//! Node agents that ask for the certificates of the workloads on their node.
//!
//! Allowed only to accounts that the operator named, and only for accounts that run on the very node the agent's
//! own pod runs on. Each condition has its own refusal. With no account named, nobody may impersonate.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Caller;
use crate::tls::spiffe::{SpiffeError, SpiffeId};

/// The key of the request's metadata that names the wanted identity.
pub const METADATA_KEY: &str = "ImpersonatedIdentity";

/// A pod, as far as impersonation needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub account: String,
    pub node: String,
    /// In phase `Failed`: it runs nothing any more.
    pub failed: bool,
}

/// The pods of one cluster, indexed.
#[derive(Clone, Debug, Default)]
pub struct Pods {
    by_name: BTreeMap<(String, String), Pod>,
    /// Node, namespace and account of pods that have not failed.
    running: BTreeSet<(String, String, String)>,
}

impl Pods {
    pub fn new(pods: impl IntoIterator<Item = Pod>) -> Self {
        let mut index = Self::default();
        for pod in pods {
            if !pod.failed && !pod.node.is_empty() {
                index.running.insert((pod.node.clone(), pod.namespace.clone(), pod.account.clone()));
            }
            index.by_name.insert((pod.namespace.clone(), pod.name.clone()), pod);
        }
        index
    }
}

/// Why an impersonation was refused. For the log: callers get one opaque text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImpersonationError {
    #[error("no account is trusted to impersonate")]
    Off,
    #[error("cluster {cluster:?} is not known to the node authorizer; known are: {}", .known.join(", "))]
    UnknownCluster { cluster: String, known: Vec<String> },
    #[error("{0} is not allowed to impersonate: it is not in the list of trusted node accounts")]
    NotTrusted(SpiffeId),
    #[error("the requested identity does not parse: {0}")]
    Identity(#[from] SpiffeError),
    #[error("the requested identity is in trust domain {0:?}, not in ours")]
    TrustDomain(String),
    #[error("the caller's token is not bound to a pod")]
    NoPod,
    #[error("the caller's pod {0} does not exist")]
    UnknownPod(String),
    #[error("the caller's pod {0} has another UID than its token says")]
    PodUid(String),
    #[error("the caller's pod {0} runs under another account than its token says")]
    PodAccount(String),
    #[error("no instances of {requested} found on node {node}")]
    NotOnNode { requested: SpiffeId, node: String },
}

/// The rules for impersonation.
#[derive(Clone, Debug, Default)]
pub struct Impersonation {
    /// Namespace and name of the accounts that may.
    pub trusted: BTreeSet<(String, String)>,
    /// Pods by cluster; the own cluster has the empty name.
    pub clusters: BTreeMap<String, Arc<Pods>>,
}

impl Impersonation {
    /// Reads a comma list `NAMESPACE/ACCOUNT,…`; the error is the entry at fault.
    pub fn parse_trusted(list: &str) -> Result<BTreeSet<(String, String)>, String> {
        let entries = list.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        entries
            .map(|entry| match entry.split_once('/') {
                Some((namespace, account))
                    if !namespace.is_empty() && !account.is_empty() && !account.contains('/') =>
                {
                    Ok((namespace.to_owned(), account.to_owned()))
                }
                _ => Err(format!("trusted node account {entry:?}: expected NAMESPACE/ACCOUNT")),
            })
            .collect()
    }

    /// The identity to issue for, if `caller` may have it.
    pub fn authorize(
        &self,
        caller: &Caller,
        requested: &str,
        cluster: &str,
    ) -> Result<SpiffeId, ImpersonationError> {
        use ImpersonationError as E;
        if self.trusted.is_empty() {
            return Err(E::Off);
        }
        let unknown_cluster = || E::UnknownCluster {
            cluster: cluster.to_owned(),
            known: self.clusters.keys().cloned().collect(),
        };
        let pods = self.clusters.get(cluster).ok_or_else(unknown_cluster)?;
        let account = (caller.id.namespace().to_owned(), caller.id.service_account().to_owned());
        if !self.trusted.contains(&account) {
            return Err(E::NotTrusted(caller.id.clone()));
        }
        let requested = SpiffeId::parse(requested)?;
        if requested.trust_domain() != caller.id.trust_domain() {
            return Err(E::TrustDomain(requested.trust_domain().to_owned()));
        }
        let node = node_of(caller, pods)?;
        let instance =
            (node.to_owned(), requested.namespace().to_owned(), requested.service_account().to_owned());
        match pods.running.contains(&instance) {
            true => Ok(requested),
            false => Err(E::NotOnNode { requested, node: node.to_owned() }),
        }
    }
}

/// The node of the pod that the caller's token is bound to.
fn node_of<'a>(caller: &Caller, pods: &'a Pods) -> Result<&'a str, ImpersonationError> {
    use ImpersonationError as E;
    let claimed = caller.pod.as_ref().ok_or(E::NoPod)?;
    let name = format!("{}/{}", caller.id.namespace(), claimed.name);
    let key = (caller.id.namespace().to_owned(), claimed.name.clone());
    match pods.by_name.get(&key) {
        None => Err(E::UnknownPod(name)),
        Some(pod) if pod.uid != claimed.uid => Err(E::PodUid(name)),
        Some(pod) if pod.account != caller.id.service_account() => Err(E::PodAccount(name)),
        Some(pod) => Ok(&pod.node),
    }
}

#[cfg(test)]
mod tests;
