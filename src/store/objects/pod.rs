use std::net::IpAddr;

use super::field::Short;
use super::{Field, Findings, Kind, Metadata, Node, ObjectName, is_label, ready_policy};
use crate::diagnostics::{Diagnostic, ObjectRef, Severity};

/// The annotation by which a pod lists ready policies.
const LISTED_POLICIES: &str = "portcullis.dev/authorization-policies";

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
    /// Policies that it lists by annotation, as [`read_listed`](Self::read_listed) has it.
    pub listed: Vec<ObjectName>,
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
        Some(Self { metadata, addresses, service_account, host_network, hbone, listed: Vec::new() })
    }

    /// Reads which policies the pod lists. For manifests that the operator of the gateway writes: in a cluster,
    /// whoever may annotate a pod would choose its policies. What is no key is reported and stays as one that no
    /// policy has, for it may have been meant to close something.
    pub fn read_listed(&mut self, pod: &Node<'_>, findings: &mut Findings) {
        let annotations = pod.get("metadata").and_then(|metadata| metadata.get("annotations"));
        let Some(value) = annotations.and_then(|annotations| annotations.get(LISTED_POLICIES)) else {
            return;
        };
        let mut faults = Vec::new();
        let entries = match value {
            Node::String(text) => text.split(',').map(str::trim).filter(|key| !key.is_empty()).collect(),
            other => vec![other.shape()],
        };
        for entry in entries {
            let key = entry
                .split_once('/')
                .filter(|(namespace, name)| is_label(namespace) && ready_policy::is_name(name));
            let listed = match key {
                Some((namespace, name)) => ObjectName::new(namespace, name),
                None => {
                    let message = format!(
                        "{} is not of the form NAMESPACE/NAME, and refuses everything",
                        super::quoted(entry)
                    );
                    faults.push(self.fault_of_list("InvalidPolicyKey", message));
                    ObjectName::new("", Short(entry).to_string())
                }
            };
            if !self.listed.contains(&listed) {
                self.listed.push(listed);
            }
        }
        findings.extend(faults);
    }

    /// A finding about the list of policies.
    pub fn fault_of_list(&self, reason: &'static str, message: String) -> Diagnostic {
        let field = format!("metadata.annotations[{LISTED_POLICIES}]");
        let object = ObjectRef::new(Kind::Pod, &self.metadata.name);
        Diagnostic::new(Severity::Error, object, field, reason, message)
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
