//! Names of Kubernetes objects, as data: the data plane shows them and compares them, nothing more.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

/// Namespace and name; the namespace is empty for cluster-scoped kinds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ObjectName {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl ObjectName {
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() {
            write_plain(f, &self.namespace)?;
            f.write_str("/")?;
        }
        write_plain(f, &self.name)
    }
}

/// Names in references are checked where they are used, and may be anything where they are told about.
fn write_plain(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    match name.contains(char::is_control) {
        true => write!(f, "{}", name.escape_debug()),
        false => f.write_str(name),
    }
}

/// A Service port by number or by name, or the first one that the Service lists.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServicePortRef {
    Number(u16),
    Name(String),
    First,
}
