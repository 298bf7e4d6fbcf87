use std::net::IpAddr;

use super::{Field, Findings, Metadata};

/// `v1 Pod`: a workload of the mesh, with the labels that policies select it by and the addresses it is
/// reached at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    pub metadata: Metadata,
    /// `status.podIPs` or, in a manifest, `status.podIP`; canonical, without duplicates. Empty before the pod is
    /// scheduled and when it has ended: its address may be another pod's then.
    pub addresses: Vec<IpAddr>,
    pub service_account: String,
    /// Its address is that of its machine, where other things listen too.
    pub host_network: bool,
    /// A node proxy takes tunnels for it, or it does so itself: the annotation `ambient.istio.io/redirection: enabled` or
    /// the label `networking.istio.io/tunnel: http`.
    pub hbone: bool,
}

impl Pod {
    /// Reads the object behind `metadata`.
    pub(super) fn decode(
        mut metadata: Metadata,
        object: &Field<'_>,
        findings: &mut Findings,
    ) -> Option<Self> {
        let redirected = metadata.annotations.get("ambient.istio.io/redirection").map(String::as_str);
        let tunnel = metadata.labels.get("networking.istio.io/tunnel").map(String::as_str);
        let hbone = redirected == Some("enabled") || tunnel == Some("http");
        // Nobody asks for the others, and in a cluster there are many.
        metadata.annotations.clear();
        let mut addresses = Vec::new();
        if let Some(status) = object.get("status") {
            let phase = status.get("phase");
            let phase = phase.as_ref().and_then(|field| field.text(findings));
            if !matches!(phase, Some("Succeeded" | "Failed")) {
                if let Some(field) = status.get("podIP") {
                    read_address(&field, &mut addresses, findings);
                }
                if let Some(list) = status.get("podIPs") {
                    for item in list.items(findings) {
                        if let Some(field) = item.get("ip") {
                            read_address(&field, &mut addresses, findings);
                        }
                    }
                }
            }
        }
        let spec = object.get("spec");
        let account = spec.as_ref().and_then(|spec| spec.get("serviceAccountName"));
        let account = account.and_then(|field| field.text(findings)).filter(|name| !name.is_empty());
        let host_network = spec.as_ref().and_then(|spec| spec.get("hostNetwork"));
        let host_network = host_network.and_then(|field| field.bool(findings)).unwrap_or(false);
        let service_account = account.unwrap_or("default").into();
        Some(Self { metadata, addresses, service_account, host_network, hbone })
    }
}

fn read_address(field: &Field<'_>, addresses: &mut Vec<IpAddr>, findings: &mut Findings) {
    let Some(text) = field.text(findings) else { return };
    match text.parse::<IpAddr>().map(|address| address.to_canonical()) {
        Ok(address) if !addresses.contains(&address) => addresses.push(address),
        Ok(_) => {}
        Err(_) => {
            let message = format!("{} is not an IP address", super::quoted(text));
            findings.error(field, "InvalidAddress", message);
        }
    }
}
