use super::Metadata;

/// `networking.k8s.io/v1 Ingress`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ingress {
    pub metadata: Metadata,
    /// `spec.ingressClassName`; the legacy annotation is read from the metadata.
    pub class: Option<String>,
    pub default_backend: Option<Backend>,
    pub tls: Vec<IngressTls>,
    pub rules: Vec<IngressRule>,
}

/// One entry of `spec.tls`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngressTls {
    /// As written; `compile` makes them canonical.
    pub hosts: Vec<String>,
    pub secret: Option<String>,
}

/// One entry of `spec.rules`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngressRule {
    /// As written; `None` or empty means every host.
    pub host: Option<String>,
    pub paths: Vec<IngressPath>,
}

/// One entry of `spec.rules[].http.paths`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngressPath {
    /// As written; empty counts as `/`.
    pub path: String,
    pub kind: PathType,
    pub backend: Backend,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PathType {
    Exact,
    Prefix,
    ImplementationSpecific,
}

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    Service {
        name: String,
        port: ServicePortRef,
    },
    /// A `resource` backend, which Portcullis does not serve.
    Resource,
}

/// A Service port by number or by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServicePortRef {
    Number(u16),
    Name(String),
}
