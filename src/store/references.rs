//! What an object refers to: the hosts, Secrets, backends and Services under which the store's indexes file it. The
//! store asks when an object comes and again when it goes, so an answer depends on the object alone.

use std::collections::BTreeSet;

use super::objects::is_subdomain;
use super::objects::{Backend, EndpointSlice, Ingress, ObjectName, Secret, SecretOrigin, ServicePortRef};
use crate::names::HostPattern;
use crate::names::annotation::{
    AUTH_SECRET, AUTH_TLS_SECRET, Alias, DEFAULT_BACKEND, FROM_TO_WWW_REDIRECT, SERVER_ALIAS, aliases,
};
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

/// What its annotations of this name say, under whichever prefix: that is for `compile` to compare.
fn values_of<'a>(ingress: &'a Ingress, annotation: &'a str) -> impl Iterator<Item = &'a str> {
    let all = ingress.metadata.annotations.iter();
    let named = all.filter(move |(key, _)| key.rsplit_once('/').is_some_and(|(_, name)| name == annotation));
    named.map(|(_, value)| value.as_str())
}

/// The hosts, with or without `www.` in front, that it wants to be sent to its own, where nobody has rules for them.
pub fn www_partners(ingress: &Ingress) -> BTreeSet<HostPattern> {
    if values_of(ingress, FROM_TO_WWW_REDIRECT).next().is_none() {
        return BTreeSet::new();
    }
    let own = ingress_hosts(ingress);
    let partner = |host: &HostPattern| match host {
        HostPattern::Exact(name) => name.with_or_without_www().map(HostPattern::Exact),
        HostPattern::Wildcard(_) | HostPattern::Any => None,
    };
    own.iter().filter_map(partner).filter(|partner| !own.contains(partner)).collect()
}

/// More names that it wants its hosts to have, where nobody has rules for them.
pub fn server_aliases(ingress: &Ingress) -> BTreeSet<HostPattern> {
    let lists = values_of(ingress, SERVER_ALIAS);
    let named = lists.flat_map(aliases).filter_map(|alias| match alias {
        Ok(Alias::Host(host)) => Some(host),
        Ok(Alias::Pattern(_)) | Err(_) => None,
    });
    named.collect()
}

/// The Secrets that it names in `spec.tls`, and those of [`client_ca_secrets`] and [`user_secrets`].
pub fn ingress_secrets(ingress: &Ingress) -> BTreeSet<ObjectName> {
    let secrets = ingress.tls.iter().filter_map(|tls| tls.secret.name());
    let secrets = secrets.map(|secret| ObjectName::new(ingress.metadata.name.namespace.clone(), secret));
    secrets.chain(client_ca_secrets(ingress)).chain(user_secrets(ingress)).collect()
}

/// The Secrets with the authorities of its clients.
pub(super) fn client_ca_secrets(ingress: &Ingress) -> impl Iterator<Item = ObjectName> {
    named_by(ingress, AUTH_TLS_SECRET)
}

/// The Secrets with its users.
pub(super) fn user_secrets(ingress: &Ingress) -> impl Iterator<Item = ObjectName> {
    named_by(ingress, AUTH_SECRET)
}

/// The Secrets that an annotation names.
fn named_by<'a>(ingress: &'a Ingress, annotation: &'a str) -> impl Iterator<Item = ObjectName> {
    values_of(ingress, annotation).filter_map(|value| own_secret(ingress, value).ok())
}

/// Why a text names no Secret that an Ingress may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretNameError {
    #[error("is not the name of a Secret")]
    Malformed,
    #[error("is in another namespace, and only Secrets of the Ingress's own are used")]
    OtherNamespace,
}

/// The Secret that an annotation of an Ingress names, with or without its namespace.
pub fn own_secret(ingress: &Ingress, value: &str) -> Result<ObjectName, SecretNameError> {
    let own = &ingress.metadata.name.namespace;
    let value = value.trim();
    let (namespace, name) = value.split_once('/').unwrap_or((own, value));
    match () {
        () if !is_subdomain(name) => Err(SecretNameError::Malformed),
        () if *namespace != **own => Err(SecretNameError::OtherNamespace),
        () => Ok(ObjectName::new(own.clone(), name)),
    }
}

/// The backends that its paths lead to. Whether by their Service's own address is for `compile` to say.
pub(super) fn ingress_clusters(ingress: &Ingress) -> BTreeSet<ClusterKey> {
    let namespace = &ingress.metadata.name.namespace;
    let fallbacks = values_of(ingress, DEFAULT_BACKEND).map(|service| ClusterKey {
        service: ObjectName::new(namespace.clone(), service.trim()),
        port: ServicePortRef::First,
        by_service: false,
    });
    let paths = ingress.rules.iter().flat_map(|rule| &rule.paths).map(|path| &path.backend);
    paths
        .chain(&ingress.default_backend)
        .filter_map(|backend| match backend {
            Backend::Service { name, port } => Some(ClusterKey {
                service: ObjectName::new(namespace.clone(), name.as_str()),
                port: port.clone(),
                by_service: false,
            }),
            Backend::Resource => None,
        })
        .chain(fallbacks)
        .collect()
}

/// The Service whose endpoints it lists.
pub(super) fn service_of(slice: &EndpointSlice) -> Option<ObjectName> {
    let service = slice.service.as_deref()?;
    Some(ObjectName::new(slice.metadata.name.namespace.clone(), service))
}

/// The fingerprint of its leaf, where that names an OCSP responder.
pub(super) fn staplable_leaf(secret: &Secret) -> Option<[u8; 32]> {
    let pair = secret.pair.as_ref()?.as_ref().ok()?;
    pair.ocsp_responder.as_ref().map(|_| pair.fingerprint)
}

/// The hosts that a PEM pair serves without any Ingress: those of its SANs.
pub(super) fn pem_hosts(secret: &Secret) -> BTreeSet<HostPattern> {
    match (&secret.origin, &secret.pair) {
        (SecretOrigin::PemPair, Some(Ok(pair))) => pair.names.iter().cloned().collect(),
        _ => BTreeSet::new(),
    }
}
