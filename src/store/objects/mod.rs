//! Small types of our own for the Kubernetes objects that Portcullis reads, one file per kind.
//!
//! They keep what `compile` needs and nothing else: 10,000 Secrets must not cost what full API types cost.
//! Decoding is lenient: a wrong field is a diagnostic, the rest of the object stays usable.

mod authorization_policy;
mod config_map;
pub mod document;
mod endpoint_slice;
mod field;
mod ingress;
mod ingress_class;
mod kinds;
mod metadata;
mod namespace;
mod node;
mod peer_authentication;
mod pod;
mod policy_reader;
mod ready_policy;
mod secret;
mod service;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

pub use crate::names::object::{ObjectName, ServicePortRef};
pub use authorization_policy::{AuthorizationPolicy, Clause, ClauseValues, PolicyAction, PolicyRule, Term};
pub use config_map::ConfigMap;
pub use endpoint_slice::{Endpoint, EndpointPort, EndpointSlice};
pub use field::{Field, Findings, quoted};
pub use ingress::{Backend, Ingress, IngressPath, IngressRule, IngressTls, PathType, TlsHost, TlsSecret};
pub use ingress_class::IngressClass;
pub use kinds::{Decoded, Unknown};
pub use metadata::{is_label, is_subdomain};
pub use namespace::Namespace;
pub use node::Node;
pub use peer_authentication::{MtlsMode, PeerAuthentication};
pub use pod::Pod;
pub use ready_policy::ReadyPolicy;
pub use secret::{Authorities, PairFields, Secret, SecretOrigin, TICKET_KEYS_TYPE, UserLists};
pub use service::{Service, ServiceKind, ServicePort};

/// The kinds that Portcullis reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Kind {
    /// A [`ReadyPolicy`].
    Authorization,
    AuthorizationPolicy,
    ConfigMap,
    EndpointSlice,
    Ingress,
    IngressClass,
    Namespace,
    PeerAuthentication,
    Pod,
    Secret,
    Service,
}

impl Kind {
    /// Its name, as in `kind:`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Authorization => "Authorization",
            Self::AuthorizationPolicy => "AuthorizationPolicy",
            Self::ConfigMap => "ConfigMap",
            Self::EndpointSlice => "EndpointSlice",
            Self::Ingress => "Ingress",
            Self::IngressClass => "IngressClass",
            Self::Namespace => "Namespace",
            Self::PeerAuthentication => "PeerAuthentication",
            Self::Pod => "Pod",
            Self::Secret => "Secret",
            Self::Service => "Service",
        }
    }

    /// The versions that are read, of which the first is preferred. None where no API has the kind.
    pub fn api_versions(self) -> &'static [&'static str] {
        match self {
            Self::Authorization => &[],
            // With the same fields.
            Self::AuthorizationPolicy | Self::PeerAuthentication => {
                &["security.istio.io/v1", "security.istio.io/v1beta1"]
            }
            Self::ConfigMap | Self::Namespace | Self::Pod | Self::Secret | Self::Service => &["v1"],
            Self::EndpointSlice => &["discovery.k8s.io/v1"],
            Self::Ingress | Self::IngressClass => &["networking.k8s.io/v1"],
        }
    }

    /// Whether objects of this kind have no namespace.
    pub fn is_cluster_scoped(self) -> bool {
        matches!(self, Self::IngressClass | Self::Namespace)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What every object carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    pub name: ObjectName,
    /// `metadata.creationTimestamp` in seconds since the Unix epoch; `None` where a manifest has none, which
    /// sorts as younger than any that has one.
    pub created: Option<i64>,
    pub labels: BTreeMap<String, String>,
    /// Empty for Secrets.
    pub annotations: BTreeMap<String, String>,
}

impl Metadata {
    /// The order in which objects win conflicts: oldest first, then namespace and name.
    pub fn age_order(&self) -> (i64, &str, &str) {
        (self.created.unwrap_or(i64::MAX), &self.name.namespace, &self.name.name)
    }
}

/// An object of any kind, as sources hand it to the store.
#[derive(Clone, Debug)]
pub enum Object {
    AuthorizationPolicy(AuthorizationPolicy),
    ConfigMap(ConfigMap),
    EndpointSlice(EndpointSlice),
    Ingress(Ingress),
    IngressClass(IngressClass),
    Namespace(Namespace),
    PeerAuthentication(PeerAuthentication),
    Pod(Pod),
    ReadyPolicy(ReadyPolicy),
    Secret(Secret),
    Service(Service),
    /// A policy whose selector or scope cannot be read, so that nobody knows whom it is for.
    UnreadablePolicy(Kind, Metadata),
}

impl Object {
    pub fn kind(&self) -> Kind {
        match self {
            Self::AuthorizationPolicy(_) => Kind::AuthorizationPolicy,
            Self::ConfigMap(_) => Kind::ConfigMap,
            Self::EndpointSlice(_) => Kind::EndpointSlice,
            Self::Ingress(_) => Kind::Ingress,
            Self::IngressClass(_) => Kind::IngressClass,
            Self::Namespace(_) => Kind::Namespace,
            Self::PeerAuthentication(_) => Kind::PeerAuthentication,
            Self::Pod(_) => Kind::Pod,
            Self::ReadyPolicy(_) => Kind::Authorization,
            Self::Secret(_) => Kind::Secret,
            Self::Service(_) => Kind::Service,
            Self::UnreadablePolicy(kind, _) => *kind,
        }
    }

    pub fn metadata(&self) -> &Metadata {
        match self {
            Self::AuthorizationPolicy(o) => &o.metadata,
            Self::ConfigMap(o) => &o.metadata,
            Self::EndpointSlice(o) => &o.metadata,
            Self::Ingress(o) => &o.metadata,
            Self::IngressClass(o) => &o.metadata,
            Self::Namespace(o) => &o.metadata,
            Self::PeerAuthentication(o) => &o.metadata,
            Self::Pod(o) => &o.metadata,
            Self::ReadyPolicy(o) => &o.metadata,
            Self::Secret(o) => &o.metadata,
            Self::Service(o) => &o.metadata,
            Self::UnreadablePolicy(_, metadata) => metadata,
        }
    }
}
