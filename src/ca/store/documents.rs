//! Objects as documents, in and out: as JSON of ours and of the API server, accounts and namespaces also as YAML of
//! anyone. `directory` and `kubernetes` read and write with these functions and nothing else.
//!
//! Reasons for a refusal never quote the document, because it may be a Secret.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use zeroize::Zeroizing;

use super::{Account, CertificateRequest, ConfigMap, IngressHosts, Namespace, Secret, SecretBytes, Version};
use crate::annotations::issue_certificate;
use crate::store::objects::ObjectName;

/// A whole Secret, as it is created.
pub fn encode_secret(secret: &Secret) -> Zeroizing<String> {
    let mut metadata = metadata(&secret.name, &secret.labels, &secret.annotations);
    if let Some(owner) = &secret.owner {
        metadata["ownerReferences"] = json!([owner_reference(owner)]);
    }
    let data = data_of(secret);
    encode(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": secret.kind, "data": data,
    }))
}

/// `data` of a Secret.
pub fn data_of(secret: &Secret) -> Map<String, Value> {
    let text = |bytes: &SecretBytes| Value::String(STANDARD.encode(bytes.as_slice()));
    secret.data.iter().map(|(key, bytes)| (key.clone(), text(bytes))).collect()
}

pub fn owner_reference(owner: &Account) -> Value {
    json!({ "apiVersion": "v1", "kind": "ServiceAccount", "name": &*owner.name.name, "uid": owner.uid })
}

/// A Secret as `version`.
pub fn secret(document: &Value, version: Version) -> Result<Secret, String> {
    let mut data = BTreeMap::new();
    for (key, value) in document.get("data").and_then(Value::as_object).into_iter().flatten() {
        let decoded = value.as_str().and_then(|text| STANDARD.decode(text).ok());
        data.insert(
            key.clone(),
            SecretBytes::from(decoded.ok_or_else(|| format!("data.{key} is not base64"))?),
        );
    }
    let name = name(document)?;
    let owners = document.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let owner = owners.into_iter().flatten().find_map(|owner| {
        let text = |key: &str| owner.get(key).and_then(Value::as_str);
        let account = text("name").filter(|_| text("kind") == Some("ServiceAccount"))?;
        let uid = text("uid").unwrap_or_default().to_owned();
        Some(Account { name: ObjectName::new(name.namespace.clone(), account), uid })
    });
    Ok(Secret {
        name,
        kind: document.get("type").and_then(Value::as_str).unwrap_or("Opaque").to_owned(),
        labels: texts(document.pointer("/metadata/labels")),
        annotations: texts(document.pointer("/metadata/annotations")),
        data,
        owner,
        version: Some(version),
    })
}

/// A whole ConfigMap, as it is created.
pub fn encode_config_map(map: &ConfigMap) -> Zeroizing<String> {
    let metadata = metadata(&map.name, &map.labels, &BTreeMap::new());
    encode(&json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": map.data }))
}

/// A ConfigMap as `version`.
pub fn config_map(document: &Value, version: Version) -> Result<ConfigMap, String> {
    Ok(ConfigMap {
        name: name(document)?,
        labels: texts(document.pointer("/metadata/labels")),
        data: texts(document.get("data")),
        version: Some(version),
    })
}

/// A ServiceAccount.
pub fn account(document: &Value) -> Result<Account, String> {
    let uid = document.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned();
    Ok(Account { name: name(document)?, uid })
}

/// A Namespace.
pub fn namespace(document: &Value) -> Result<Namespace, String> {
    let text = |pointer: &str| document.pointer(pointer).and_then(Value::as_str);
    Ok(Namespace {
        name: text("/metadata/name").ok_or("metadata.name is missing")?.to_owned(),
        labels: texts(document.pointer("/metadata/labels")),
        terminating: text("/status/phase") == Some("Terminating"),
    })
}

/// What an Ingress says about hosts; it asks for nothing without the annotation.
pub fn ingress(document: &Value) -> Result<IngressHosts, String> {
    let ingress = name(document)?;
    let list = |pointer: &str| document.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
    let of_rules: Vec<String> = list("/spec/rules")
        .filter_map(|rule| rule.get("host")?.as_str())
        .map(str::to_ascii_lowercase)
        .collect();
    let request = |entry: &Value| {
        let secret = entry.get("secretName")?.as_str()?;
        let hosts = entry.get("hosts").and_then(Value::as_array).into_iter().flatten();
        let hosts: Vec<String> = hosts.filter_map(Value::as_str).map(str::to_owned).collect();
        Some(CertificateRequest {
            ingress: ingress.clone(),
            secret: ObjectName::new(ingress.namespace.clone(), secret),
            hosts: if hosts.is_empty() { of_rules.clone() } else { hosts },
        })
    };
    let requests = match issue_certificate::is_asked_for(&texts(document.pointer("/metadata/annotations"))) {
        true => list("/spec/tls").filter_map(request).collect(),
        false => Vec::new(),
    };
    let created = document.pointer("/metadata/creationTimestamp").and_then(Value::as_str);
    let created = created.and_then(|text| OffsetDateTime::parse(text, &Rfc3339).ok());
    Ok(IngressHosts {
        created: created.map(OffsetDateTime::unix_timestamp),
        requests,
        claims: of_rules,
        ingress,
    })
}

/// What concerns the CA in a set of manifests; documents of other kinds are passed over.
#[derive(Default)]
pub struct Documents {
    pub accounts: BTreeSet<Account>,
    pub namespaces: Vec<Namespace>,
    pub ingresses: Vec<IngressHosts>,
    /// Names of the Secrets that are given, and so not ours to make.
    pub secrets: BTreeSet<ObjectName>,
}

impl Documents {
    pub fn add(&mut self, content: &[u8]) -> Result<(), String> {
        let text = std::str::from_utf8(content).map_err(|_| "it is not UTF-8".to_owned())?;
        // A file is at most 2 MiB, which bounds the work; the library's own bounds are for whole inputs of that kind
        // and would refuse a file of a few thousand accounts.
        let options = serde_saphyr::options! {
            budget: serde_saphyr::budget! { max_documents: 100_000, max_nodes: 1_000_000, max_events: 4_000_000 },
        };
        let documents: Vec<Value> =
            serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
                match error.location() {
                    Some(place) => {
                        format!("it is not YAML (line {}, column {})", place.line(), place.column())
                    }
                    None => "it is not YAML".to_owned(),
                }
            })?;
        for document in &documents {
            match document.get("kind").and_then(Value::as_str) {
                Some("List") => {
                    for item in document.get("items").and_then(Value::as_array).into_iter().flatten() {
                        self.add_object(item);
                    }
                }
                _ => self.add_object(document),
            }
        }
        Ok(())
    }

    /// Adds what another set has.
    pub fn extend(&mut self, other: &Self) {
        let Self { accounts, namespaces, ingresses, secrets } = other;
        self.accounts.extend(accounts.iter().cloned());
        self.namespaces.extend(namespaces.iter().cloned());
        self.ingresses.extend(ingresses.iter().cloned());
        self.secrets.extend(secrets.iter().cloned());
    }

    fn add_object(&mut self, object: &Value) {
        match object.get("kind").and_then(Value::as_str) {
            Some("ServiceAccount") => self.accounts.extend(account(object)),
            Some("Namespace") => self.namespaces.extend(namespace(object)),
            Some("Ingress") => self.ingresses.extend(ingress(object)),
            Some("Secret") => self.secrets.extend(name(object)),
            _ => {}
        }
    }
}

/// A JSON document, which must be of this kind.
pub fn parse(content: &[u8], kind: &str) -> Result<Value, String> {
    let document: Value = serde_json::from_slice(content).map_err(|_| "it is not JSON".to_owned())?;
    match document.get("kind").and_then(Value::as_str) == Some(kind) {
        true => Ok(document),
        false => Err(format!("its kind is not {kind}")),
    }
}

fn name(document: &Value) -> Result<ObjectName, String> {
    let text = |pointer: &str| document.pointer(pointer).and_then(Value::as_str);
    let name = text("/metadata/name").ok_or("metadata.name is missing")?;
    Ok(ObjectName::new(text("/metadata/namespace").unwrap_or("default"), name))
}

fn texts(value: Option<&Value>) -> BTreeMap<String, String> {
    let entries = value.and_then(Value::as_object).into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

fn metadata(
    name: &ObjectName,
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
) -> Value {
    let mut metadata = json!({ "namespace": &*name.namespace, "name": &*name.name });
    for (key, map) in [("labels", labels), ("annotations", annotations)] {
        if !map.is_empty() {
            metadata[key] = json!(map);
        }
    }
    metadata
}

/// Pretty JSON with a final newline.
fn encode(document: &Value) -> Zeroizing<String> {
    let mut text = serde_json::to_string_pretty(document).unwrap_or_default();
    text.push('\n');
    Zeroizing::new(text)
}
