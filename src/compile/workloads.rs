//! Pods become workloads with the policies that apply to them.
//!
//! Policies are compiled as a whole when one of them changes, because one object can outrank another; which
//! workloads that touches is found by comparing what applies to them before and after. A pod that changes is
//! looked at alone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::policies::{Mesh, Policies, compile_policies};
use crate::diagnostics::{Diagnostic, ObjectRef, Severity};
use crate::settings::Settings;
use crate::snapshot::SharedMap;
use crate::snapshot::policies::{WorkloadPolicies, is_peer_authentication};
use crate::snapshot::workloads::{Workload, Workloads};
use crate::store::Store;
use crate::store::objects::{AuthorizationPolicy, Kind, ObjectName, PeerAuthentication, Pod};
use crate::tls::spiffe::SpiffeId;

/// The reason of the finding that an older version of a policy is in force.
pub const LAST_GOOD_STAYS: &str = "LastGoodStays";

/// The compiled policies, and what workloads share of them. Copies share structure.
#[derive(Clone)]
pub(super) struct Table {
    mesh: Arc<Mesh>,
    policies: Arc<Policies>,
    /// By namespace and listed keys.
    resolved: SharedMap<(Arc<str>, Vec<ObjectName>), Arc<WorkloadPolicies>>,
}

impl Table {
    pub fn new(settings: &Settings) -> Self {
        let mesh = mesh_of(settings);
        let policies = Arc::new(compile_policies(&mesh, &[], &[]));
        Self { mesh: Arc::new(mesh), policies, resolved: SharedMap::default() }
    }

    pub fn policies(&self) -> &Arc<Policies> {
        &self.policies
    }

    /// Whether `settings` mean another mesh than before.
    pub fn differs(&self, settings: &Settings) -> bool {
        *self.mesh != mesh_of(settings)
    }

    /// Compiles all policies anew; gives what there is to say about them.
    pub fn recompile(&mut self, store: &Store, settings: &Settings) -> Vec<Diagnostic> {
        let mesh = mesh_of(settings);
        let peer: Vec<PeerAuthentication> = store.peer_authentications().in_force().cloned().collect();
        let policies: Vec<AuthorizationPolicy> = store.authorization_policies().in_force().cloned().collect();
        let mut compiled = compile_policies(&mesh, &peer, &policies);
        compiled.add_ready(store.ready_policies().in_force());
        let mut found = compiled.diagnostics.clone();
        found.extend(outdated(Kind::PeerAuthentication, store.peer_authentications().outdated()));
        found.extend(outdated(Kind::AuthorizationPolicy, store.authorization_policies().outdated()));
        found.extend(outdated(Kind::Authorization, store.ready_policies().outdated()));
        found.extend(store.listing_pods().flat_map(|pod| missing(&compiled, pod)));
        let mut resolved = SharedMap::default();
        for ((namespace, keys), before) in &self.resolved {
            // No workload has these any more, but for this table.
            if Arc::strong_count(before) == 1 {
                continue;
            }
            let after = compiled.resolve(namespace, keys);
            let after = if after.is_same(before) { before.clone() } else { Arc::new(after) };
            resolved.insert((namespace.clone(), keys.clone()), after);
        }
        (self.mesh, self.policies, self.resolved) = (Arc::new(mesh), Arc::new(compiled), resolved);
        found
    }

    /// Every address and namespace, after policies changed.
    pub fn compile_all(&mut self, store: &Store, workloads: &mut Workloads) {
        let known: BTreeSet<IpAddr> = workloads.by_address.keys().copied().collect();
        for address in known.into_iter().chain(store.pod_addresses()).collect::<BTreeSet<_>>() {
            self.compile_address(store, workloads, address);
        }
        // A pod may list policies of another namespace than its own.
        let listing = store.listing_pods().map(|pod| &pod.metadata.name.namespace);
        let namespaces: BTreeSet<Arc<str>> = self.policies.namespaces().chain(listing).cloned().collect();
        let mut by_namespace = SharedMap::default();
        for namespace in namespaces {
            let before = workloads.by_namespace.get(&namespace);
            let after = self.without_pod(&namespace, before);
            by_namespace.insert(namespace, after);
        }
        workloads.by_namespace = by_namespace;
        workloads.elsewhere = Some(self.without_pod("", workloads.elsewhere.as_ref()));
    }

    /// One address, after a pod came, went or changed there.
    pub fn compile_address(&mut self, store: &Store, workloads: &mut Workloads, address: IpAddr) {
        let found: Arc<[Workload]> = store.pods_at(&address).map(|pod| self.workload(pod)).collect();
        match workloads.by_address.get(&address) {
            _ if found.is_empty() => drop(workloads.by_address.remove(&address)),
            Some(before) if same(before, &found) => {}
            _ => drop(workloads.by_address.insert(address, found)),
        }
    }

    fn workload(&mut self, pod: &Pod) -> Workload {
        let name = &pod.metadata.name;
        Workload {
            pod: Some(name.clone()),
            principal: SpiffeId::new(&self.mesh.trust_domain, &name.namespace, &pod.service_account).ok(),
            host_network: pod.host_network,
            hbone: pod.hbone,
            policies: self.resolve(&name.namespace, keys_of(&self.policies, pod)),
        }
    }

    fn without_pod(&mut self, namespace: &str, before: Option<&Arc<[Workload]>>) -> Arc<[Workload]> {
        let policies = self.resolve(namespace, self.policies.keys(namespace, &BTreeMap::new()));
        let after = [Workload { pod: None, principal: None, host_network: false, hbone: false, policies }];
        match before {
            Some(before) if same(before, &after) => before.clone(),
            _ => after.into(),
        }
    }

    fn resolve(&mut self, namespace: &str, keys: Vec<ObjectName>) -> Arc<WorkloadPolicies> {
        let key = (Arc::from(namespace), keys);
        if let Some(known) = self.resolved.get(&key) {
            return known.clone();
        }
        let fresh = Arc::new(self.policies.resolve(namespace, &key.1));
        self.resolved.insert(key, fresh.clone());
        fresh
    }
}

/// The policies that a pod lists: those that select it, then those that it names itself.
fn keys_of(policies: &Policies, pod: &Pod) -> Vec<ObjectName> {
    let mut keys = policies.keys(&pod.metadata.name.namespace, &pod.metadata.labels);
    for key in &pod.listed {
        if !keys.contains(key) {
            keys.push(key.clone());
        }
    }
    keys
}

/// What a pod lists and nothing is.
fn missing(policies: &Policies, pod: &Pod) -> Vec<Diagnostic> {
    let resolved = policies.resolve(&pod.metadata.name.namespace, &keys_of(policies, pod));
    let finding = |key: &ObjectName| {
        let refused = match is_peer_authentication(key) {
            true => "plaintext",
            false => "everything",
        };
        let message =
            format!("there is no policy {key} that could be listed; until there is, {refused} is refused");
        pod.fault_of_list("PolicyNotFound", message)
    };
    // A key without a namespace is none at all, and was reported as that.
    resolved.dangling().iter().filter(|key| !key.namespace.is_empty()).map(finding).collect()
}

/// One address of Services, after one came, went or changed there.
pub(super) fn compile_service_address(store: &Store, workloads: &mut Workloads, address: IpAddr) {
    let namespaces: BTreeSet<Arc<str>> =
        store.services_at(&address).map(|service| service.namespace.clone()).collect();
    match namespaces.is_empty() {
        true => drop(workloads.services.remove(&address)),
        false => drop(workloads.services.insert(address, namespaces.into_iter().collect())),
    }
}

fn mesh_of(settings: &Settings) -> Mesh {
    Mesh {
        root_namespace: settings.mesh_root_namespace.clone(),
        trust_domain: settings.mesh_trust_domain.clone(),
        trust_domain_aliases: settings.mesh_trust_domain_aliases.clone(),
    }
}

fn same(before: &[Workload], after: &[Workload]) -> bool {
    let same = |(a, b): (&Workload, &Workload)| {
        a.pod == b.pod
            && a.principal == b.principal
            && (a.host_network, a.hbone) == (b.host_network, b.hbone)
            && Arc::ptr_eq(&a.policies, &b.policies)
    };
    before.len() == after.len() && before.iter().zip(after).all(same)
}

fn outdated<'a>(kind: Kind, names: impl Iterator<Item = &'a ObjectName>) -> Vec<Diagnostic> {
    let message = "the last version that could be read stays in force until this one is repaired";
    let finding =
        |name| Diagnostic::new(Severity::Warning, ObjectRef::new(kind, name), "", LAST_GOOD_STAYS, message);
    names.map(finding).collect()
}
