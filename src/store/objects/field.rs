//! Reading a [`Node`] field by field: each value knows its path, and what is wrong with it goes to
//! [`Findings`]. Used by the kinds in this folder; a wrong value reads as "not given", nothing panics, and
//! no message repeats more than a short, escaped piece of the input.

use std::fmt;

use super::{Kind, Node, ObjectName};
use crate::diagnostics::{Diagnostic, ObjectRef, Severity};

/// A value in a document and the way to it.
#[derive(Clone, Copy)]
pub struct Field<'a> {
    node: &'a Node<'a>,
    step: Step<'a>,
    parent: Option<&'a Field<'a>>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Root,
    Key(&'a str),
    Item(usize),
}

impl<'a> Field<'a> {
    /// The whole document.
    pub fn root(node: &'a Node<'a>) -> Self {
        Self { node, step: Step::Root, parent: None }
    }

    /// The value under `key`, unless it is missing or null.
    pub fn get(&'a self, key: &'a str) -> Option<Field<'a>> {
        self.node.get(key).map(|node| Field { node, step: Step::Key(key), parent: Some(self) })
    }

    /// The value as JSON, for readers that want all of it.
    pub(super) fn to_json(self) -> serde_json::Value {
        self.node.to_json()
    }

    /// The entries of a mapping; none where it is something else.
    pub fn entries(
        &'a self,
        findings: &mut Findings,
    ) -> impl Iterator<Item = (&'a str, Field<'a>)> + use<'a> {
        let entries = match self.node {
            Node::Map(entries) => entries.as_slice(),
            _ => {
                findings.wrong_type(self, "a mapping");
                &[]
            }
        };
        entries
            .iter()
            .map(|(key, node)| (&**key, Field { node, step: Step::Key(key), parent: Some(self) }))
            .filter(|(_, field)| *field.node != Node::Null)
    }

    /// The items of a list; none where it is something else.
    pub fn items(&'a self, findings: &mut Findings) -> impl ExactSizeIterator<Item = Field<'a>> + use<'a> {
        let items = match self.node {
            Node::List(items) => items.as_slice(),
            _ => {
                findings.wrong_type(self, "a list");
                &[]
            }
        };
        items.iter().enumerate().map(|(at, node)| Field { node, step: Step::Item(at), parent: Some(self) })
    }

    /// What `decode` makes of the items of a list, less those it makes nothing of.
    pub fn list<T>(
        &'a self,
        findings: &mut Findings,
        decode: impl Fn(&Field<'a>, &mut Findings) -> Option<T>,
    ) -> Vec<T> {
        let items = self.items(findings);
        // Room for no more than there is: most lists have one item, and there are thousands of them.
        let mut decoded = Vec::with_capacity(items.len());
        for item in items {
            decoded.extend(decode(&item, findings));
        }
        decoded
    }

    pub fn text(&self, findings: &mut Findings) -> Option<&'a str> {
        match self.node {
            Node::String(text) => Some(text),
            _ => {
                findings.wrong_type(self, "a string");
                None
            }
        }
    }

    pub fn bool(&self, findings: &mut Findings) -> Option<bool> {
        match self.node {
            Node::Bool(value) => Some(*value),
            _ => {
                findings.wrong_type(self, "true or false");
                None
            }
        }
    }

    /// A port number, 1 to 65535.
    pub fn port(&self, findings: &mut Findings) -> Option<u16> {
        match self.node {
            Node::Integer(number) => {
                let port = u16::try_from(*number).ok().filter(|port| *port != 0);
                if port.is_none() {
                    findings.error(self, "InvalidPort", format!("port {number} is not within 1 to 65535"));
                }
                port
            }
            _ => {
                findings.wrong_type(self, "a number from 1 to 65535");
                None
            }
        }
    }

    /// Its place in the list that it is an item of, from 0.
    pub fn index(&self) -> usize {
        match self.step {
            Step::Item(at) => at,
            Step::Root | Step::Key(_) => 0,
        }
    }

    /// Whether it is a list.
    pub fn is_list(&self) -> bool {
        matches!(self.node, Node::List(_))
    }

    /// Whether it is a mapping; reported where it is not.
    pub fn is_mapping(&self, findings: &mut Findings) -> bool {
        let mapping = matches!(self.node, Node::Map(_));
        if !mapping {
            findings.wrong_type(self, "a mapping");
        }
        mapping
    }

    /// Whether it is a number, where a field may be a number or a name.
    pub fn is_number(&self) -> bool {
        matches!(self.node, Node::Integer(_) | Node::Number(_))
    }

    /// Reports keys of a mapping that are not in `known`, as typing errors mostly are.
    pub fn only(&'a self, known: &[&str], findings: &mut Findings) {
        for (key, field) in self.entries(findings) {
            if !known.contains(&key) {
                let message =
                    format!("the field is unknown here and ignored; known are {}", known.join(", "));
                findings.warning(&field, "UnknownField", message);
            }
        }
    }
}

/// The path, as `spec.rules[0].http.paths[1].path`.
impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Root => Ok(()),
            Step::Item(at) => write!(f, "[{at}]"),
            Step::Key(key) if key.contains('/') => write!(f, "[{}]", Short(key)),
            Step::Key(key) => {
                let root = self.parent.is_none_or(|parent| matches!(parent.step, Step::Root));
                write!(f, "{}{}", if root { "" } else { "." }, Short(key))
            }
        }
    }
}

/// What decoding found, each finding naming the object that is being decoded.
#[derive(Default)]
pub struct Findings {
    list: Vec<Diagnostic>,
    object: Option<ObjectRef>,
}

impl Findings {
    pub fn new() -> Self {
        Self::default()
    }

    /// Names the object that further findings are about.
    pub fn enter(&mut self, kind: Kind, name: &ObjectName) {
        self.object = Some(ObjectRef::new(kind, name));
    }

    /// Further findings are about no object.
    pub fn leave(&mut self) {
        self.object = None;
    }

    pub fn error(&mut self, field: &Field<'_>, reason: &'static str, message: impl Into<String>) {
        self.add(Severity::Error, field, reason, message.into());
    }

    pub fn warning(&mut self, field: &Field<'_>, reason: &'static str, message: impl Into<String>) {
        self.add(Severity::Warning, field, reason, message.into());
    }

    /// The last error leaves nothing of the object that could be used, and says what that means.
    pub(super) fn object_stays(&mut self) {
        let about = self.object.as_ref();
        let last =
            self.list.last_mut().filter(|it| it.severity == Severity::Error && it.object.as_ref() == about);
        if let Some(last) = last {
            last.message.push_str("; the object stays as it was, where it was there before");
        }
    }

    fn wrong_type(&mut self, field: &Field<'_>, expected: &str) {
        let message = format!("expected {expected}, found {}", field.node.shape());
        self.error(field, "WrongType", message);
    }

    fn add(&mut self, severity: Severity, field: &Field<'_>, reason: &'static str, message: String) {
        // A hostile document can be wrong in a million places; the first ones tell the story.
        if self.list.len() < MOST {
            let object = self.object.clone();
            let field = field.to_string();
            self.list.push(Diagnostic { severity, file: None, object, field, reason, message });
        }
    }

    /// Adds findings that are complete.
    pub fn extend(&mut self, findings: Vec<Diagnostic>) {
        self.list.extend(findings);
    }

    pub fn into_list(self) -> Vec<Diagnostic> {
        self.list
    }
}

/// Findings kept of one document.
const MOST: usize = 200;

/// `text` for a message: in quotes, escaped, at most 64 characters. Not for Secret values.
pub fn quoted(text: &str) -> String {
    format!("\"{}\"", Short(text))
}

/// A text as messages carry it: escaped, at most 64 characters.
pub(super) struct Short<'a>(pub &'a str);

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0.char_indices().nth(64).map(|(end, _)| end);
        match end.and_then(|end| self.0.get(..end)) {
            Some(start) => write!(f, "{}…", start.escape_debug()),
            None => write!(f, "{}", self.0.escape_debug()),
        }
    }
}
