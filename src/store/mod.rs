//! All objects, by kind, namespace and name, with the indexes that `compile` needs: the only mutable state of
//! the control plane. Sources send [`Event`]s; each records in [`Changes`] which hosts and backends it
//! touches, so that the next compile costs what changed and not what exists.

mod changes;
mod index;
pub mod objects;
mod policies;
mod references;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use crate::names::HostPattern;
use crate::snapshot::clusters::ClusterKey;
use crate::tls::ocsp::OcspStatus;
pub use changes::Changes;
use index::Index;
use objects::{
    AuthorizationPolicy, ConfigMap, EndpointSlice, Ingress, IngressClass, Kind, Namespace, Object,
    ObjectName, PeerAuthentication, Pod, ReadyPolicy, Secret, Service,
};
pub use policies::LastGood;
use references::{ingress_clusters, ingress_secrets, pem_hosts, service_of, staplable_leaf};
pub use references::{ingress_hosts, www_partners};

/// The key of a ConfigMap that holds the root certificates of a mesh, as istiod writes it.
pub const ROOT_CERTIFICATES: &str = "root-cert.pem";
/// The key of its revocation lists.
pub const REVOCATION_LISTS: &str = "ca-crl.pem";

/// What a source tells the store.
#[derive(Debug)]
pub enum Event {
    /// The object is new or differs from before.
    Apply(Object),
    Delete(Kind, ObjectName),
    /// What is known about the staple of a leaf, from the OCSP source.
    Staple(Arc<OcspStatus>),
    /// The OCSP source keeps no staple for the leaf with this fingerprint any more.
    StapleGone([u8; 32]),
}

/// The objects.
#[derive(Default)]
pub struct Store {
    authorization_policies: LastGood<AuthorizationPolicy>,
    config_maps: HashMap<ObjectName, Arc<ConfigMap>>,
    endpoint_slices: HashMap<ObjectName, Arc<EndpointSlice>>,
    ingresses: HashMap<ObjectName, Arc<Ingress>>,
    ingress_classes: HashMap<ObjectName, Arc<IngressClass>>,
    namespaces: HashMap<ObjectName, Arc<Namespace>>,
    peer_authentications: LastGood<PeerAuthentication>,
    pods: HashMap<ObjectName, Arc<Pod>>,
    ready_policies: LastGood<ReadyPolicy>,
    secrets: HashMap<ObjectName, Arc<Secret>>,
    services: HashMap<ObjectName, Arc<Service>>,
    staples: HashMap<[u8; 32], Arc<OcspStatus>>,

    ingresses_by_host: Index<HostPattern>,
    /// Under the hosts that they may want to be sent to their own.
    ingresses_by_www_partner: Index<HostPattern>,
    ingresses_by_secret: Index<ObjectName>,
    ingresses_by_cluster: Index<ClusterKey>,
    slices_by_service: Index<ObjectName>,
    pem_pairs_by_name: Index<HostPattern>,
    pods_by_address: Index<IpAddr>,
    /// Pods that list policies.
    listing_pods: BTreeSet<ObjectName>,
    services_by_address: Index<IpAddr>,
    /// Only Secrets whose certificate names an OCSP responder.
    secrets_by_leaf: Index<[u8; 32]>,

    changes: Changes,
}

impl Store {
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes one event into account.
    pub fn apply(&mut self, event: Event) {
        match event {
            Event::Apply(object) => self.put(object),
            Event::Delete(kind, name) => self.remove(kind, &name),
            Event::Staple(status) => self.put_staple(status),
            Event::StapleGone(leaf) => {
                if self.staples.remove(&leaf).is_some() {
                    self.changes.staples.insert(leaf);
                }
            }
        }
    }

    /// What `look` makes of the store as it would be with `ingress` in it, and of what that touches. Afterwards
    /// everything is as before.
    pub fn rehearse<R>(&mut self, ingress: Ingress, look: impl FnOnce(&Self, &Changes) -> R) -> R {
        let name = ingress.metadata.name.clone();
        let pending = std::mem::take(&mut self.changes);
        let before = self.ingresses.get(&name).cloned();
        self.put(Object::Ingress(ingress));
        let changes = self.take_changes();
        let result = look(self, &changes);
        match before {
            Some(before) => self.put(Object::Ingress(Arc::unwrap_or_clone(before))),
            None => self.remove(Kind::Ingress, &name),
        }
        self.changes = pending;
        result
    }

    /// What was touched since the last call.
    pub fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    pub fn authorization_policies(&self) -> &LastGood<AuthorizationPolicy> {
        &self.authorization_policies
    }

    pub fn peer_authentications(&self) -> &LastGood<PeerAuthentication> {
        &self.peer_authentications
    }

    pub fn ready_policies(&self) -> &LastGood<ReadyPolicy> {
        &self.ready_policies
    }

    /// The pods that list policies, in the order of their names.
    pub fn listing_pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.listing_pods.iter().filter_map(|name| self.pods.get(name))
    }

    /// The pods at an address, in the order of their names: several where they share that of their machine.
    pub fn pods_at(&self, address: &IpAddr) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods_by_address.get(address).filter_map(|name| self.pods.get(name))
    }

    /// Every address of a pod.
    pub fn pod_addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.pods_by_address.keys().copied()
    }

    /// The names of Services with this address. There is one, but for manifests without a cluster.
    pub fn services_at(&self, address: &IpAddr) -> impl Iterator<Item = &ObjectName> {
        self.services_by_address.get(address)
    }

    pub fn config_map(&self, name: &ObjectName) -> Option<&Arc<ConfigMap>> {
        self.config_maps.get(name)
    }

    pub fn ingress(&self, name: &ObjectName) -> Option<&Arc<Ingress>> {
        self.ingresses.get(name)
    }

    pub fn ingresses(&self) -> impl Iterator<Item = &Arc<Ingress>> {
        self.ingresses.values()
    }

    pub fn ingress_class(&self, name: &str) -> Option<&Arc<IngressClass>> {
        self.ingress_classes.get(&ObjectName::new("", name))
    }

    pub fn ingress_classes(&self) -> impl Iterator<Item = &Arc<IngressClass>> {
        self.ingress_classes.values()
    }

    pub fn namespace(&self, name: &str) -> Option<&Arc<Namespace>> {
        self.namespaces.get(&ObjectName::new("", name))
    }

    pub fn secret(&self, name: &ObjectName) -> Option<&Arc<Secret>> {
        self.secrets.get(name)
    }

    pub fn service(&self, name: &ObjectName) -> Option<&Arc<Service>> {
        self.services.get(name)
    }

    /// What is known about the staple of the leaf with this fingerprint.
    pub fn staple(&self, leaf: &[u8; 32]) -> Option<&Arc<OcspStatus>> {
        self.staples.get(leaf)
    }

    /// Ingresses with a rule for exactly this pattern; those without rules count as [`HostPattern::Any`].
    /// Oldest first. Whether their class is ours is for `compile` to say.
    pub fn ingresses_of_host(&self, host: &HostPattern) -> Vec<&Arc<Ingress>> {
        self.oldest_first(self.ingresses_by_host.get(host))
    }

    /// Ingresses that may want `host` to be sent to one of theirs, with or without `www.`. Oldest first.
    pub fn ingresses_of_www_partner(&self, host: &HostPattern) -> Vec<&Arc<Ingress>> {
        self.oldest_first(self.ingresses_by_www_partner.get(host))
    }

    fn oldest_first<'a>(&'a self, names: impl Iterator<Item = &'a ObjectName>) -> Vec<&'a Arc<Ingress>> {
        let mut found: Vec<_> = names.filter_map(|name| self.ingresses.get(name)).collect();
        found.sort_by(|a, b| a.metadata.age_order().cmp(&b.metadata.age_order()));
        found
    }

    /// Ingresses with a path that leads to this backend.
    pub fn ingresses_of_cluster(&self, cluster: &ClusterKey) -> impl Iterator<Item = &Arc<Ingress>> {
        self.ingresses_by_cluster.get(cluster).filter_map(|name| self.ingresses.get(name))
    }

    /// The EndpointSlices of a Service, in the order of their names.
    pub fn endpoint_slices_of(&self, service: &ObjectName) -> impl Iterator<Item = &Arc<EndpointSlice>> {
        self.slices_by_service.get(service).filter_map(|name| self.endpoint_slices.get(name))
    }

    /// PEM pairs that carry this pattern in their SANs, in the order of their names.
    pub fn pem_pairs_of(&self, host: &HostPattern) -> impl Iterator<Item = &Arc<Secret>> {
        self.pem_pairs_by_name.get(host).filter_map(|name| self.secrets.get(name))
    }

    /// Every host pattern that an Ingress or a PEM pair declares.
    pub fn hosts(&self) -> BTreeSet<HostPattern> {
        let of_ingresses = self.ingresses_by_host.keys().chain(self.ingresses_by_www_partner.keys());
        of_ingresses.chain(self.pem_pairs_by_name.keys()).cloned().collect()
    }

    /// Every backend that an Ingress leads to.
    pub fn clusters(&self) -> impl Iterator<Item = &ClusterKey> {
        self.ingresses_by_cluster.keys()
    }

    fn put(&mut self, object: Object) {
        let name = object.metadata().name.clone();
        match object {
            Object::AuthorizationPolicy(new) => self.changes.policies |= self.authorization_policies.put(new),
            Object::PeerAuthentication(new) => self.changes.policies |= self.peer_authentications.put(new),
            Object::ReadyPolicy(new) => self.changes.policies |= self.ready_policies.put(new),
            Object::UnreadablePolicy(Kind::PeerAuthentication, _) => {
                self.changes.policies |= self.peer_authentications.put_unreadable(name);
            }
            Object::UnreadablePolicy(Kind::Authorization, _) => {
                self.changes.policies |= self.ready_policies.put_unreadable(name);
            }
            Object::UnreadablePolicy(_, _) => {
                self.changes.policies |= self.authorization_policies.put_unreadable(name);
            }
            Object::Pod(new) => {
                // Most of what happens to a pod is of no interest here.
                if self.pods.get(&name).is_some_and(|old| **old == new) {
                    return;
                }
                self.remove(Kind::Pod, &name);
                for address in &new.addresses {
                    self.changes.pods.insert(*address);
                    self.pods_by_address.insert(*address, name.clone());
                }
                if !new.listed.is_empty() {
                    self.listing_pods.insert(name.clone());
                    self.changes.policies = true;
                }
                self.pods.insert(name, Arc::new(new));
            }
            Object::ConfigMap(new) => {
                self.changes.trust |= is_about_trust(&new);
                let old = self.config_maps.insert(name, Arc::new(new));
                self.changes.trust |= old.is_some_and(|old| is_about_trust(&old));
            }
            Object::Namespace(new) => {
                self.namespaces.insert(name, Arc::new(new));
            }
            Object::IngressClass(new) => {
                self.ingress_classes.insert(name, Arc::new(new));
                self.changes.all_hosts = true;
            }
            Object::Service(new) => {
                self.touch_service(&name);
                self.forget_addresses(&name);
                for address in &new.addresses {
                    self.changes.services.insert(*address);
                    self.services_by_address.insert(*address, name.clone());
                }
                self.services.insert(name, Arc::new(new));
            }
            Object::EndpointSlice(new) => {
                self.remove(Kind::EndpointSlice, &name);
                if let Some(service) = service_of(&new) {
                    self.touch_service(&service);
                    self.slices_by_service.insert(service, name.clone());
                }
                self.endpoint_slices.insert(name, Arc::new(new));
            }
            Object::Secret(new) => {
                self.remove(Kind::Secret, &name);
                for host in pem_hosts(&new) {
                    self.changes.certificates.insert(host.clone());
                    self.pem_pairs_by_name.insert(host, name.clone());
                }
                if let Some(leaf) = staplable_leaf(&new) {
                    self.secrets_by_leaf.insert(leaf, name.clone());
                }
                self.touch_secret(&name);
                self.secrets.insert(name, Arc::new(new));
            }
            Object::Ingress(new) => {
                self.remove(Kind::Ingress, &name);
                for host in ingress_hosts(&new) {
                    self.changes.hosts.insert(host.clone());
                    self.ingresses_by_host.insert(host, name.clone());
                }
                for host in www_partners(&new) {
                    self.changes.hosts.insert(host.clone());
                    self.ingresses_by_www_partner.insert(host, name.clone());
                }
                for secret in ingress_secrets(&new) {
                    self.ingresses_by_secret.insert(secret, name.clone());
                }
                for cluster in ingress_clusters(&new) {
                    self.changes.clusters.insert(cluster.clone());
                    self.ingresses_by_cluster.insert(cluster, name.clone());
                }
                self.changes.ingresses.insert(name.clone());
                self.ingresses.insert(name, Arc::new(new));
            }
        }
    }

    fn remove(&mut self, kind: Kind, name: &ObjectName) {
        match kind {
            Kind::Authorization => self.changes.policies |= self.ready_policies.remove(name),
            Kind::AuthorizationPolicy => self.changes.policies |= self.authorization_policies.remove(name),
            Kind::PeerAuthentication => self.changes.policies |= self.peer_authentications.remove(name),
            Kind::Pod => {
                self.changes.policies |= self.listing_pods.remove(name);
                if let Some(old) = self.pods.remove(name) {
                    for address in &old.addresses {
                        self.pods_by_address.remove(address, name);
                        self.changes.pods.insert(*address);
                    }
                }
            }
            Kind::ConfigMap => {
                let old = self.config_maps.remove(name);
                self.changes.trust |= old.is_some_and(|old| is_about_trust(&old));
            }
            Kind::Namespace => {
                self.namespaces.remove(name);
            }
            Kind::IngressClass => {
                self.changes.all_hosts |= self.ingress_classes.remove(name).is_some();
            }
            Kind::Service => {
                self.forget_addresses(name);
                if self.services.remove(name).is_some() {
                    self.touch_service(name);
                }
            }
            Kind::EndpointSlice => {
                if let Some(old) = self.endpoint_slices.remove(name)
                    && let Some(service) = service_of(&old)
                {
                    self.touch_service(&service);
                    self.slices_by_service.remove(&service, name);
                }
            }
            Kind::Secret => {
                if let Some(old) = self.secrets.remove(name) {
                    for host in pem_hosts(&old) {
                        self.pem_pairs_by_name.remove(&host, name);
                        self.changes.certificates.insert(host);
                    }
                    if let Some(leaf) = staplable_leaf(&old) {
                        self.secrets_by_leaf.remove(&leaf, name);
                    }
                    self.touch_secret(name);
                }
            }
            Kind::Ingress => {
                if let Some(old) = self.ingresses.remove(name) {
                    for host in ingress_hosts(&old) {
                        self.ingresses_by_host.remove(&host, name);
                        self.changes.hosts.insert(host);
                    }
                    for host in www_partners(&old) {
                        self.ingresses_by_www_partner.remove(&host, name);
                        self.changes.hosts.insert(host);
                    }
                    for secret in ingress_secrets(&old) {
                        self.ingresses_by_secret.remove(&secret, name);
                    }
                    for cluster in ingress_clusters(&old) {
                        self.ingresses_by_cluster.remove(&cluster, name);
                        self.changes.clusters.insert(cluster);
                    }
                    self.changes.ingresses.insert(name.clone());
                }
            }
        }
    }

    /// A leaf in another state may be waited for by the hosts of its Secrets; the same state with another staple
    /// concerns nobody but the leaf itself.
    fn put_staple(&mut self, status: Arc<OcspStatus>) {
        let leaf = status.fingerprint;
        let before = self.staples.insert(leaf, status.clone());
        if before.as_ref() == Some(&status) {
            return;
        }
        self.changes.staples.insert(leaf);
        if before.is_none_or(|before| before.state != status.state) {
            let secrets: Vec<_> = self.secrets_by_leaf.get(&leaf).cloned().collect();
            secrets.iter().for_each(|secret| self.touch_secret(secret));
        }
    }

    fn forget_addresses(&mut self, service: &ObjectName) {
        let Some(old) = self.services.get(service) else { return };
        for address in &old.addresses {
            self.services_by_address.remove(address, service);
            self.changes.services.insert(*address);
        }
    }

    fn touch_service(&mut self, service: &ObjectName) {
        let clusters = self.ingresses_by_cluster.range(ClusterKey::first_of(service));
        self.changes.clusters.extend(clusters.take_while(|key| key.service == *service).cloned());
    }

    fn touch_secret(&mut self, secret: &ObjectName) {
        let ingresses = self.ingresses_by_secret.get(secret).filter_map(|name| self.ingresses.get(name));
        for ingress in ingresses {
            self.changes.certificates.extend(ingress_hosts(ingress));
            self.changes.certificates.extend(www_partners(ingress));
        }
        let pem_hosts = self.secrets.get(secret).map(|secret| pem_hosts(secret));
        self.changes.certificates.extend(pem_hosts.into_iter().flatten());
        self.changes.secrets.insert(secret.clone());
    }
}

/// Whether the roots or the revocation lists of the mesh may be in it.
fn is_about_trust(map: &ConfigMap) -> bool {
    [ROOT_CERTIFICATES, REVOCATION_LISTS].iter().any(|key| map.data.contains_key(*key))
}
