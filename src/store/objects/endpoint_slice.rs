use std::net::IpAddr;

use super::field::quoted;
use super::{Field, Findings, Metadata};

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

impl EndpointSlice {
    /// Reads the object behind `metadata`. Addresses of any range are taken; whether a range is allowed is
    /// for `compile` to say, which knows the source.
    pub(super) fn decode(metadata: Metadata, object: &Field<'_>, findings: &mut Findings) -> Option<Self> {
        if let Some(field) = object.get("addressType")
            && !matches!(field.text(findings)?, "IPv4" | "IPv6")
        {
            let message =
                "only IPv4 and IPv6 slices are served; for a name use a Service of type ExternalName";
            findings.error(&field, "UnsupportedAddressType", message);
            return None;
        }
        let service = metadata.labels.get(SERVICE_NAME).cloned();
        if service.is_none() {
            let message = format!("without the label {SERVICE_NAME} the slice belongs to no Service");
            findings.warning(object, "NoService", message);
        }
        let mut ports = Vec::new();
        if let Some(list) = object.get("ports") {
            for item in list.items(findings) {
                ports.extend(EndpointPort::decode(&item, findings));
            }
        }
        let mut endpoints = Vec::new();
        if let Some(list) = object.get("endpoints") {
            for item in list.items(findings) {
                endpoints.extend(Endpoint::decode(&item, findings));
            }
        }
        Some(Self { metadata, service, ports, endpoints })
    }
}

const SERVICE_NAME: &str = "kubernetes.io/service-name";

impl EndpointPort {
    /// Reads one port; `None` for protocols that are not served.
    fn decode(item: &Field<'_>, findings: &mut Findings) -> Option<Self> {
        if item.get("protocol").and_then(|field| field.text(findings)).is_some_and(|name| name != "TCP") {
            return None;
        }
        let text = |key, findings: &mut Findings| {
            let field = item.get(key)?;
            field.text(findings).filter(|text| !text.is_empty()).map(str::to_owned)
        };
        let port = match item.get("port") {
            Some(field) => Some(field.port(findings)?),
            None => None,
        };
        Some(Self { name: text("name", findings), port, app_protocol: text("appProtocol", findings) })
    }
}

impl Endpoint {
    fn decode(item: &Field<'_>, findings: &mut Findings) -> Option<Self> {
        let mut addresses = Vec::new();
        if let Some(list) = item.get("addresses") {
            for field in list.items(findings) {
                let Some(text) = field.text(findings) else { continue };
                match text.parse() {
                    Ok(address) => addresses.push(address),
                    Err(_) => {
                        let message = format!("{} is not an IP address", quoted(text));
                        findings.error(&field, "InvalidAddress", message);
                    }
                }
            }
        }
        if addresses.is_empty() {
            findings.warning(item, "NoAddress", "the endpoint has no usable address and is left out");
            return None;
        }
        let conditions = item.get("conditions");
        let condition = |key, findings: &mut Findings| conditions.as_ref()?.get(key)?.bool(findings);
        let ready = condition("ready", findings).unwrap_or(true);
        Some(Self {
            addresses,
            ready,
            serving: condition("serving", findings).unwrap_or(ready),
            terminating: condition("terminating", findings).unwrap_or(false),
        })
    }
}
