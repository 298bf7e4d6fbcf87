//! Manifests in and out: Secrets and ConfigMaps as JSON of ours, accounts and namespaces as YAML or JSON of anyone.
//!
//! Reasons for a refusal never quote the document, because it may be a Secret.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use super::version_of;
use crate::ca::store::{Account, ConfigMap, Namespace, Secret, SecretBytes};
use crate::store::objects::ObjectName;

pub fn encode_secret(secret: &Secret) -> Zeroizing<String> {
    let data: Map<String, Value> = secret
        .data
        .iter()
        .map(|(key, bytes)| (key.clone(), Value::String(STANDARD.encode(bytes.as_slice()))))
        .collect();
    let mut metadata = metadata(&secret.name, &secret.labels, &secret.annotations);
    if let Some(owner) = &secret.owner {
        metadata["ownerReferences"] = json!([{
            "apiVersion": "v1", "kind": "ServiceAccount", "name": &*owner.name.name, "uid": owner.uid,
        }]);
    }
    encode(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": secret.kind, "data": data,
    }))
}

pub fn parse_secret(content: &[u8]) -> Result<Secret, String> {
    let document = parse(content, "Secret")?;
    let mut data = BTreeMap::new();
    for (key, value) in document.get("data").and_then(Value::as_object).into_iter().flatten() {
        let decoded = value.as_str().and_then(|text| STANDARD.decode(text).ok());
        data.insert(
            key.clone(),
            SecretBytes::from(decoded.ok_or_else(|| format!("data.{key} is not base64"))?),
        );
    }
    let name = name(&document)?;
    let owner = document.pointer("/metadata/ownerReferences/0").and_then(|owner| {
        let account = owner.get("name")?.as_str()?;
        let uid = owner.get("uid").and_then(Value::as_str).unwrap_or_default().to_owned();
        Some(Account { name: ObjectName::new(name.namespace.clone(), account), uid })
    });
    Ok(Secret {
        name,
        kind: document.get("type").and_then(Value::as_str).unwrap_or("Opaque").to_owned(),
        labels: texts(document.pointer("/metadata/labels")),
        annotations: texts(document.pointer("/metadata/annotations")),
        data,
        owner,
        version: Some(version_of(content)),
    })
}

pub fn encode_config_map(map: &ConfigMap) -> Zeroizing<String> {
    let metadata = metadata(&map.name, &map.labels, &BTreeMap::new());
    encode(&json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": map.data }))
}

pub fn parse_config_map(content: &[u8]) -> Result<ConfigMap, String> {
    let document = parse(content, "ConfigMap")?;
    Ok(ConfigMap {
        name: name(&document)?,
        labels: texts(document.pointer("/metadata/labels")),
        data: texts(document.get("data")),
        version: Some(version_of(content)),
    })
}

/// The accounts and namespaces in a set of manifests; documents of other kinds are passed over.
#[derive(Default)]
pub struct Documents {
    pub accounts: BTreeSet<Account>,
    pub namespaces: Vec<Namespace>,
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

    fn add_object(&mut self, object: &Value) {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let Some(name) = text("/metadata/name") else { return };
        match text("/kind") {
            Some("ServiceAccount") => {
                let namespace = text("/metadata/namespace").unwrap_or("default");
                let uid = text("/metadata/uid").unwrap_or_default().to_owned();
                self.accounts.insert(Account { name: ObjectName::new(namespace, name), uid });
            }
            Some("Namespace") => self.namespaces.push(Namespace {
                name: name.to_owned(),
                labels: texts(object.pointer("/metadata/labels")),
                terminating: text("/status/phase") == Some("Terminating"),
            }),
            _ => {}
        }
    }
}

fn parse(content: &[u8], kind: &str) -> Result<Value, String> {
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

fn encode(document: &Value) -> Zeroizing<String> {
    let mut text = serde_json::to_string_pretty(document).unwrap_or_default();
    text.push('\n');
    Zeroizing::new(text)
}
