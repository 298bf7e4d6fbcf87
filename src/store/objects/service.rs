use super::{Metadata, ServicePortRef};

/// `v1 Service`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    pub metadata: Metadata,
    pub kind: ServiceKind,
    pub ports: Vec<ServicePort>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceKind {
    /// Any type that has EndpointSlices; headless ones too.
    Cluster,
    /// `type: ExternalName` with the name it points at.
    ExternalName(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    pub name: Option<String>,
    pub port: u16,
    /// `targetPort`, where given.
    pub target: Option<ServicePortRef>,
    /// `appProtocol`, such as `kubernetes.io/h2c`.
    pub app_protocol: Option<String>,
}
