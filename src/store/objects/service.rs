use std::net::IpAddr;

use super::field::quoted;
use super::ingress::decode_port_ref;
use super::{Field, Findings, Metadata, ServicePortRef};
use crate::names::canonical_host;

/// `v1 Service`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    pub metadata: Metadata,
    pub kind: ServiceKind,
    /// `spec.clusterIPs`, canonical: where pods reach it. Empty for headless ones.
    pub addresses: Vec<IpAddr>,
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

impl Service {
    /// Reads the object behind `metadata`; a port that cannot be used is left out.
    pub(super) fn decode(metadata: Metadata, object: &Field<'_>, findings: &mut Findings) -> Option<Self> {
        let Some(spec) = object.get("spec") else {
            findings.warning(object, "MissingField", "the Service has no spec and so no ports");
            let (kind, addresses, ports) = (ServiceKind::Cluster, Vec::new(), Vec::new());
            return Some(Self { metadata, kind, addresses, ports });
        };
        let kind = match spec.get("type").and_then(|field| field.text(findings)) {
            Some("ExternalName") => ServiceKind::ExternalName(decode_external_name(&spec, findings)?),
            _ => ServiceKind::Cluster,
        };
        let mut ports = Vec::new();
        if let Some(list) = spec.get("ports") {
            for item in list.items(findings) {
                ports.extend(ServicePort::decode(&item, findings));
            }
        }
        Some(Self { metadata, kind, addresses: decode_addresses(&spec, findings), ports })
    }
}

/// The API server writes both fields; in a manifest it may be either. `None`, the text, is a headless Service's.
fn decode_addresses(spec: &Field<'_>, findings: &mut Findings) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = Vec::new();
    let mut read = |field: &Field<'_>, findings: &mut Findings| {
        let address = field.text(findings).and_then(|text| text.parse::<IpAddr>().ok());
        let address = address.map(|address| address.to_canonical());
        addresses.extend(address.filter(|address| !addresses.contains(address)));
    };
    if let Some(field) = spec.get("clusterIP") {
        read(&field, findings);
    }
    if let Some(list) = spec.get("clusterIPs") {
        for item in list.items(findings) {
            read(&item, findings);
        }
    }
    addresses
}

fn decode_external_name(spec: &Field<'_>, findings: &mut Findings) -> Option<String> {
    let Some(field) = spec.get("externalName") else {
        findings.error(spec, "MissingField", "type ExternalName needs spec.externalName");
        return None;
    };
    let name = field.text(findings)?;
    match canonical_host(name) {
        Ok(host) if !name.contains(':') || name.starts_with('[') => Some(host.into_owned()),
        // An IPv6 address without brackets.
        _ if name.parse::<IpAddr>().is_ok() => Some(name.to_owned()),
        _ => {
            let message = format!("{} is neither a host name nor an address", quoted(name));
            findings.error(&field, "InvalidHost", message);
            None
        }
    }
}

impl ServicePort {
    fn decode(item: &Field<'_>, findings: &mut Findings) -> Option<Self> {
        let Some(port) = item.get("port") else {
            findings.error(item, "MissingField", "the port has no number");
            return None;
        };
        if item.get("protocol").and_then(|field| field.text(findings)).is_some_and(|name| name != "TCP") {
            return None;
        }
        let text = |key, findings: &mut Findings| {
            let field = item.get(key)?;
            field.text(findings).filter(|text| !text.is_empty()).map(str::to_owned)
        };
        Some(Self {
            name: text("name", findings),
            port: port.port(findings)?,
            target: item.get("targetPort").and_then(|field| decode_port_ref(&field, findings)),
            app_protocol: text("appProtocol", findings),
        })
    }
}
