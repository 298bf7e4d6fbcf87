//! Which policies apply at an address: for the data plane, which asks before it sends anything to an endpoint.
//!
//! A workload is a pod. An address that several pods share, that of their machine, is judged by the policies of
//! all of them; one that no pod has, by those of the namespace that its Service is in. What a worker asks here
//! is always the newest snapshot, also for a request that began under an older one.

use std::net::IpAddr;
use std::sync::Arc;

use super::SharedMap;
use super::policies::{Connection, Decision, Reason, WorkloadPolicies};
use crate::names::object::ObjectName;
use crate::tls::spiffe::SpiffeId;

/// Ports of node proxies and sidecars themselves, in every pod of the mesh: what is sent there would come back for ever, or
/// pass for something that it is not.
pub const NODE_PROXY_PORTS: [u16; 3] = [15001, 15006, 15008];

/// A workload and what applies to it.
#[derive(Clone, Debug)]
pub struct Workload {
    /// `None` where no pod is known.
    pub pod: Option<ObjectName>,
    /// Who it is in the mesh, as its Service Account says.
    pub principal: Option<SpiffeId>,
    /// Its address is that of its machine.
    pub host_network: bool,
    /// It takes tunnels at port 15008.
    pub hbone: bool,
    /// Workloads with the same policies share one, and it stays the same while nothing of it changes.
    pub policies: Arc<WorkloadPolicies>,
}

/// All workloads.
#[derive(Clone, Debug, Default)]
pub struct Workloads {
    pub by_address: SharedMap<IpAddr, Arc<[Workload]>>,
    /// For addresses without a pod: namespaces that have policies of their own.
    pub by_namespace: SharedMap<Arc<str>, Arc<[Workload]>>,
    /// For addresses without a pod in all other namespaces: the policies of the mesh.
    pub elsewhere: Option<Arc<[Workload]>>,
    /// Addresses of Services, with the namespaces of their workloads.
    pub services: SharedMap<IpAddr, Arc<[Arc<str>]>>,
}

impl Workloads {
    /// The workloads at `address` that a Service of `namespace` leads to.
    pub fn at(&self, address: IpAddr, namespace: &str) -> &[Workload] {
        let found = self.by_address.get(&address.to_canonical());
        let found = found.or_else(|| self.by_namespace.get(namespace)).or(self.elsewhere.as_ref());
        found.map_or(&[], |found| found)
    }

    /// Who is at `address`, where that is one workload and not its whole machine.
    pub fn only_at(&self, address: IpAddr) -> Option<&SpiffeId> {
        match &**self.by_address.get(&address.to_canonical())? {
            [only] if !only.host_network => only.principal.as_ref(),
            _ => None,
        }
    }

    /// Who is at `address`, where that is one workload that takes tunnels.
    pub fn tunnel_to(&self, address: IpAddr) -> Option<&SpiffeId> {
        match &**self.by_address.get(&address.to_canonical())? {
            [only] if only.hbone && !only.host_network => only.principal.as_ref(),
            _ => None,
        }
    }

    /// Whether policies may be about what is at `address`. `root` is the namespace of the mesh's own policies.
    pub fn may_guard(&self, address: IpAddr, root: &str) -> bool {
        let pods = self.by_address.get(&address.to_canonical());
        pods.is_some_and(|pods| has_policies(pods)) || self.hides(address, root)
    }

    /// Whether `address` is that of a Service, whose pods are anybody's guess, in a namespace that may have policies.
    pub fn hides(&self, address: IpAddr, root: &str) -> bool {
        let Some(namespaces) = self.services.get(&address.to_canonical()) else { return false };
        self.by_namespace.contains_key(root)
            || self.elsewhere.as_ref().is_some_and(|at| has_policies(at))
            || namespaces.iter().any(|namespace| self.by_namespace.contains_key(namespace))
    }

    /// Whether `connection` is accepted at its destination. Where several workloads answer to the address, all
    /// of them have to accept it. The ports of node proxies are none of a pod.
    pub fn decide(&self, namespace: &str, connection: &Connection<'_>) -> Decision<'_> {
        let mut last = Decision { allowed: true, policy: None, reason: Reason::NoAllowPolicy };
        let proxy = NODE_PROXY_PORTS.contains(&connection.port);
        for workload in self.at(connection.destination, namespace) {
            if proxy && workload.pod.is_some() {
                return Decision { allowed: false, policy: None, reason: Reason::NodeProxy };
            }
            last = workload.policies.decide(connection);
            if !last.allowed {
                return last;
            }
        }
        last
    }
}

fn has_policies(workloads: &[Workload]) -> bool {
    workloads.iter().any(|workload| workload.policies.any())
}
