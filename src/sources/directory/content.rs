//! From the bytes of a unit to objects and findings. Pure; the state of the folders is in `tree`.

use std::collections::HashSet;
use std::hash::BuildHasher;
use std::sync::Arc;

use super::documents::documents;
use super::findings::{Capped, MOST};
use super::read::{Contents, ReadError};
use super::unit::Unit;
use crate::diagnostics::{DUPLICATE, Diagnostic, ObjectRef, Severity};
use crate::store::objects::{
    Decoded, Findings, Kind, Metadata, Node, Object, ObjectName, PairFields, ReadyPolicy, Secret, Unknown,
};
use crate::tls::keys::Part;

/// What the files of one unit define.
#[derive(Default)]
pub struct Content {
    pub objects: Vec<Defined>,
    /// Kinds that are not read, each once; the first so many.
    pub unknown: Vec<Unknown>,
    pub findings: Vec<Diagnostic>,
    /// Something is there that cannot be read or used. What is missing may be in it or after it, for the writer may not
    /// be done: whatever was defined before stays.
    pub broken: bool,
    /// There is nothing but white space, as in a file that was truncated to be written again.
    pub empty: bool,
}

/// Names of the settings file that a folder of manifests may hold, where `diff` reads it.
pub const SETTINGS_FILES: [&str; 3] = ["settings.yaml", "settings.yml", "settings.json"];

impl Content {
    /// Takes a file of settings for what it is. Objects are objects whatever their file is called.
    pub fn admit_settings(&mut self) {
        for finding in self.findings.iter_mut().filter(|finding| finding.reason == NOT_AN_OBJECT) {
            finding.severity = Severity::Info;
            finding.reason = "SettingsFile";
            finding.message = "settings are not read from here; serve takes their file as --settings".into();
        }
    }
}

/// An object with a digest of what it was decoded from.
pub struct Defined {
    pub object: Object,
    pub digest: u64,
}

impl Defined {
    pub fn id(&self) -> (Kind, ObjectName) {
        (self.object.kind(), self.object.metadata().name.clone())
    }
}

/// Decodes a manifest or a PEM pair. `hasher` makes the digests.
pub fn decode(unit: &Unit, contents: &Contents, namespace: &Arc<str>, hasher: &impl BuildHasher) -> Content {
    match unit.key {
        Some(_) => decode_pair(unit, contents, namespace, hasher),
        None => decode_manifest(&contents[0], hasher),
    }
}

fn decode_pair(unit: &Unit, contents: &Contents, namespace: &Arc<str>, hasher: &impl BuildHasher) -> Content {
    let name = ObjectName::new(namespace.clone(), unit.secret_name());
    let metadata =
        Metadata { name, created: None, labels: Default::default(), annotations: Default::default() };
    let [certificates, key] = contents;
    let secret = Secret::from_pem(metadata, certificates, key);
    let digest = hasher.hash_one((certificates.as_slice(), key.as_slice()));
    Content {
        broken: matches!(secret.pair, Some(Err(_))),
        findings: secret.findings(),
        objects: vec![Defined { object: Object::Secret(secret), digest }],
        ..Content::default()
    }
}

/// Says that the files of a unit could not be read; of a pair, what it is about is the Secret.
pub fn unread(unit: &Unit, error: &ReadError, namespace: &Arc<str>) -> Diagnostic {
    let (severity, reason) = (error.problem.severity(), error.problem.reason());
    let finding = Diagnostic { severity, ..file_error(reason, error.problem.to_string()) };
    if unit.key.is_none() {
        return finding;
    }
    let name = ObjectName::new(namespace.clone(), unit.secret_name());
    let part = if unit.key.as_ref() == Some(&error.file) { Part::Key } else { Part::Certificate };
    Diagnostic {
        object: Some(ObjectRef::new(Kind::Secret, &name)),
        field: PairFields::default().of(part).into(),
        ..finding
    }
}

pub(crate) fn decode_manifest(bytes: &[u8], hasher: &impl BuildHasher) -> Content {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let valid = bytes.get(..error.valid_up_to()).unwrap_or_default();
            let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
            let message = format!("line {line}: the text is not UTF-8");
            let findings = vec![file_error("NotUtf8", message)];
            return Content { findings, broken: true, ..Content::default() };
        }
    };
    let mut manifest = Manifest::new(hasher);
    manifest.content.empty = text.trim_start_matches('\u{feff}').trim().is_empty();
    for document in documents(text) {
        match document.content {
            Ok(mut node) => {
                manifest.decode(document.line, &node, None, 0);
                node.wipe();
            }
            Err(fault) => {
                manifest.content.broken = true;
                manifest.findings.push(file_error(fault.reason, fault.to_string()));
            }
        }
    }
    manifest.into_content()
}

const NOT_AN_OBJECT: &str = "NotAnObject";

/// A finding about a place in the file and no object.
pub fn file_error(reason: &'static str, message: String) -> Diagnostic {
    Diagnostic { severity: Severity::Error, file: None, object: None, field: String::new(), reason, message }
}

struct Manifest<'a, H> {
    /// Without findings.
    content: Content,
    findings: Capped,
    /// Those that `content` has.
    unknown: HashSet<Unknown>,
    /// Objects of further kinds that are not read.
    more_unknown: usize,
    seen: HashSet<(Kind, ObjectName)>,
    hasher: &'a H,
}

impl<'a, H: BuildHasher> Manifest<'a, H> {
    fn new(hasher: &'a H) -> Self {
        let (content, findings) = (Content::default(), Capped::default());
        Self { content, findings, unknown: HashSet::new(), more_unknown: 0, seen: HashSet::new(), hasher }
    }

    fn into_content(mut self) -> Content {
        if self.more_unknown > 0 {
            let message = format!("and {} objects of other kinds that are not read", self.more_unknown);
            self.findings.push(Diagnostic { severity: Severity::Info, ..file_error("UnknownKind", message) });
        }
        Content { findings: self.findings.into_list(), ..self.content }
    }

    /// Takes a document, or an item of a list; `list` has the type of items that don't name their own.
    fn decode(&mut self, line: u64, node: &Node<'_>, list: Option<(&str, &str)>, depth: usize) {
        if list.is_none() && ReadyPolicy::is_meant(node) {
            return self.decode_ready_policy(line, node);
        }
        let api_version = node.get_str("apiVersion").or(list.map(|(api_version, _)| api_version));
        let kind = node.get_str("kind").or(list.map(|(_, kind)| kind).filter(|kind| !kind.is_empty()));
        let (Some(api_version), Some(kind)) = (api_version, kind) else {
            let message = match node {
                Node::Map(_) => format!("line {line}: the document has no apiVersion and kind"),
                other => format!("line {line}: an object is expected here, not {}", other.shape()),
            };
            return self.break_off("NotAnObject", message);
        };
        match (kind.strip_suffix("List"), node.get("items")) {
            (Some(item), Some(Node::List(items))) if depth < DEEPEST_LIST => {
                for node in items {
                    self.decode(line, node, Some((api_version, item)), depth + 1);
                }
            }
            (Some(""), _) => {
                let message = format!(
                    "line {line}: a List with its items is expected here, at most {DEEPEST_LIST} deep"
                );
                self.break_off("NotAnObject", message);
            }
            _ => self.decode_object(line, api_version, kind, node),
        }
    }

    /// Something of the unit could be any of its objects. A text cut off by a writer often looks like that.
    fn break_off(&mut self, reason: &'static str, message: String) {
        self.findings.push(file_error(reason, message));
        self.content.broken = true;
    }

    fn decode_object(&mut self, line: u64, api_version: &str, kind: &str, node: &Node<'_>) {
        let mut findings = Findings::new();
        match Object::decode(api_version, kind, node, &mut findings) {
            Decoded::Object(mut object) => {
                if let Object::Pod(pod) = &mut object {
                    pod.read_listed(node, &mut findings);
                }
                let defined = Defined { object, digest: self.hasher.hash_one(node) };
                self.define(line, defined);
            }
            Decoded::Unusable(..) => self.content.broken = true,
            Decoded::Unknown(unknown) if self.unknown.contains(&unknown) => {}
            Decoded::Unknown(_) if self.unknown.len() >= MOST => self.more_unknown += 1,
            Decoded::Unknown(unknown) => {
                self.unknown.insert(unknown.clone());
                self.content.unknown.push(unknown);
            }
        }
        self.report(line, findings);
    }

    fn decode_ready_policy(&mut self, line: u64, node: &Node<'_>) {
        let mut findings = Findings::new();
        match ReadyPolicy::decode(node, &mut findings) {
            Some(object) => self.define(line, Defined { object, digest: self.hasher.hash_one(node) }),
            // One of those that the file had before, which stays until it can be told which.
            None => self.content.broken = true,
        }
        self.report(line, findings);
    }

    fn report(&mut self, line: u64, findings: Findings) {
        self.findings.extend(findings.into_list().into_iter().map(|mut finding| {
            if finding.object.is_none() {
                finding.message = format!("document at line {line}: {}", finding.message);
            }
            finding
        }));
    }

    fn define(&mut self, line: u64, defined: Defined) {
        let id = defined.id();
        if !self.seen.insert(id.clone()) {
            let message = format!("the document at line {line} defines it again and is ignored");
            let object = ObjectRef::new(id.0, &id.1);
            self.findings.push(Diagnostic::new(Severity::Error, object, "", DUPLICATE, message));
            return;
        }
        self.content.objects.push(defined);
    }
}

/// Lists within lists that are followed.
const DEEPEST_LIST: usize = 4;
