//! A settings file as YAML or JSON: one flat map, each entry with its line.

use std::fmt;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_saphyr::{Spanned, UserMessageFormatter};

use super::LoadError;
use crate::settings::value::Raw;

/// One key of the file.
pub(super) struct Entry {
    pub key: String,
    pub value: Raw,
    /// Counted from 1; 0 where it is not known.
    pub line: u64,
}

/// Reads the text of `file`. An empty file has no entries.
pub(super) fn parse(file: &Path, text: &str) -> Result<Vec<Entry>, LoadError> {
    let options = serde_saphyr::options! {
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
        with_snippet: false,
    };
    let entries: Option<Entries> = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let line = error.location().map_or(0, |location| location.line());
        let message = error.render_with_formatter(&UserMessageFormatter);
        // The place is told once, in front.
        let message = message.rsplit_once(" at line ").map_or(&*message, |(message, _)| message);
        LoadError::Syntax { file: file.to_owned(), line, message: message.to_owned() }
    })?;
    Ok(entries.map(|entries| entries.0).unwrap_or_default())
}

struct Entries(Vec<Entry>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of settings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            let value = map.next_value()?;
            entries.push(Entry { line: key.referenced.line(), key: key.value, value });
        }
        Ok(Entries(entries))
    }
}
