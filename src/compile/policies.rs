//! Transport policy: PeerAuthentications and AuthorizationPolicies become flat `Authorization`s, and every
//! workload gets the list of those that apply to it.
//!
//! For a workload, [`Transport`] is the one effective result of its PeerAuthentications; both the policy and
//! the key that refers to it are read off it, so that they cannot disagree. The order in which objects arrive
//! changes nothing, not even a byte. `docs/policy.md` has the semantics.

mod authorization;
mod peer;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::diagnostics::{Diagnostic, ObjectRef, Severity};
use crate::snapshot::policies::{Authorization, PolicySet, WorkloadPolicies};
use crate::store::objects::{AuthorizationPolicy, Kind, ObjectName, PeerAuthentication, ReadyPolicy};

pub use authorization::Acceptance;
pub use peer::Transport;

/// The reason of the finding that a ready policy has the name of one that objects were compiled to.
pub const NAME_TAKEN: &str = "NameTaken";

/// What policies need to know about the mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mesh {
    /// Policies of this namespace apply to the whole mesh.
    pub root_namespace: String,
    pub trust_domain: String,
    /// Other names of the same trust domain: principals of any of them mean principals of all.
    pub trust_domain_aliases: Vec<String>,
}

impl Default for Mesh {
    fn default() -> Self {
        Self {
            root_namespace: "istio-system".into(),
            trust_domain: "cluster.local".into(),
            trust_domain_aliases: Vec::new(),
        }
    }
}

/// All policies, compiled.
#[derive(Clone, Debug)]
pub struct Policies {
    levels: peer::Levels,
    /// AuthorizationPolicies that choose their workloads by label, in the order of their keys.
    selecting: Vec<Selecting>,
    authorizations: BTreeMap<ObjectName, Arc<Authorization>>,
    refused: BTreeSet<ObjectName>,
    set: PolicySet,
    /// What each AuthorizationPolicy came to, for its status.
    pub acceptances: BTreeMap<ObjectName, Acceptance>,
    pub diagnostics: Vec<Diagnostic>,
}

#[derive(Clone, Debug)]
struct Selecting {
    key: ObjectName,
    /// Applies in every namespace, not only in its own.
    mesh_wide: bool,
    selector: BTreeMap<String, String>,
}

/// Compiles all policies of the mesh, in any order; each has a name of its own among its kind.
pub fn compile_policies(
    mesh: &Mesh,
    peer_authentications: &[PeerAuthentication],
    authorization_policies: &[AuthorizationPolicy],
) -> Policies {
    let (levels, diagnostics) = peer::Levels::new(mesh, peer_authentications);
    let mut policies = Policies {
        authorizations: levels
            .authorizations()
            .map(|policy| (policy.name.clone(), Arc::new(policy)))
            .collect(),
        levels,
        selecting: Vec::new(),
        refused: BTreeSet::new(),
        set: PolicySet::default(),
        acceptances: BTreeMap::new(),
        diagnostics,
    };
    for policy in authorization_policies {
        policies.add(mesh, policy);
    }
    // As text, which is how istiod sorts the keys of a workload.
    policies.selecting.sort_by_cached_key(|policy| policy.key.to_string());
    policies.diagnostics.sort();
    policies.set = PolicySet::new(policies.authorizations.values().cloned());
    policies
}

impl Policies {
    fn add(&mut self, mesh: &Mesh, policy: &AuthorizationPolicy) {
        let name = &policy.metadata.name;
        if policy.targeted {
            let object = ObjectRef::new(Kind::AuthorizationPolicy, name);
            let message = "this policy is for a waypoint proxy; transport policy leaves it alone";
            self.diagnostics.push(Diagnostic::new(
                Severity::Info,
                object,
                "spec.targetRefs",
                "NotTransportPolicy",
                message,
            ));
            return;
        }
        let acceptance = Acceptance::of(policy);
        if let Some(diagnostic) = acceptance.diagnostic(name) {
            self.diagnostics.push(diagnostic);
        }
        self.acceptances.insert(name.clone(), acceptance);
        let Some(compiled) = authorization::compile(mesh, policy) else { return };
        if policy.refused {
            self.refused.insert(name.clone());
        }
        if !policy.selector.is_empty() {
            self.selecting.push(Selecting {
                key: name.clone(),
                mesh_wide: *name.namespace == *mesh.root_namespace,
                selector: policy.selector.clone(),
            });
        }
        self.authorizations.insert(name.clone(), Arc::new(compiled));
    }

    /// Takes in policies that were compiled elsewhere. One that objects were compiled to here keeps its name: it is what
    /// the workloads that the objects select refer to, and they are what an operator reads and edits.
    pub fn add_ready<'a>(&mut self, ready: impl Iterator<Item = &'a ReadyPolicy>) {
        let mut added = Vec::new();
        for ReadyPolicy { metadata, policy, .. } in ready {
            if self.authorizations.contains_key(&metadata.name) {
                let object = ObjectRef::new(Kind::Authorization, &metadata.name);
                let message =
                    "objects here are compiled to a policy of this name, which counts; this one does not";
                let taken = Diagnostic::new(Severity::Error, object, "name", NAME_TAKEN, message);
                self.diagnostics.push(taken);
            } else {
                added.push((metadata.name.clone(), policy.clone()));
            }
        }
        self.authorizations.extend(added);
        self.set = PolicySet::new(self.authorizations.values().cloned());
    }

    /// Every policy by name, with the static STRICT policy where there is a PeerAuthentication.
    pub fn authorizations(&self) -> &BTreeMap<ObjectName, Arc<Authorization>> {
        &self.authorizations
    }

    /// Whether `policy` is a stand-in for an AuthorizationPolicy that could not be read, and closed for that.
    pub fn is_refused(&self, policy: &ObjectName) -> bool {
        self.refused.contains(policy)
    }

    /// What the PeerAuthentications come to for a workload.
    pub fn transport(&self, namespace: &str, labels: &BTreeMap<String, String>) -> Transport<'_> {
        self.levels.transport(namespace, labels)
    }

    /// The policies that a workload lists beside the global ones and those of its namespace:
    /// AuthorizationPolicies in the order of their keys, then what its PeerAuthentications come to.
    pub fn keys(&self, namespace: &str, labels: &BTreeMap<String, String>) -> Vec<ObjectName> {
        let applies = |policy: &&Selecting| {
            (policy.mesh_wide || *policy.key.namespace == *namespace) && selects(&policy.selector, labels)
        };
        let listed = self.selecting.iter().filter(applies).map(|policy| policy.key.clone());
        listed.chain(self.transport(namespace, labels).key()).collect()
    }

    /// The policies that apply to a workload.
    pub fn workload(&self, namespace: &str, labels: &BTreeMap<String, String>) -> WorkloadPolicies {
        self.resolve(namespace, &self.keys(namespace, labels))
    }

    /// The policies that apply to workloads of `namespace` that list `keys`.
    pub fn resolve(&self, namespace: &str, keys: &[ObjectName]) -> WorkloadPolicies {
        self.set.workload(namespace, keys)
    }

    /// Namespaces whose workloads may have other policies than those of the mesh.
    pub fn namespaces(&self) -> impl Iterator<Item = &Arc<str>> {
        self.authorizations.keys().map(|name| &name.namespace).chain(self.levels.namespaces())
    }
}

/// Whether a workload has all labels that a selector asks for.
fn selects(selector: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}
