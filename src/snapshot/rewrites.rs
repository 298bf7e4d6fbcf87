//! What a route changes of a request before its backend sees it: the path, Host and X-Forwarded-Prefix.
//! Annotations are parsed into templates once; the pipeline fills them in.
//!
//! What comes out is a canonical path again, whatever a client put into the groups: no group can make a segment that
//! leads upwards, begin a query or a fragment, or add a parameter to the query.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;

use http::HeaderValue;

use super::paths::patterns::{Captures, MOST_GROUPS, PathPattern};
use super::paths::{PathError, assembled_path, canonical_path};

/// Bytes of a target that a template may fill: as many as `http::Uri` can hold.
const LONGEST: usize = u16::MAX as usize - 1;

/// What one route changes.
#[derive(Clone, Debug, Default)]
pub struct Rewrite {
    /// Where the groups of the templates come from.
    pub pattern: Option<Arc<PathPattern>>,
    /// Takes the place of the whole path.
    pub target: Option<Arc<Target>>,
    /// Takes the place of Host.
    pub host: Option<HeaderValue>,
    /// X-Forwarded-Prefix.
    pub prefix: Option<Arc<Template>>,
}

impl Rewrite {
    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.target.is_none() && self.host.is_none() && self.prefix.is_none()
    }

    /// The groups of its pattern in `path`.
    pub fn captures<'p>(&self, path: &'p str) -> Captures<'p> {
        self.pattern.as_ref().map_or_else(Captures::none, |pattern| pattern.captures(path))
    }
}

/// Patterns are shared as long as their text stays.
impl PartialEq for Rewrite {
    fn eq(&self, other: &Self) -> bool {
        let same_pattern = match (&self.pattern, &other.pattern) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        same_pattern
            && (&self.target, &self.host, &self.prefix) == (&other.target, &other.host, &other.prefix)
    }
}

/// Text with groups of a pattern in it, as `/a/$1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Box<[Piece]>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Box<str>),
    /// `$1` to `$9`.
    Group(usize),
}

/// Why a text is no template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateError {
    Malformed,
    /// It has a variable that is none of the groups.
    UnknownVariable,
}

impl Template {
    /// Reads a path with groups in it.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        // A group may be the whole beginning.
        if !text.starts_with(['/', '$']) || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TemplateError::Malformed);
        }
        let mut parts = text.split('$');
        let mut pieces: Vec<_> = parts.next().into_iter().map(|text| Piece::Text(text.into())).collect();
        for part in parts {
            let group = part.chars().next().and_then(|char| char.to_digit(10)).filter(|group| *group > 0);
            let group = group.and_then(|group| usize::try_from(group).ok());
            pieces.push(Piece::Group(group.ok_or(TemplateError::UnknownVariable)?));
            pieces.push(Piece::Text(part[1..].into()));
        }
        pieces.retain(|piece| !matches!(piece, Piece::Text(text) if text.is_empty()));
        Ok(Self(pieces.into()))
    }

    /// The largest group that it asks for; 0 where it asks for none.
    pub fn groups(&self) -> usize {
        let group = |piece: &Piece| if let Piece::Group(group) = piece { *group } else { 0 };
        self.0.iter().map(group).max().unwrap_or(0)
    }

    /// The text with the groups as `write` puts them; `None` where it would be longer than any target may be.
    fn fill_with(&self, captures: &Captures<'_>, write: impl Fn(&mut String, &str)) -> Option<String> {
        let mut out = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Group(group) => write(&mut out, captures.get(*group)),
            }
            if out.len() > LONGEST {
                return None;
            }
        }
        Some(out)
    }

    /// The text for a request; `None` where it would be too long.
    pub fn fill(&self, captures: &Captures<'_>) -> Option<String> {
        self.fill_with(captures, |out, group| out.push_str(group))
    }

    /// Whether every piece of text can stand in a path, whatever the groups beside it are.
    fn is_path(&self) -> bool {
        let is_fit = |piece: &Piece| match piece {
            // A slash in front, for what begins within a path.
            Piece::Text(text) => canonical_path(&format!("/{text}")).is_ok(),
            Piece::Group(_) => true,
        };
        let filled = self.fill_with(&Captures::none(), |out, _| out.push('x')).unwrap_or_default();
        self.0.iter().all(is_fit) && assembled_path(&format!("/{filled}")).is_ok()
    }
}

/// `rewrite-target`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// As it was written.
    text: Box<str>,
    path: Template,
    /// What goes before the query of the request; where there is nothing, that query goes too, as in nginx.
    query: Option<Template>,
}

/// Why a request has no target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RewriteError {
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("it would be too long")]
    TooLong,
}

impl Target {
    /// Reads a path, with a query after it where there is a `?`.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let (path, query) = match text.split_once('?') {
            // As anything without a path in front of it, it may begin with whatever it likes.
            Some((path, query)) => (path, Some(Template::parse(&format!("/{query}"))?.without_slash())),
            None => (text, None),
        };
        let is_query = |byte: u8| byte.is_ascii_graphic() && !b"\"#<>\\^`{|}".contains(&byte);
        let path = Template::parse(path)?;
        if !path.is_path() || !text.bytes().all(is_query) {
            return Err(TemplateError::Malformed);
        }
        Ok(Self { text: text.into(), path, query })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The largest group that it asks for; 0 where it asks for none.
    pub fn groups(&self) -> usize {
        self.path.groups().max(self.query.as_ref().map_or(0, Template::groups))
    }

    /// The path and query for a request that had `query`.
    pub fn fill(&self, captures: &Captures<'_>, query: Option<&str>) -> Result<String, RewriteError> {
        let mut path = self.path.fill(captures).ok_or(RewriteError::TooLong)?;
        if !path.starts_with('/') {
            path.insert(0, '/');
        }
        let canonical = match assembled_path(&path)? {
            Cow::Borrowed(_) => None,
            Cow::Owned(canonical) => Some(canonical),
        };
        let mut target = canonical.unwrap_or(path);
        let mut separator = '?';
        if let Some(ours) = &self.query {
            if ours.0.iter().all(|piece| matches!(piece, Piece::Text(text) if text.is_empty())) {
                return Ok(target);
            }
            target.push(separator);
            target.push_str(&ours.fill_with(captures, write_parameter).ok_or(RewriteError::TooLong)?);
            separator = '&';
        }
        if let Some(query) = query {
            target.push(separator);
            target.push_str(query);
        }
        match target.len() > LONGEST {
            true => Err(RewriteError::TooLong),
            false => Ok(target),
        }
    }
}

impl Template {
    /// Without the slash that [`parse`](Self::parse) wants at the beginning.
    fn without_slash(mut self) -> Self {
        if let Some(Piece::Text(text)) = self.0.first_mut() {
            *text = text.strip_prefix('/').unwrap_or(text).into();
        }
        self
    }
}

/// Writes a part of a path so that it is a part of one parameter.
fn write_parameter(out: &mut String, group: &str) {
    for char in group.chars() {
        match char {
            '&' | '=' | '+' | ';' => _ = write!(out, "%{:02X}", u32::from(char)),
            _ => out.push(char),
        }
    }
}

// The limit of groups is what a digit after `$` can say.
const _: () = assert!(MOST_GROUPS == 9);

#[cfg(test)]
mod tests;
