//! Policy documents out of files, directories and stdin.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use serde_json::Value;

use crate::diagnostics::{DUPLICATE, Diagnostic, ObjectRef, Severity};
use crate::snapshot::policies::{Authorization, Scope};
use crate::store::objects::{AuthorizationPolicy, Kind, Metadata, ObjectName, PeerAuthentication, document};

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Documents {
    pub peer_authentications: Vec<PeerAuthentication>,
    pub authorization_policies: Vec<AuthorizationPolicy>,
    /// Ready policies. One that could not be read is a DENY of everything here.
    pub authorizations: Vec<Arc<Authorization>>,
    pub diagnostics: Vec<Diagnostic>,
}

impl Documents {
    /// The objects that are to be compiled: metadata and selector.
    pub fn objects(&self) -> impl Iterator<Item = (&Metadata, &BTreeMap<String, String>)> {
        let peer = self.peer_authentications.iter().map(|object| (&object.metadata, &object.selector));
        peer.chain(self.authorization_policies.iter().map(|object| (&object.metadata, &object.selector)))
    }
}

/// Reads all documents. A document that is wrong is a diagnostic; a file that is no YAML at all is an error.
pub(super) fn read(paths: &[PathBuf], default_namespace: &str) -> anyhow::Result<Documents> {
    let mut reading = Reading {
        default_namespace,
        documents: Documents::default(),
        seen: BTreeSet::new(),
        others: BTreeMap::new(),
    };
    let stdin = [PathBuf::from("-")];
    for path in if paths.is_empty() { &stdin[..] } else { paths } {
        for file in files(path)? {
            reading.file(&file)?;
        }
    }
    Ok(reading.finish())
}

/// The file itself, or every manifest in the directory and below it, in the order of their paths.
fn files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    let entries = fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let manifest = path.extension().is_some_and(|e| e == "yaml" || e == "yml" || e == "json");
        if !hidden && !path.is_symlink() && path.is_dir() {
            files.extend(self::files(&path)?);
        } else if !hidden && manifest {
            files.push(path);
        }
    }
    Ok(files)
}

struct Reading<'a> {
    default_namespace: &'a str,
    documents: Documents,
    /// Names that are taken; ready documents have no kind.
    seen: BTreeSet<(Option<Kind>, ObjectName)>,
    /// How many objects of other kinds were left out.
    others: BTreeMap<String, usize>,
}

impl Reading<'_> {
    fn file(&mut self, path: &Path) -> anyhow::Result<()> {
        let (name, text) = match path.as_os_str() == "-" {
            true => (PathBuf::from("stdin"), std::io::read_to_string(std::io::stdin().lock())),
            false => (path.to_owned(), fs::read_to_string(path)),
        };
        let text = text.with_context(|| format!("cannot read {}", name.display()))?;
        let values = parse(&text).with_context(|| format!("cannot read {}", name.display()))?;
        let before = self.documents.diagnostics.len();
        for value in &values {
            self.value(value);
        }
        let file = Arc::new(name);
        for diagnostic in self.documents.diagnostics.iter_mut().skip(before) {
            diagnostic.file = Some(file.clone());
        }
        Ok(())
    }

    fn value(&mut self, value: &Value) {
        if let Value::Array(documents) = value {
            return documents.iter().for_each(|document| self.value(document));
        }
        let text = |field: &str| value.get(field).and_then(Value::as_str);
        match (text("apiVersion"), text("kind")) {
            (_, Some(kind)) if kind.ends_with("List") => {
                let items = value.get("items").and_then(Value::as_array);
                items.into_iter().flatten().for_each(|item| self.value(item));
            }
            (Some("security.istio.io/v1" | "security.istio.io/v1beta1"), Some("PeerAuthentication")) => {
                let findings = &mut self.documents.diagnostics;
                if let Some(object) = PeerAuthentication::decode(value, self.default_namespace, findings)
                    && self.is_new(Kind::PeerAuthentication, &object.metadata.name)
                {
                    self.documents.peer_authentications.push(object);
                }
            }
            (Some("security.istio.io/v1" | "security.istio.io/v1beta1"), Some("AuthorizationPolicy")) => {
                let findings = &mut self.documents.diagnostics;
                if let Some(object) = AuthorizationPolicy::decode(value, self.default_namespace, findings)
                    && self.is_new(Kind::AuthorizationPolicy, &object.metadata.name)
                {
                    self.documents.authorization_policies.push(object);
                }
            }
            (version, Some(kind @ ("PeerAuthentication" | "AuthorizationPolicy"))) => {
                let version = version.unwrap_or_default();
                let message = format!("'{version}' of {kind} is unknown: use security.istio.io/v1");
                self.unnamed("apiVersion", "UnknownVersion", message);
            }
            (_, None | Some("Authorization")) => self.authorization(value),
            (_, Some(kind)) => *self.others.entry(kind.to_owned()).or_default() += 1,
        }
    }

    fn is_new(&mut self, kind: Kind, name: &ObjectName) -> bool {
        let new = self.seen.insert((Some(kind), name.clone()));
        if !new {
            let object = ObjectRef::new(kind, name);
            let message = "there is another object of this name; the first one counts";
            self.documents.diagnostics.push(Diagnostic::new(Severity::Error, object, "", DUPLICATE, message));
        }
        new
    }

    fn authorization(&mut self, value: &Value) {
        let mut document = value.clone();
        if let Some(map) = document.as_object_mut() {
            ["apiVersion", "kind", "@type"].into_iter().for_each(|field| drop(map.remove(field)));
        }
        match document::from_value(&document) {
            Ok(policy) if self.seen.insert((None, policy.name.clone())) => {
                self.documents.authorizations.push(Arc::new(policy));
            }
            Ok(policy) => {
                let message = format!("there is another Authorization {}; the first one counts", policy.name);
                self.unnamed("name", DUPLICATE, message);
            }
            Err(error) => {
                let name = name_of(value);
                let message = format!("Authorization {name} lets nothing through: {}", error.problem);
                self.unnamed(&error.field, "InvalidAuthorization", message);
                self.documents.authorizations.push(Arc::new(Authorization::closed(
                    name,
                    Scope::Global,
                    false,
                )));
            }
        }
    }

    fn unnamed(&mut self, field: &str, reason: &'static str, message: String) {
        let (file, object, field) = (None, None, field.into());
        self.documents.diagnostics.push(Diagnostic {
            severity: Severity::Error,
            file,
            object,
            field,
            reason,
            message,
        });
    }

    fn finish(mut self) -> Documents {
        if !self.others.is_empty() {
            let kinds: Vec<String> =
                self.others.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
            self.documents.diagnostics.push(Diagnostic {
                severity: Severity::Info,
                file: None,
                object: None,
                field: String::new(),
                reason: "NotAPolicy",
                message: format!("objects of other kinds are left out: {}", kinds.join(", ")),
            });
        }
        self.documents
    }
}

/// All documents of a text. JSON goes to the JSON parser, which knows tabs and needs no separators; what only begins
/// like JSON, such as documents of one line each between `---`, is YAML.
fn parse(text: &str) -> anyhow::Result<Vec<Value>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let json = || serde_json::Deserializer::from_str(text).into_iter().collect::<Result<Vec<Value>, _>>();
    let yaml = || {
        let options = serde_saphyr::options! { strict_booleans: true };
        serde_saphyr::from_multiple_with_options(text, options)
    };
    match text.trim_start().starts_with('{') {
        true => json().or_else(|error| yaml().map_err(|_| error.into())),
        false => Ok(yaml()?),
    }
}

fn name_of(document: &Value) -> ObjectName {
    let text = |field: &str| document.get(field).and_then(Value::as_str).unwrap_or_default();
    match text("name") {
        "" => ObjectName::new(text("namespace"), "(without a name)"),
        name => ObjectName::new(text("namespace"), name),
    }
}
