//! A folder of manifests as `diff` sees it: generic documents by kind, namespace and name, and PEM files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value as Json;

use super::DiffError;
use crate::sources::directory::content::SETTINGS_FILES;
use crate::store::objects::ObjectName;

/// What was read from a folder.
#[derive(Debug, Default)]
pub(super) struct Folder {
    /// The file `settings.yaml`, `.yml` or `.json` right in the folder.
    pub settings: Option<PathBuf>,
    objects: BTreeMap<ObjectKey, Json>,
    /// Certificates and keys by their path inside the folder.
    pem: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct ObjectKey {
    kind: String,
    namespace: String,
    name: String,
}

/// One object or PEM file that differs.
#[derive(Debug, Serialize)]
pub(super) struct ObjectChange {
    #[serde(flatten)]
    subject: Subject,
    change: Kind,
    /// Paths of the fields that differ, as `spec.rules[0].host`, for changed objects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fields: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Subject {
    Object(ObjectKey),
    PemFile(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Added,
    Removed,
    Changed,
}

const READY_POLICY: &str = "Authorization";

/// Deeper than any folder of manifests; a loop of links ends here.
pub(super) const MAX_DEPTH: usize = 16;

impl Folder {
    /// Reads everything below `path`. Names that start with a dot are left out: among them are the folders that
    /// the kubelet mounts, whose files are found through the links beside them.
    pub fn read(path: &Path) -> Result<Self, DiffError> {
        let mut folder = Self::default();
        folder.read_below(path, path, 0)?;
        Ok(folder)
    }

    fn read_below(&mut self, root: &Path, path: &Path, depth: usize) -> Result<(), DiffError> {
        let unreadable = |source| DiffError::Read { path: path.to_owned(), source };
        if depth > MAX_DEPTH {
            return Err(DiffError::TooDeep(path.to_owned()));
        }
        for entry in std::fs::read_dir(path).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let (name, path) = (entry.file_name(), entry.path());
            let Some(name) = name.to_str().filter(|name| !name.starts_with('.')) else { continue };
            if path.is_dir() {
                self.read_below(root, &path, depth + 1)?;
            } else if depth == 0 && SETTINGS_FILES.contains(&name) {
                self.settings = Some(path);
            } else {
                self.read_file(root, &path)?;
            }
        }
        Ok(())
    }

    fn read_file(&mut self, root: &Path, path: &Path) -> Result<(), DiffError> {
        let read = || std::fs::read(path).map_err(|source| DiffError::Read { path: path.to_owned(), source });
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("yaml" | "yml" | "json") => self.add_documents(path, &read()?),
            Some("pem" | "crt" | "cer" | "key") => {
                let inside = path.strip_prefix(root).unwrap_or(path);
                self.pem.insert(inside.display().to_string(), read()?);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn add_documents(&mut self, file: &Path, bytes: &[u8]) -> Result<(), DiffError> {
        let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
        let documents: Vec<Json> =
            serde_saphyr::from_slice_multiple_with_options(bytes, options).map_err(|error| {
                let line = error.location().map_or(0, |location| location.line());
                DiffError::Yaml { file: file.to_owned(), line }
            })?;
        documents.into_iter().try_for_each(|document| self.add_document(file, document))
    }

    fn add_document(&mut self, file: &Path, mut document: Json) -> Result<(), DiffError> {
        if document.is_null() {
            return Ok(());
        }
        if is_ready_policy(&document) {
            return self.add_ready_policy(file, document);
        }
        let kind = text(&document, "/kind").ok_or_else(|| no_object(file, "kind"))?.to_owned();
        if kind.ends_with("List")
            && let Some(Json::Array(items)) = document.get_mut("items").map(Json::take)
        {
            return items.into_iter().try_for_each(|item| self.add_document(file, item));
        }
        let name =
            text(&document, "/metadata/name").ok_or_else(|| no_object(file, "metadata.name"))?.to_owned();
        let namespace = match text(&document, "/metadata/namespace") {
            Some(namespace) => namespace.to_owned(),
            None if CLUSTER_SCOPED.contains(&&*kind) => String::new(),
            None => "default".into(),
        };
        drop_server_fields(&mut document);
        self.objects.insert(ObjectKey { kind, namespace, name }, document);
        Ok(())
    }

    /// A policy that somebody else compiled has its name at the top.
    fn add_ready_policy(&mut self, file: &Path, document: Json) -> Result<(), DiffError> {
        let name = text(&document, "/name").ok_or_else(|| no_object(file, "name"))?.to_owned();
        let namespace = text(&document, "/namespace").unwrap_or("default").to_owned();
        self.objects.insert(ObjectKey { kind: READY_POLICY.into(), namespace, name }, document);
        Ok(())
    }

    /// The `data` of a ConfigMap.
    pub fn config_map_data(&self, name: &ObjectName) -> Option<BTreeMap<String, String>> {
        let key = ObjectKey {
            kind: "ConfigMap".into(),
            namespace: name.namespace.to_string(),
            name: name.name.to_string(),
        };
        let data = self.objects.get(&key)?.get("data")?.as_object()?;
        let entries = data.iter().filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
        Some(entries.collect())
    }

    /// What is different in `new`.
    pub fn changes(&self, new: &Self) -> Vec<ObjectChange> {
        let objects = compare(&self.objects, &new.objects, Subject::Object, |old, new| {
            let mut fields = Vec::new();
            changed_fields("", old, new, &mut fields);
            fields
        });
        let pem = compare(&self.pem, &new.pem, Subject::PemFile, |_, _| Vec::new());
        objects.into_iter().chain(pem).collect()
    }
}

fn text<'a>(document: &'a Json, pointer: &str) -> Option<&'a str> {
    document.pointer(pointer)?.as_str()
}

fn no_object(file: &Path, missing: &'static str) -> DiffError {
    DiffError::NoObject { file: file.to_owned(), missing }
}

/// Kinds without a namespace, so that none is made up for them.
const CLUSTER_SCOPED: &[&str] = &["IngressClass", "Namespace", "ClusterRole", "ClusterRoleBinding"];

fn is_ready_policy(document: &Json) -> bool {
    let kind = document.get("kind");
    document.get("apiVersion").is_none()
        && kind.map_or(document.get("name").is_some(), |kind| kind == READY_POLICY)
}

/// Takes away what an API server writes and nobody edits.
fn drop_server_fields(document: &mut Json) {
    if let Some(object) = document.as_object_mut() {
        object.remove("status");
    }
    if let Some(metadata) = document.get_mut("metadata").and_then(Json::as_object_mut) {
        for field in ["resourceVersion", "managedFields", "uid", "generation", "selfLink"] {
            metadata.remove(field);
        }
    }
}

fn compare<K: Clone + Ord, V: PartialEq>(
    old: &BTreeMap<K, V>,
    new: &BTreeMap<K, V>,
    subject: fn(K) -> Subject,
    fields: impl Fn(&V, &V) -> Vec<String>,
) -> Vec<ObjectChange> {
    let keys: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let change = |key: &K| {
        let (change, fields) = match (old.get(key), new.get(key)) {
            (Some(old), Some(new)) if old == new => return None,
            (Some(old), Some(new)) => (Kind::Changed, fields(old, new)),
            (None, _) => (Kind::Added, Vec::new()),
            (_, None) => (Kind::Removed, Vec::new()),
        };
        Some(ObjectChange { subject: subject(key.clone()), change, fields })
    };
    keys.into_iter().filter_map(change).collect()
}

/// A field that is not there; Kubernetes makes no difference between that and null.
static ABSENT: Json = Json::Null;

/// Lists the paths at which two documents differ, as deep as both have a map or list.
fn changed_fields(path: &str, old: &Json, new: &Json, found: &mut Vec<String>) {
    match (old, new) {
        (Json::Object(old), Json::Object(new)) => {
            let keys: BTreeSet<_> = old.keys().chain(new.keys()).collect();
            for key in keys {
                let (old, new) = (old.get(key).unwrap_or(&ABSENT), new.get(key).unwrap_or(&ABSENT));
                changed_fields(&member(path, key), old, new, found);
            }
        }
        (Json::Array(old), Json::Array(new)) => {
            for index in 0..old.len().max(new.len()) {
                let (old, new) = (old.get(index).unwrap_or(&ABSENT), new.get(index).unwrap_or(&ABSENT));
                changed_fields(&format!("{path}[{index}]"), old, new, found);
            }
        }
        _ if old != new => found.push(path.to_owned()),
        _ => {}
    }
}

fn member(path: &str, key: &str) -> String {
    match (path, key.contains(['.', '/'])) {
        (_, true) => format!("{path}[{key:?}]"),
        ("", false) => key.to_owned(),
        (_, false) => format!("{path}.{key}"),
    }
}

impl ObjectChange {
    /// What it is about, as `Ingress shop/web`.
    pub fn name(&self) -> String {
        match &self.subject {
            Subject::Object(ObjectKey { kind, namespace, name }) if namespace.is_empty() => {
                format!("{kind} {name}")
            }
            Subject::Object(ObjectKey { kind, namespace, name }) => format!("{kind} {namespace}/{name}"),
            Subject::PemFile(path) => format!("PEM file {path}"),
        }
    }

    /// What happened to it, in a few words.
    pub fn summary(&self) -> String {
        match (self.change, &*self.fields) {
            (Kind::Added, _) => "added".into(),
            (Kind::Removed, _) => "removed".into(),
            (Kind::Changed, []) => "changed".into(),
            (Kind::Changed, [a, b, c, rest @ ..]) if !rest.is_empty() => {
                format!("{a}, {b}, {c} and {} more", rest.len())
            }
            (Kind::Changed, fields) => fields.join(", "),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn documents() -> impl Strategy<Value = Json> {
        let scalar = prop_oneof![
            any::<bool>().prop_map(Json::from),
            any::<u8>().prop_map(Json::from),
            "[a-c.]{0,2}".prop_map(Json::from),
        ];
        scalar.prop_recursive(3, 16, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 1..3).prop_map(Json::from),
                prop::collection::btree_map("[a-c./]{1,2}", inner, 1..3)
                    .prop_map(|entries| entries.into_iter().collect()),
            ]
        })
    }

    proptest! {
        /// No change goes unnoticed, and what is the same is never named.
        #[test]
        fn fields_are_named_where_documents_differ_and_only_there(old in documents(), new in documents()) {
            let mut fields = Vec::new();
            changed_fields("", &old, &new, &mut fields);
            prop_assert_eq!(fields.is_empty(), old == new);
            let distinct: BTreeSet<_> = fields.iter().collect();
            prop_assert_eq!(distinct.len(), fields.len());
        }
    }
}
