use std::collections::BTreeMap;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::field::quoted;
use super::{Field, Findings, Kind, Metadata, ObjectName};

impl Metadata {
    /// Reads `metadata`; without a valid name there is no object, and `None`.
    pub(super) fn decode(kind: Kind, object: &Field<'_>, findings: &mut Findings) -> Option<Self> {
        let Some(metadata) = object.get("metadata") else {
            findings.error(object, "MissingField", format!("the {kind} has no metadata.name"));
            return None;
        };
        let name = decode_name(kind, &metadata, findings)?;
        findings.enter(kind, &name);
        Some(Self {
            name,
            created: metadata.get("creationTimestamp").and_then(|field| decode_time(&field, findings)),
            labels: decode_map(&metadata, "labels", findings),
            // Nobody asks for those of a Secret, and kubectl keeps the whole object there, private key and all.
            annotations: match kind {
                Kind::Secret => BTreeMap::new(),
                _ => decode_map(&metadata, "annotations", findings),
            },
        })
    }
}

fn decode_name(kind: Kind, metadata: &Field<'_>, findings: &mut Findings) -> Option<ObjectName> {
    let Some(field) = metadata.get("name") else {
        findings.error(metadata, "MissingField", format!("the {kind} has no metadata.name"));
        return None;
    };
    let name = field.text(findings)?;
    if !is_subdomain(name) {
        let message = format!("the {kind} name {} is not a lower-case RFC 1123 name", quoted(name));
        findings.error(&field, "InvalidName", message);
        return None;
    }
    if kind.is_cluster_scoped() {
        return Some(ObjectName::new("", name));
    }
    let Some(field) = metadata.get("namespace") else {
        return Some(ObjectName::new("default", name));
    };
    match field.text(findings)? {
        "" => Some(ObjectName::new("default", name)),
        namespace if is_label(namespace) => Some(ObjectName::new(namespace, name)),
        namespace => {
            let message =
                format!("the namespace {} of {kind} {name} is not an RFC 1123 label", quoted(namespace));
            findings.error(&field, "InvalidName", message);
            None
        }
    }
}

fn decode_time(field: &Field<'_>, findings: &mut Findings) -> Option<i64> {
    let text = field.text(findings)?;
    match OffsetDateTime::parse(text, &Rfc3339) {
        Ok(time) => Some(time.unix_timestamp()),
        Err(_) => {
            let message = format!("{} is not an RFC 3339 time and counts as not given", quoted(text));
            findings.warning(field, "InvalidTime", message);
            None
        }
    }
}

/// The text values of the mapping under `key`; others are reported and left out.
pub(super) fn decode_map(parent: &Field<'_>, key: &str, findings: &mut Findings) -> BTreeMap<String, String> {
    let mut map = BTreeMap::new();
    if let Some(field) = parent.get(key) {
        for (key, value) in field.entries(findings) {
            if let Some(text) = value.text(findings) {
                map.insert(key.to_owned(), text.to_owned());
            }
        }
    }
    map
}

/// An RFC 1123 label: 1 to 63 lower-case letters, digits and `-`, the latter not at either end.
pub fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// An RFC 1123 subdomain as Kubernetes takes it for names: labels joined by `.`, at most 253 characters,
/// where a single label may be longer than 63.
pub fn is_subdomain(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let part = |part: &str| {
        !part.is_empty() && part.bytes().all(inner) && !part.starts_with('-') && !part.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(part)
}
