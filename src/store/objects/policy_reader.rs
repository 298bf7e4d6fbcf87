//! Reads the fields of policy objects out of a JSON value, for `peer_authentication` and
//! `authorization_policy`. Policies are read strictly, unlike other objects: a field that is unknown or cannot
//! be read may be the one that narrows the policy, so the object is *refused*. A refused object stays, closed:
//! each kind says what it then stands for.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{Kind, Metadata, ObjectName};
use crate::diagnostics::{Diagnostic, ObjectRef, Severity};

/// A field with its path from the top of the object.
#[derive(Clone)]
pub(super) struct Field<'v> {
    pub path: String,
    pub value: &'v Value,
}

pub(super) struct Reader<'f> {
    object: ObjectRef,
    findings: &'f mut Vec<Diagnostic>,
    pub refused: bool,
}

impl<'f> Reader<'f> {
    /// Reads the metadata and gets ready to read `spec`; `None` where the object has no name to go by.
    pub fn start<'v>(
        kind: Kind,
        object: &'v Value,
        default_namespace: &str,
        findings: &'f mut Vec<Diagnostic>,
    ) -> Option<(Self, Metadata, Fields<'v>)> {
        let metadata = object.get("metadata").unwrap_or(&Value::Null);
        let Some(name) = metadata.get("name").and_then(Value::as_str).filter(|name| !name.is_empty()) else {
            findings.push(Diagnostic {
                severity: Severity::Error,
                file: None,
                object: None,
                field: "metadata.name".into(),
                reason: "MissingName",
                message: format!("the {kind} has no name and is left out"),
            });
            return None;
        };
        let namespace = metadata.get("namespace").and_then(Value::as_str).filter(|text| !text.is_empty());
        let name = ObjectName::new(namespace.unwrap_or(default_namespace), name);
        let mut reader = Self { object: ObjectRef::new(kind, &name), findings, refused: false };
        let metadata = Metadata {
            name,
            created: reader.created(metadata.get("creationTimestamp")),
            labels: scalars(metadata.get("labels")),
            annotations: scalars(metadata.get("annotations")),
        };
        let spec = Field { path: "spec".into(), value: object.get("spec").unwrap_or(&Value::Null) };
        let spec = reader.fields(spec);
        Some((reader, metadata, spec))
    }

    /// Reports a fault that makes the whole object unusable.
    pub fn refuse(&mut self, path: &str, reason: &'static str, message: impl Into<String>) {
        self.refused = true;
        self.report(Severity::Error, path, reason, message);
    }

    pub fn report(
        &mut self,
        severity: Severity,
        path: &str,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        self.findings.push(Diagnostic::new(severity, self.object.clone(), path, reason, message));
    }

    fn wrong_type(&mut self, path: &str, expected: &str) {
        self.refuse(path, "InvalidValue", format!("this must be {expected}"));
    }

    /// The fields of a mapping; null counts as empty.
    pub fn fields<'v>(&mut self, field: Field<'v>) -> Fields<'v> {
        let map = match field.value {
            Value::Object(map) => Some(map),
            Value::Null => None,
            _ => {
                self.wrong_type(&field.path, "a mapping");
                None
            }
        };
        Fields { path: field.path, map, taken: Vec::new() }
    }

    /// The entries of a list; an absent one counts as empty. An entry that is null, as a dash with nothing
    /// behind it is, is refused: left out it would be a rule for everything, or a condition less.
    pub fn list<'v>(&mut self, field: Option<Field<'v>>) -> Vec<Field<'v>> {
        match field {
            Some(Field { path, value: Value::Array(entries) }) => {
                let mut fields = Vec::with_capacity(entries.len());
                for (at, value) in entries.iter().enumerate() {
                    let path = format!("{path}[{at}]");
                    match value {
                        Value::Null => self.refuse(&path, "InvalidValue", "this must not be null"),
                        _ => fields.push(Field { path, value }),
                    }
                }
                fields
            }
            None | Some(Field { value: Value::Null, .. }) => Vec::new(),
            Some(Field { path, .. }) => {
                self.wrong_type(&path, "a list");
                Vec::new()
            }
        }
    }

    /// A text that isn't empty; an absent field is `None`.
    pub fn text<'v>(&mut self, field: Option<Field<'v>>) -> Option<&'v str> {
        let field = field.filter(|field| !field.value.is_null())?;
        match field.value {
            Value::String(text) if !text.is_empty() => return Some(text),
            Value::String(_) => self.refuse(&field.path, "InvalidValue", "this must not be empty"),
            Value::Number(number) => self.wrong_type(&field.path, &format!("text: write \"{number}\"")),
            _ => self.wrong_type(&field.path, "text"),
        }
        None
    }

    /// A mapping of text to text; entries that are something else are refused.
    pub fn text_map(&mut self, field: Option<Field<'_>>) -> BTreeMap<String, String> {
        let Some(field) = field else { return BTreeMap::new() };
        let fields = self.fields(field);
        let mut map = BTreeMap::new();
        for (key, field) in fields.entries() {
            match field.value {
                Value::String(text) => drop(map.insert(key.to_owned(), text.clone())),
                _ => self.wrong_type(&field.path, "text"),
            }
        }
        map
    }

    /// `selector.matchLabels`; empty where there is no selector, or one that selects everything. `None` where
    /// it cannot be read: whom the object is for is unknown then, and closing everyone would be no answer.
    pub fn selector(&mut self, field: Option<Field<'_>>) -> Option<BTreeMap<String, String>> {
        let mut selector = self.fields(field.unwrap_or(Field { path: String::new(), value: &Value::Null }));
        let path = format!("{}.matchLabels", selector.path);
        let labels = self.text_map(selector.take("matchLabels"));
        self.finish(selector);
        if labels.iter().any(|(key, value)| key.is_empty() || key.contains('*') || value.contains('*')) {
            self.refuse(&path, "InvalidSelector", "a label must have a key, and no wildcard");
        }
        if self.refused {
            let message = "whom this is for cannot be read, so it is left out";
            self.report(Severity::Error, "spec.selector", "LeftOut", message);
            return None;
        }
        Some(labels)
    }

    /// Refuses the fields that nobody asked for.
    pub fn finish(&mut self, fields: Fields<'_>) {
        for (name, field) in fields.entries().filter(|(name, _)| !fields.taken.contains(name)) {
            self.refuse(&field.path, "UnknownField", format!("there is no field '{name}' here"));
        }
    }

    fn created(&mut self, value: Option<&Value>) -> Option<i64> {
        let text = value.filter(|value| !value.is_null())?;
        let time = text.as_str().and_then(|text| OffsetDateTime::parse(text, &Rfc3339).ok());
        if time.is_none() {
            let message = "this is not an RFC 3339 time; the object counts as the youngest";
            self.report(Severity::Warning, "metadata.creationTimestamp", "InvalidValue", message);
        }
        Some(time?.unix_timestamp())
    }
}

/// Labels and annotations, where a number or truth value without quotes can only mean its text.
fn scalars(value: Option<&Value>) -> BTreeMap<String, String> {
    let entries = value.and_then(Value::as_object).into_iter().flatten();
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    };
    entries.filter_map(|(name, value)| Some((name.clone(), text(value)?))).collect()
}

/// The fields of a mapping, of which the known ones are taken one after the other.
pub(super) struct Fields<'v> {
    pub path: String,
    map: Option<&'v Map<String, Value>>,
    taken: Vec<&'static str>,
}

impl<'v> Fields<'v> {
    pub fn take(&mut self, name: &'static str) -> Option<Field<'v>> {
        self.taken.push(name);
        let value = self.map?.get(name)?;
        Some(Field { path: format!("{}.{name}", self.path), value })
    }

    /// All fields, taken or not, in the order of their names.
    pub fn entries(&self) -> impl Iterator<Item = (&'v str, Field<'v>)> {
        let path = self.path.clone();
        self.map
            .into_iter()
            .flatten()
            .map(move |(name, value)| (name.as_str(), Field { path: format!("{path}.{name}"), value }))
    }
}
