//! All objects, by kind, namespace and name, with the indexes that `compile` needs: the only mutable state of
//! the control plane. Sources send [`Event`]s; each records in [`Changes`] which hosts and backends it
//! touches, so that the next compile costs what changed and not what exists.

mod changes;
mod index;
pub mod objects;
mod policies;
mod references;
mod table;
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
    ObjectName, PairFields, PeerAuthentication, Pod, ReadyPolicy, Secret, Service,
};
pub use policies::LastGood;
pub use references::{
    SecretNameError, ingress_hosts, ingress_secrets, own_secret, server_aliases, www_partners,
};
use references::{client_ca_secrets, ingress_clusters, pem_hosts, service_of, staplable_leaf, user_secrets};
use table::{Entry, Table};

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
    config_maps: Table<ConfigMap>,
    endpoint_slices: Table<EndpointSlice>,
    ingresses: Table<Ingress>,
    ingress_classes: Table<IngressClass>,
    namespaces: Table<Namespace>,
    peer_authentications: LastGood<PeerAuthentication>,
    pods: Table<Pod>,
    ready_policies: LastGood<ReadyPolicy>,
    secrets: Table<Secret>,
    services: Table<Service>,
    staples: HashMap<[u8; 32], Arc<OcspStatus>>,

    ingresses_by_host: Index<HostPattern>,
    /// Under the hosts that they may want to be sent to their own.
    ingresses_by_www_partner: Index<HostPattern>,
    /// Under the names that they want their hosts to have too.
    ingresses_by_alias: Index<HostPattern>,
    /// Those among them, under their hosts.
    aliasing_by_host: Index<HostPattern>,
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
        self.set_ingress(&name, before);
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

    /// The field of a Secret that its certificate stands in; of one that has gone, that of most.
    pub fn certificate_field(&self, secret: &ObjectName) -> &'static str {
        self.secret(secret).map_or_else(PairFields::default, |secret| secret.fields).certificate
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

    /// Ingresses that may want `host` to be another name of one of theirs. Oldest first.
    pub fn ingresses_of_alias(&self, host: &HostPattern) -> Vec<&Arc<Ingress>> {
        self.oldest_first(self.ingresses_by_alias.get(host))
    }

    /// Ingresses with rules for `host` that may want it to have other names. Oldest first.
    pub fn ingresses_aliasing(&self, host: &HostPattern) -> Vec<&Arc<Ingress>> {
        self.oldest_first(self.aliasing_by_host.get(host))
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
        let of_ingresses = of_ingresses.chain(self.ingresses_by_alias.keys());
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
            // Most of what happens to a pod is of no interest here.
            Object::Pod(new) if self.pods.get(&name).is_some_and(|old| **old == new) => {}
            Object::Pod(new) => self.set_pod(&name, Some(new.into())),
            Object::ConfigMap(new) => self.set_config_map(&name, Some(new.into())),
            Object::Namespace(new) => self.set_namespace(&name, Some(new.into())),
            Object::IngressClass(new) => self.set_ingress_class(&name, Some(new.into())),
            Object::Service(new) => self.set_service(&name, Some(new.into())),
            Object::EndpointSlice(new) => self.set_endpoint_slice(&name, Some(new.into())),
            Object::Secret(new) => self.set_secret(&name, Some(new.into())),
            Object::Ingress(new) => self.set_ingress(&name, Some(new.into())),
        }
    }

    fn remove(&mut self, kind: Kind, name: &ObjectName) {
        match kind {
            Kind::Authorization => self.changes.policies |= self.ready_policies.remove(name),
            Kind::AuthorizationPolicy => self.changes.policies |= self.authorization_policies.remove(name),
            Kind::PeerAuthentication => self.changes.policies |= self.peer_authentications.remove(name),
            Kind::Pod => self.set_pod(name, None),
            Kind::ConfigMap => self.set_config_map(name, None),
            Kind::Namespace => self.set_namespace(name, None),
            Kind::IngressClass => self.set_ingress_class(name, None),
            Kind::Service => self.set_service(name, None),
            Kind::EndpointSlice => self.set_endpoint_slice(name, None),
            Kind::Secret => self.set_secret(name, None),
            Kind::Ingress => self.set_ingress(name, None),
        }
    }
}

/// One function for each kind, by which an object takes its place and leaves it: what it touches and where it is filed
/// is said once.
impl Store {
    fn set_pod(&mut self, name: &ObjectName, new: Option<Arc<Pod>>) {
        for (pod, entry) in self.pods.replace(name, new) {
            for address in &pod.addresses {
                self.pods_by_address.file(*address, name, entry);
                self.changes.pods.insert(*address);
            }
            if !pod.listed.is_empty() {
                self.changes.policies = true;
                match entry {
                    Entry::In => self.listing_pods.insert(name.clone()),
                    Entry::Out => self.listing_pods.remove(name),
                };
            }
        }
    }

    fn set_config_map(&mut self, name: &ObjectName, new: Option<Arc<ConfigMap>>) {
        for (map, _) in self.config_maps.replace(name, new) {
            self.changes.trust |= is_about_trust(&map);
        }
    }

    fn set_namespace(&mut self, name: &ObjectName, new: Option<Arc<Namespace>>) {
        // Nothing is compiled of them.
        self.namespaces.replace(name, new).for_each(drop);
    }

    fn set_ingress_class(&mut self, name: &ObjectName, new: Option<Arc<IngressClass>>) {
        self.changes.all_hosts |= self.ingress_classes.replace(name, new).next().is_some();
    }

    fn set_service(&mut self, name: &ObjectName, new: Option<Arc<Service>>) {
        for (service, entry) in self.services.replace(name, new) {
            for address in &service.addresses {
                self.services_by_address.file(*address, name, entry);
                self.changes.services.insert(*address);
            }
            self.touch_service(name);
        }
    }

    fn set_endpoint_slice(&mut self, name: &ObjectName, new: Option<Arc<EndpointSlice>>) {
        for (slice, entry) in self.endpoint_slices.replace(name, new) {
            if let Some(service) = service_of(&slice) {
                self.touch_service(&service);
                self.slices_by_service.file(service, name, entry);
            }
        }
    }

    fn set_secret(&mut self, name: &ObjectName, new: Option<Arc<Secret>>) {
        for (secret, entry) in self.secrets.replace(name, new) {
            for host in pem_hosts(&secret) {
                self.changes.certificates.insert(host.clone());
                self.pem_pairs_by_name.file(host, name, entry);
            }
            if let Some(leaf) = staplable_leaf(&secret) {
                self.secrets_by_leaf.file(leaf, name, entry);
            }
            self.touch_secret(name);
        }
    }

    fn set_ingress(&mut self, name: &ObjectName, new: Option<Arc<Ingress>>) {
        for (ingress, entry) in self.ingresses.replace(name, new) {
            let aliases = server_aliases(&ingress);
            for host in ingress_hosts(&ingress) {
                let names = aliases_of(&self.aliasing_by_host, &self.ingresses, &host);
                self.changes.hosts.extend(names);
                if !aliases.is_empty() {
                    self.aliasing_by_host.file(host.clone(), name, entry);
                }
                self.changes.hosts.insert(host.clone());
                self.ingresses_by_host.file(host, name, entry);
            }
            for host in aliases {
                self.changes.hosts.insert(host.clone());
                self.ingresses_by_alias.file(host, name, entry);
            }
            for host in www_partners(&ingress) {
                self.changes.hosts.insert(host.clone());
                self.ingresses_by_www_partner.file(host, name, entry);
            }
            for secret in ingress_secrets(&ingress) {
                self.ingresses_by_secret.file(secret, name, entry);
            }
            for cluster in ingress_clusters(&ingress) {
                self.changes.clusters.insert(cluster.clone());
                self.ingresses_by_cluster.file(cluster, name, entry);
            }
            self.changes.ingresses.insert(name.clone());
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

    fn touch_service(&mut self, service: &ObjectName) {
        let clusters = self.ingresses_by_cluster.range(ClusterKey::first_of(service));
        self.changes.clusters.extend(clusters.take_while(|key| key.service == *service).cloned());
    }

    fn touch_secret(&mut self, secret: &ObjectName) {
        let ingresses = self.ingresses_by_secret.get(secret).filter_map(|name| self.ingresses.get(name));
        for ingress in ingresses {
            let about_users = user_secrets(ingress).any(|named| named == *secret);
            let about_routes = about_users || client_ca_secrets(ingress).any(|named| named == *secret);
            for host in ingress_hosts(ingress) {
                let names = aliases_of(&self.aliasing_by_host, &self.ingresses, &host).chain([host.clone()]);
                for name in names {
                    if about_routes {
                        self.changes.hosts.insert(name.clone());
                    }
                    self.changes.certificates.insert(name);
                }
            }
            self.changes.certificates.extend(www_partners(ingress));
            if about_users {
                self.changes.ingresses.insert(ingress.metadata.name.clone());
            }
        }
        let pem_hosts = self.secrets.get(secret).map(|secret| pem_hosts(secret));
        self.changes.certificates.extend(pem_hosts.into_iter().flatten());
        self.changes.secrets.insert(secret.clone());
    }
}

/// The names that `host` may have beside its own.
fn aliases_of(
    aliasing: &Index<HostPattern>,
    ingresses: &Table<Ingress>,
    host: &HostPattern,
) -> impl Iterator<Item = HostPattern> {
    aliasing.get(host).filter_map(|name| ingresses.get(name)).flat_map(|ingress| server_aliases(ingress))
}

/// Whether the roots or the revocation lists of the mesh may be in it.
fn is_about_trust(map: &ConfigMap) -> bool {
    [ROOT_CERTIFICATES, REVOCATION_LISTS].iter().any(|key| map.data.contains_key(*key))
}
