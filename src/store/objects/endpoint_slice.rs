use std::net::IpAddr;

use super::Metadata;

/// `discovery.k8s.io/v1 EndpointSlice`. Belongs to the Service named by its label
/// `kubernetes.io/service-name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSlice {
    pub metadata: Metadata,
    pub service: Option<String>,
    pub ports: Vec<EndpointPort>,
    pub endpoints: Vec<Endpoint>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointPort {
    /// The name of the Service port it belongs to; `None` for the unnamed port of a one-port Service.
    pub name: Option<String>,
    /// `None` where the slice leaves it open, which cannot be connected to.
    pub port: Option<u16>,
    pub app_protocol: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub addresses: Vec<IpAddr>,
    /// `conditions.ready`; unknown counts as ready.
    pub ready: bool,
    /// `conditions.serving`; unknown counts as `ready`.
    pub serving: bool,
    pub terminating: bool,
}
