//! Which function decodes which kind. A new kind is a file in this folder with its type and decoder, a line here, a
//! variant of [`Kind`] and one of [`Object`] with their arms, a table in the store and, where it is to be followed in
//! a cluster, a line in `sources::kubernetes`.

use serde_json::Value;

use super::*;
use crate::diagnostics::Diagnostic;

type Decode = fn(Metadata, &Field<'_>, &mut Findings) -> Option<Object>;

const DECODERS: &[(Kind, Decode)] = &[
    (Kind::ConfigMap, |m, o, f| ConfigMap::decode(m, o, f).map(Object::ConfigMap)),
    (Kind::Namespace, |m, o, f| Namespace::decode(m, o, f).map(Object::Namespace)),
    (Kind::Pod, |m, o, f| Pod::decode(m, o, f).map(Object::Pod)),
    (Kind::Secret, |m, o, f| Secret::decode(m, o, f).map(Object::Secret)),
    (Kind::Service, |m, o, f| Service::decode(m, o, f).map(Object::Service)),
    (Kind::EndpointSlice, |m, o, f| EndpointSlice::decode(m, o, f).map(Object::EndpointSlice)),
    (Kind::Ingress, |m, o, f| Ingress::decode(m, o, f).map(Object::Ingress)),
    (Kind::IngressClass, |m, o, f| IngressClass::decode(m, o, f).map(Object::IngressClass)),
    (Kind::AuthorizationPolicy, |m, o, f| {
        Some(policy(Kind::AuthorizationPolicy, m, o, f, |value, namespace, found| {
            AuthorizationPolicy::decode(value, namespace, found).map(Object::AuthorizationPolicy)
        }))
    }),
    (Kind::PeerAuthentication, |m, o, f| {
        Some(policy(Kind::PeerAuthentication, m, o, f, |value, namespace, found| {
            PeerAuthentication::decode(value, namespace, found).map(Object::PeerAuthentication)
        }))
    }),
];

/// Policies are read strictly, by a reader of their own. One that is of no use still is an object: what was
/// known of it before must not be taken for deleted.
fn policy(
    kind: Kind,
    metadata: Metadata,
    object: &Field<'_>,
    findings: &mut Findings,
    decode: fn(&Value, &str, &mut Vec<Diagnostic>) -> Option<Object>,
) -> Object {
    let mut found = Vec::new();
    let decoded = decode(&object.to_json(), &metadata.name.namespace, &mut found);
    // The metadata was read, and reported, before.
    found.retain(|finding| !finding.field.starts_with("metadata.creationTimestamp"));
    findings.extend(found);
    decoded.unwrap_or(Object::UnreadablePolicy(kind, metadata))
}

/// What came of one document.
pub enum Decoded {
    Object(Object),
    /// Nothing of it can be used; the findings say why. It is there all the same, under this name where that can
    /// be told: whoever has an earlier version keeps it.
    Unusable(Kind, Option<ObjectName>),
    Unknown(Unknown),
}

/// A kind that Portcullis does not read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Unknown {
    pub api_version: String,
    pub kind: String,
}

impl Object {
    /// Decodes `node`, an object of the given kind. Findings are about that object; one field that is wrong
    /// does not stop the rest from being used.
    pub fn decode(api_version: &str, kind: &str, node: &Node<'_>, findings: &mut Findings) -> Decoded {
        let root = Field::root(node);
        let Some((kind, decode)) = DECODERS.iter().find(|(known, _)| known.as_str() == kind) else {
            return Decoded::Unknown(Unknown { api_version: api_version.into(), kind: kind.into() });
        };
        let versions = kind.api_versions();
        let known = versions.first().copied().unwrap_or_default();
        if !versions.contains(&api_version) {
            return match group(known) == group(api_version) || *kind == Kind::Ingress {
                true => {
                    // Only the name counts of what is written in a version that is not read.
                    let name = Metadata::decode(*kind, &root, &mut Findings::new()).map(|it| it.name);
                    if let Some(name) = &name {
                        findings.enter(*kind, name);
                    }
                    let message = format!("{kind} is read as {known}, not as {}", quoted(api_version));
                    let field = root.get("apiVersion").unwrap_or(root);
                    findings.error(&field, "UnsupportedVersion", message);
                    unusable(*kind, name, findings)
                }
                // Another API that happens to have a kind of that name, such as Knative's Service.
                false => {
                    Decoded::Unknown(Unknown { api_version: api_version.into(), kind: kind.to_string() })
                }
            };
        }
        let Some(metadata) = Metadata::decode(*kind, &root, findings) else {
            return unusable(*kind, None, findings);
        };
        let name = metadata.name.clone();
        match decode(metadata, &root, findings) {
            Some(object) => {
                findings.leave();
                Decoded::Object(object)
            }
            None => unusable(*kind, Some(name), findings),
        }
    }
}

fn unusable(kind: Kind, name: Option<ObjectName>, findings: &mut Findings) -> Decoded {
    if name.is_some() {
        findings.object_stays();
    }
    findings.leave();
    Decoded::Unusable(kind, name)
}

fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}
