//! The one table of kinds: `apiVersion`, `kind` and the function that decodes it. A new kind is one file in
//! this folder and one line here.

use super::*;

type Decode = fn(Metadata, &Field<'_>, &mut Findings) -> Option<Object>;

const KINDS: &[(&str, Kind, Decode)] = &[
    ("v1", Kind::ConfigMap, |m, o, f| ConfigMap::decode(m, o, f).map(Object::ConfigMap)),
    ("v1", Kind::Namespace, |m, o, f| Namespace::decode(m, o, f).map(Object::Namespace)),
    ("v1", Kind::Secret, |m, o, f| Secret::decode(m, o, f).map(Object::Secret)),
    ("v1", Kind::Service, |m, o, f| Service::decode(m, o, f).map(Object::Service)),
    ("discovery.k8s.io/v1", Kind::EndpointSlice, |m, o, f| {
        EndpointSlice::decode(m, o, f).map(Object::EndpointSlice)
    }),
    ("networking.k8s.io/v1", Kind::Ingress, |m, o, f| Ingress::decode(m, o, f).map(Object::Ingress)),
    ("networking.k8s.io/v1", Kind::IngressClass, |m, o, f| {
        IngressClass::decode(m, o, f).map(Object::IngressClass)
    }),
];

/// What came of one document.
pub enum Decoded {
    Object(Object),
    /// Nothing usable; the findings say why.
    Nothing,
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
        let Some((known, kind, decode)) = KINDS.iter().find(|(_, known, _)| known.as_str() == kind) else {
            return Decoded::Unknown(Unknown { api_version: api_version.into(), kind: kind.into() });
        };
        if *known != api_version {
            return match group(known) == group(api_version) || *kind == Kind::Ingress {
                true => {
                    let message = format!("{kind} is read as {known}, not as {}", quoted(api_version));
                    findings.error(&root, "UnsupportedVersion", message);
                    Decoded::Nothing
                }
                // Another API that happens to have a kind of that name, such as Knative's Service.
                false => {
                    Decoded::Unknown(Unknown { api_version: api_version.into(), kind: kind.to_string() })
                }
            };
        }
        let object =
            Metadata::decode(*kind, &root, findings).and_then(|metadata| decode(metadata, &root, findings));
        findings.leave();
        object.map_or(Decoded::Nothing, Decoded::Object)
    }
}

fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}
