//! What Portcullis has to say about the objects it was given: one list of findings, each naming the object,
//! the field and the reason. Made by `sources` (decoding) and `compile`; shown by `check`, the admin API,
//! metrics and, in a cluster, as Events. A diagnostic never carries secret bytes.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;

use crate::store::objects::{Kind, ObjectName};

/// The reason of the finding that an object is defined more than once: the first one counts, and this one does not.
pub const DUPLICATE: &str = "Duplicate";

/// How bad a finding is. `Error` means something the user asked for does not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Info,
    Warning,
    Error,
}

/// One finding about one field of one object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Diagnostic {
    pub severity: Severity,
    /// The file it was read from, with the directory source.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_text")]
    pub file: Option<Arc<PathBuf>>,
    /// The object, unless the file could not be read that far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<ObjectRef>,
    /// Path of the field, as `spec.rules[0].http.paths[1].path`; empty when it is about the whole object.
    pub field: String,
    /// A CamelCase word that scripts can match, such as `KeyMismatch` or `SecretNotFound`.
    pub reason: &'static str,
    /// One sentence for a person, with what to do next where that is known.
    pub message: String,
}

/// A path that is no UTF-8 is told as nearly as can be; serde would refuse it, and all findings with it.
fn as_text<S: serde::Serializer>(file: &Option<Arc<PathBuf>>, serializer: S) -> Result<S::Ok, S::Error> {
    file.as_ref().map(|file| file.to_string_lossy()).serialize(serializer)
}

/// Names an object of some kind in diagnostics.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ObjectRef {
    pub kind: Kind,
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl ObjectRef {
    pub fn new(kind: Kind, name: &ObjectName) -> Self {
        Self { kind, namespace: name.namespace.clone(), name: name.name.clone() }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.namespace {
            "" => write!(f, "{} {}", self.kind, self.name),
            namespace => write!(f, "{} {namespace}/{}", self.kind, self.name),
        }
    }
}

impl Diagnostic {
    /// A finding about `field` of `object`.
    pub fn new(
        severity: Severity,
        object: ObjectRef,
        field: impl Into<String>,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self {
            severity,
            file: None,
            object: Some(object),
            field: field.into(),
            reason,
            message: message.into(),
        }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}: ", file.display())?;
        }
        if let Some(object) = &self.object {
            write!(f, "{object}: ")?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        write!(f, "{} ({})", self.message, self.reason)
    }
}

/// Foreign text as a message may carry it: in quotes, control characters escaped, cut after 80 characters.
pub fn quoted(text: &str) -> String {
    const LONGEST: usize = 80;
    let mut characters = text.chars();
    let shown: String = characters.by_ref().take(LONGEST).collect();
    let more = if characters.next().is_some() { "…" } else { "" };
    format!("\"{}{more}\"", shown.escape_debug())
}
