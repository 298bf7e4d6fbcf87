//! What is known about one setting, apart from its value: names, class, unit, documentation.
//!
//! The instances are made by the table in `schema`; parsing, diff and documentation walk them.

/// Whether a change of a setting applies to the running gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Applied in place: no connection notices.
    Dynamic,
    /// Needs a new worker generation, for the reason given.
    Restart(&'static str),
}

/// What the number of a setting counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Not a quantity.
    None,
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
}

impl Field {
    /// Name of the environment variable.
    pub fn env(&self) -> String {
        format!("PORTCULLIS_{}", self.key.to_ascii_uppercase().replace('-', "_"))
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
