//! What the store's indexes find objects by: the hosts, Secrets, backends and leaves that an object names. Pure functions
//! of one object; called when it comes and, with the same result, when it goes.

use std::collections::BTreeSet;

use super::objects::{Backend, EndpointSlice, Ingress, ObjectName, Secret, SecretOrigin};
use crate::names::HostPattern;
use crate::snapshot::clusters::ClusterKey;

/// The hosts an Ingress has rules for. Those it writes wrongly are reported by `compile`, not indexed.
pub fn ingress_hosts(ingress: &Ingress) -> BTreeSet<HostPattern> {
    let rules = ingress.rules.iter();
    let mut hosts: BTreeSet<_> =
        rules.filter_map(|rule| HostPattern::parse(rule.host.as_deref().unwrap_or("")).ok()).collect();
    if ingress.rules.is_empty() {
        hosts.insert(HostPattern::Any);
    }
    hosts
}

pub(super) fn ingress_secrets(ingress: &Ingress) -> BTreeSet<ObjectName> {
    let secrets = ingress.tls.iter().filter_map(|tls| tls.secret.as_deref());
    secrets.map(|secret| ObjectName::new(ingress.metadata.name.namespace.clone(), secret)).collect()
}

pub(super) fn ingress_clusters(ingress: &Ingress) -> BTreeSet<ClusterKey> {
    let paths = ingress.rules.iter().flat_map(|rule| &rule.paths).map(|path| &path.backend);
    paths
        .chain(&ingress.default_backend)
        .filter_map(|backend| match backend {
            Backend::Service { name, port } => Some(ClusterKey {
                service: ObjectName::new(ingress.metadata.name.namespace.clone(), name.as_str()),
                port: port.clone(),
            }),
            Backend::Resource => None,
        })
        .collect()
}

pub(super) fn service_of(slice: &EndpointSlice) -> Option<ObjectName> {
    let service = slice.service.as_deref()?;
    Some(ObjectName::new(slice.metadata.name.namespace.clone(), service))
}

pub(super) fn staplable_leaf(secret: &Secret) -> Option<[u8; 32]> {
    let pair = secret.pair.as_ref()?.as_ref().ok()?;
    pair.ocsp_responder.as_ref().map(|_| pair.fingerprint)
}

pub(super) fn pem_hosts(secret: &Secret) -> BTreeSet<HostPattern> {
    match (&secret.origin, &secret.pair) {
        (SecretOrigin::PemPair, Some(Ok(pair))) => pair.names.iter().cloned().collect(),
        _ => BTreeSet::new(),
    }
}
