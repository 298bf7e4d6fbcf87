//! The pods of this gateway: which nodes they run on, and whether others are left when one ends.
//!
//! Which pods those are follows from the labels of our own. Where that is not known, nothing is asked.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams};
use kube::{Client, Error};

use crate::store::objects::ObjectName;

/// Labels that tell the pods of one workload, or of one of its versions, apart.
const OF_ONE_POD: [&str; 5] = [
    "apps.kubernetes.io/pod-index",
    "controller-revision-hash",
    "pod-template-generation",
    "pod-template-hash",
    "statefulset.kubernetes.io/pod-name",
];

/// Where to look for our pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Replicas {
    /// Our own pod; `None` where the environment does not say.
    own: Option<ObjectName>,
}

impl Replicas {
    pub fn of(own: Option<ObjectName>) -> Self {
        Self { own }
    }

    /// How many pods of ours are there beside this one and are not on their way out.
    pub async fn others(&self, client: &Client) -> Result<usize, Error> {
        let Some(own) = &self.own else { return Ok(0) };
        let pods = self.pods(client).await?;
        let is_other = |pod: &&Pod| {
            pod.metadata.name.as_deref() != Some(&*own.name) && pod.metadata.deletion_timestamp.is_none()
        };
        Ok(pods.iter().filter(is_other).count())
    }

    /// An address of each node that our pods run on.
    pub async fn node_addresses(&self, client: &Client, internal: bool) -> Result<BTreeSet<String>, Error> {
        let pods = self.pods(client).await?;
        let names: BTreeSet<_> = pods.iter().filter_map(|pod| pod.spec.as_ref()?.node_name.clone()).collect();
        let nodes: Api<Node> = Api::all(client.clone());
        let mut addresses = BTreeSet::new();
        for name in names {
            addresses.extend(address_of(&nodes.get(&name).await?, internal));
        }
        Ok(addresses)
    }

    /// Our pods that run; without our own there are none.
    async fn pods(&self, client: &Client) -> Result<Vec<Pod>, Error> {
        let Some(own) = &self.own else { return Ok(Vec::new()) };
        let pods: Api<Pod> = Api::namespaced(client.clone(), &own.namespace);
        let by_name = ListParams::default().fields(&format!("metadata.name={}", own.name));
        let Some(pod) = pods.list(&by_name).await?.items.into_iter().next() else { return Ok(Vec::new()) };
        let selector = selector(&pod.metadata.labels.clone().unwrap_or_default());
        if selector.is_empty() {
            return Ok(vec![pod]);
        }
        let mut found = pods.list(&ListParams::default().labels(&selector)).await?.items;
        found.retain(|pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running"));
        Ok(found)
    }
}

/// What the pods of one workload have in common.
fn selector(labels: &BTreeMap<String, String>) -> String {
    let common = labels.iter().filter(|(key, _)| !OF_ONE_POD.contains(&key.as_str()));
    common.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

/// The external address of a node; its internal one where that is asked for, or all there is.
fn address_of(node: &Node, internal: bool) -> Option<String> {
    let addresses = node.status.as_ref()?.addresses.as_deref().unwrap_or_default();
    let of = |kind: &str| {
        let mut found =
            addresses.iter().filter(|address| address.type_ == kind && !address.address.is_empty());
        found.next().map(|address| address.address.clone())
    };
    of("ExternalIP").filter(|_| !internal).or_else(|| of("InternalIP"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn address(addresses: serde_json::Value, internal: bool) -> Option<String> {
        let node: Node = serde_json::from_value(json!({"status": {"addresses": addresses}})).unwrap();
        address_of(&node, internal)
    }

    #[test]
    fn the_external_address_is_published_unless_there_is_none_or_the_internal_is_wanted() {
        let both = json!([
            {"type": "Hostname", "address": "node-1"},
            {"type": "InternalIP", "address": "10.0.0.1"},
            {"type": "ExternalIP", "address": "203.0.113.1"},
        ]);
        assert_eq!(address(both.clone(), false).as_deref(), Some("203.0.113.1"));
        assert_eq!(address(both, true).as_deref(), Some("10.0.0.1"));
        let internal = json!([{"type": "InternalIP", "address": "10.0.0.1"}]);
        assert_eq!(address(internal, false).as_deref(), Some("10.0.0.1"));
        let external = json!([{"type": "ExternalIP", "address": "203.0.113.1"}]);
        assert_eq!(address(external, true), None, "an internal one was asked for");
        assert_eq!(address(json!([]), false), None);
    }

    #[test]
    fn labels_of_single_pods_and_versions_are_left_out() {
        let labels = [("app", "portcullis"), ("pod-template-hash", "5d4f"), ("tier", "edge")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(selector(&BTreeMap::from(labels)), "app=portcullis,tier=edge");
    }
}
