use std::sync::Arc;

use super::document::{self, reach};
use super::{Findings, Kind, Metadata, Node, Object, ObjectName, is_label, quoted};
use crate::diagnostics::{Diagnostic, ObjectRef, Severity};
use crate::snapshot::policies::Authorization;

/// An `istio.security.Authorization` document: a policy that somebody else compiled, as `portcullis policy compile`
/// prints it. Only manifests of the gateway's own folder may be one; no API server has the kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyPolicy {
    /// The name alone; a document has nothing else of it.
    pub metadata: Metadata,
    pub policy: Arc<Authorization>,
    /// It could not be read and denies everything to those whom it is for, until it is repaired.
    pub refused: bool,
}

impl ReadyPolicy {
    /// Whether `node` is meant to be such a document: it is of no other kind, and has at the top what only these have.
    pub fn is_meant(node: &Node<'_>) -> bool {
        let kind = match node.get("kind") {
            Some(kind) => *kind == Node::String("Authorization".into()),
            None => ["name", "scope", "groups"].iter().any(|field| node.get(field).is_some()),
        };
        kind && node.get("apiVersion").is_none()
    }

    /// Reads one. `None` where it has no name to go by; one whose scope cannot be told is an
    /// [`Object::UnreadablePolicy`].
    pub fn decode(node: &Node<'_>, findings: &mut Findings) -> Option<Object> {
        let name = match name_of(node) {
            Ok(name) => name,
            Err((field, message)) => {
                findings.extend(vec![Diagnostic {
                    severity: Severity::Error,
                    file: None,
                    object: None,
                    field: field.into(),
                    reason: "InvalidName",
                    message,
                }]);
                return None;
            }
        };
        let mut value = node.to_json();
        if let Some(map) = value.as_object_mut() {
            ["kind", "@type"].into_iter().for_each(|field| drop(map.remove(field)));
        }
        let metadata = Metadata {
            name: name.clone(),
            created: None,
            labels: Default::default(),
            annotations: Default::default(),
        };
        let error = match document::from_value(&value) {
            Ok(policy) => {
                let policy = Arc::new(Authorization { name, ..policy });
                return Some(Object::ReadyPolicy(Self { metadata, policy, refused: false }));
            }
            Err(error) => error,
        };
        let report = |field: String, reason, message| {
            Diagnostic::new(
                Severity::Error,
                ObjectRef::new(Kind::Authorization, &name),
                field,
                reason,
                message,
            )
        };
        let mut found = vec![report(error.field, "InvalidAuthorization", error.problem)];
        let object = match reach(&value) {
            Some((scope, dry_run)) => {
                let policy = Arc::new(Authorization::closed(name.clone(), scope, dry_run));
                Object::ReadyPolicy(Self { metadata, policy, refused: true })
            }
            None => {
                let message = "whom this is for cannot be read, so it is left out".to_owned();
                found.push(report("scope".into(), "LeftOut", message));
                Object::UnreadablePolicy(Kind::Authorization, metadata)
            }
        };
        findings.extend(found);
        Some(object)
    }
}

/// The name of a document, or the field that is wrong with it and why. The namespace is `default` where it has none, as
/// in other manifests.
fn name_of(node: &Node<'_>) -> Result<ObjectName, (&'static str, String)> {
    let name = node.get_str("name").unwrap_or_default();
    if !is_name(name) {
        return Err((
            "name",
            format!("the Authorization needs a name like those of Kubernetes, not {}", quoted(name)),
        ));
    }
    let namespace = match node.get("namespace") {
        None => "",
        Some(Node::String(text)) => text,
        Some(other) => other.shape(),
    };
    match namespace {
        "" => Ok(ObjectName::new("default", name)),
        label if is_label(label) => Ok(ObjectName::new(label, name)),
        other => Err(("namespace", format!("{} is not an RFC 1123 label", quoted(other)))),
    }
}

/// Whether a policy can be called so: as objects can, or with the underscores of those that objects convert to.
pub fn is_name(name: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
    (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(known)
}

/// That of an object after the longest prefix of what it converts to.
const LONGEST_NAME: usize = 300;
