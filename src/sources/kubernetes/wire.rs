//! What the API server sends, as far as it is read: pages of a list, lines of a watch, and refusals. Objects in
//! them stay [`Node`]s that borrow from the text, for the decoders of `store::objects`.

use serde::Deserialize;

use crate::api_server::Status;
use crate::sources::{Address, IngressStatus, POLICY_CONDITION, PolicyCondition, PolicyStatus};
use crate::store::objects::{Node, ObjectName};

/// One page of a list.
#[derive(Deserialize)]
pub(super) struct Page<'a> {
    pub metadata: PageMetadata,
    /// Null where a server has none of the kind.
    #[serde(borrow, default)]
    pub items: Option<Vec<Node<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageMetadata {
    #[serde(default)]
    pub resource_version: String,
    /// Asks for the next page; empty on the last one.
    #[serde(default, rename = "continue")]
    pub next: String,
}

/// One line of a watch.
#[derive(Deserialize)]
pub(super) struct Line<'a> {
    #[serde(rename = "type", borrow)]
    pub kind: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    pub object: Node<'a>,
}

/// The Status that a watch sends as the object of its last line.
pub(super) fn status_of(object: &Node<'_>) -> Status {
    let code = match object.get("code") {
        Some(Node::Integer(code)) => u16::try_from(*code).unwrap_or_default(),
        _ => 0,
    };
    Status { code, message: object.get_str("message").unwrap_or_default().to_owned() }
}

/// `metadata.resourceVersion` of an object.
pub(super) fn version_of<'n>(object: &'n Node<'_>) -> &'n str {
    object.get("metadata").and_then(|metadata| metadata.get_str("resourceVersion")).unwrap_or_default()
}

/// What is published for an Ingress at present.
pub(super) fn ingress_status(ingress: ObjectName, object: &Node<'_>) -> IngressStatus {
    let uid = object.get("metadata").and_then(|metadata| metadata.get_str("uid")).unwrap_or_default();
    let points = object.get("status").and_then(|status| status.get("loadBalancer")?.get("ingress"));
    let points = match points {
        Some(Node::List(points)) => points.as_slice(),
        _ => &[],
    };
    let address = |point: &Node<'_>| {
        let ip = point.get_str("ip").map(|ip| Address::Ip(ip.to_owned()));
        ip.or_else(|| point.get_str("hostname").map(|name| Address::Hostname(name.to_owned())))
    };
    IngressStatus { ingress, uid: uid.into(), addresses: points.iter().filter_map(address).collect() }
}

/// What the status of an AuthorizationPolicy says at present.
pub(super) fn policy_status(
    policy: ObjectName,
    api_version: &'static str,
    object: &Node<'_>,
) -> PolicyStatus {
    let generation = object.get("metadata").and_then(|metadata| integer(metadata, "generation"));
    let conditions = match object.get("status").and_then(|status| status.get("conditions")) {
        Some(Node::List(conditions)) => conditions.as_slice(),
        _ => &[],
    };
    let ours = conditions.iter().find(|condition| condition.get_str("type") == Some(POLICY_CONDITION));
    let condition = ours.map(|condition| {
        let text = |key| condition.get_str(key).unwrap_or_default().to_owned();
        PolicyCondition {
            accepted: condition.get_str("status") == Some("True"),
            reason: text("reason"),
            message: text("message"),
            observed_generation: integer(condition, "observedGeneration").unwrap_or_default(),
        }
    });
    PolicyStatus { policy, api_version, generation: generation.unwrap_or_default(), condition }
}

fn integer(object: &Node<'_>, key: &str) -> Option<i64> {
    match object.get(key) {
        Some(Node::Integer(number)) => Some(*number),
        _ => None,
    }
}
