//! What is known about one setting, apart from its value: names, class, unit, documentation.
//!
//! The instances are made by the table in `schema`; parsing, diff and documentation walk them.

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value as Json;

use super::Settings;
use super::value::{Invalid, Raw};

/// Whether a change of a setting applies to the running gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Applied in place: no connection notices.
    Dynamic,
    /// Needs a new worker generation, for the reason given.
    Restart(&'static str),
}

impl Class {
    /// The word for it in tables, JSON and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dynamic => "dynamic",
            Self::Restart(_) => "restart",
        }
    }
}

/// How many changes there were of each class, of settings and of objects, and edits of the settings that were refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChangeCounts {
    pub dynamic: u64,
    pub restart: u64,
    pub rejected: u64,
}

impl ChangeCounts {
    /// Counts what an edit of the settings changed.
    pub fn add(&mut self, changes: &[Change]) {
        for change in changes {
            match change.class {
                Class::Dynamic => self.dynamic += 1,
                Class::Restart(_) => self.restart += 1,
            }
        }
    }

    /// The larger of the two, by class: counters never go back.
    pub fn max(self, other: Self) -> Self {
        Self {
            dynamic: self.dynamic.max(other.dynamic),
            restart: self.restart.max(other.restart),
            rejected: self.rejected.max(other.rejected),
        }
    }
}

/// How the text of a setting is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// As it stands.
    None,
    /// Names as OpenSSL lists them: colons separate them too, and `auto` stands for the defaults.
    OpenSslNames,
    /// Seconds, as a plain number.
    Seconds,
    /// A span of time, as `500ms`, `6s`, `1m`, `2h`; a plain number counts seconds.
    Time,
    /// Bytes, as `512`, `8k`, `1m`, `1g`.
    Bytes,
    /// That many of something.
    Count(&'static str),
}

/// One row of the table.
#[derive(Debug)]
pub struct Field {
    /// Name in the settings file and the ConfigMap, and of the flag where there is one.
    pub key: &'static str,
    /// What the setting does, in one paragraph.
    pub doc: &'static str,
    pub class: Class,
    pub unit: Unit,
    /// A valid value other than the default.
    pub example: &'static str,
    /// Gives the field the value that `raw` stands for.
    pub set: fn(&mut Settings, raw: &Raw) -> Result<(), Invalid>,
    /// The value, in a form that `set` takes too.
    pub get: fn(&Settings) -> Json,
}

impl Field {
    /// Name of the environment variable.
    pub fn env(&self) -> String {
        format!("PORTCULLIS_{}", self.key.to_ascii_uppercase().replace('-', "_"))
    }
}

/// One setting that differs between two [`Settings`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    pub key: &'static str,
    #[serde(flatten)]
    pub class: Class,
    pub old: Json,
    pub new: Json,
}

/// As `"class": "dynamic"`, or `"class": "restart", "reason": …`.
impl Serialize for Class {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut entries = vec![("class", self.as_str())];
        if let Self::Restart(reason) = self {
            entries.push(("reason", reason));
        }
        serializer.collect_map(entries)
    }
}

/// The value as a person writes it: bare text, lists separated by commas.
pub fn display(value: &Json) -> String {
    match value {
        Json::Null => String::new(),
        Json::String(text) => text.clone(),
        Json::Array(items) => items.iter().map(display).collect::<Vec<_>>().join(", "),
        Json::Object(entries) => {
            let entries: Vec<_> =
                entries.iter().map(|(key, value)| format!("{key}={}", display(value))).collect();
            entries.join(", ")
        }
        Json::Bool(_) | Json::Number(_) => value.to_string(),
    }
}

/// The bytes of a field's Rust name as a settings key: `http_port` becomes `http-port`.
pub(super) const fn kebab_case<const N: usize>(name: &str) -> [u8; N] {
    let mut key = [0; N];
    let mut i = 0;
    while i < N {
        key[i] = if name.as_bytes()[i] == b'_' { b'-' } else { name.as_bytes()[i] };
        i += 1;
    }
    key
}
