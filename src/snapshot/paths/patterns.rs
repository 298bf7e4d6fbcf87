//! Paths that are regular expressions, as `use-regex` and `rewrite-target` make those of a host.
//!
//! A pattern is for every path that begins with a match of it, without regard to case. It is compiled once, by
//! `compile`, into an automaton of bounded size that looks at each byte of a path a bounded number of times, whatever
//! the path. What such automata cannot do, look-around and references to groups, is refused. Canonical paths are ASCII,
//! so classes as `\w` mean ASCII.

use std::fmt;

use regex_automata::meta::{self, Regex};
use regex_automata::nfa::thompson::WhichCaptures;
use regex_automata::util::primitives::NonMaxUsize;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input};
use regex_syntax::hir::{Hir, HirKind};

use super::canonical::{PathError, canonical_path};

/// Bytes of one automaton: enough for the longest path that Kubernetes allows, letter by letter.
const LARGEST: usize = 512 << 10;
/// Bytes that each thread may use to remember states of one automaton.
const LARGEST_CACHE: usize = 64 << 10;
/// Groups that can be referred to: `$1` to `$9`.
pub const MOST_GROUPS: usize = 9;

/// A compiled pattern.
pub struct PathPattern {
    /// What every path begins with that it is for. Most paths of a host are told apart by that alone.
    prefix: Box<str>,
    /// What decides beyond the prefix; `None` where nothing does.
    regex: Option<Regex>,
    groups: usize,
}

/// Why a pattern cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("{0}")]
    Syntax(Box<str>),
    #[error("it makes an automaton that is too large")]
    TooLarge,
}

impl PathPattern {
    /// Compiles the path of an Ingress. One without any operator is brought into the canonical form first.
    pub fn new(text: &str) -> Result<Self, PatternError> {
        if !text.starts_with('/') {
            return Err(PathError::NotAbsolute.into());
        }
        if !text.contains(is_operator) {
            return Ok(Self { prefix: canonical_path(text)?.into(), regex: None, groups: 0 });
        }
        let text = escape_foreign(text);
        // Without regard to case there would be no literals to see.
        let prefix = literal_prefix(&parse(&text, false)?);
        let limits = meta::Config::new()
            .nfa_size_limit(Some(LARGEST))
            .onepass_size_limit(Some(LARGEST_CACHE))
            .hybrid_cache_capacity(LARGEST_CACHE)
            .which_captures(WhichCaptures::All)
            .utf8_empty(false)
            // There is nothing to search for: a match begins where the path does.
            .auto_prefilter(false);
        let regex = meta::Builder::new().configure(limits).build_from_hir(&parse(&text, true)?);
        let regex = regex.map_err(|error| match error.size_limit() {
            Some(_) => PatternError::TooLarge,
            None => PatternError::Syntax(first_line(&error)),
        })?;
        let groups = regex.captures_len() - 1;
        Ok(Self { prefix, regex: Some(regex), groups })
    }

    /// Whether it is for `path`, which must be canonical.
    pub fn matches(&self, path: &str) -> bool {
        self.may_match(path) && self.regex.as_ref().is_none_or(|regex| regex.is_match(anchored(path)))
    }

    /// How many groups it has.
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// The groups of its match at the beginning of `path`; none where it is not for that path.
    pub fn captures<'p>(&self, path: &'p str) -> Captures<'p> {
        let mut slots = [None; 2 * (MOST_GROUPS + 1)];
        if let Some(regex) = &self.regex {
            regex.search_slots(&anchored(path), &mut slots);
        }
        Captures { path, slots }
    }

    fn may_match(&self, path: &str) -> bool {
        let start = path.as_bytes().get(..self.prefix.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(self.prefix.as_bytes()))
    }
}

impl fmt::Debug for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PathPattern").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// What the groups of a pattern are in one path.
pub struct Captures<'p> {
    path: &'p str,
    slots: [Option<NonMaxUsize>; 2 * (MOST_GROUPS + 1)],
}

impl<'p> Captures<'p> {
    /// Of a path that no pattern was asked about.
    pub fn none() -> Self {
        Self { path: "", slots: [None; 2 * (MOST_GROUPS + 1)] }
    }

    /// The text of a group; empty where the pattern has no such group, or that had no part in the match.
    pub fn get(&self, group: usize) -> &'p str {
        let slot = |at: usize| self.slots.get(at).copied().flatten().map(NonMaxUsize::get);
        let range = slot(2 * group).zip(slot(2 * group + 1));
        range.and_then(|(start, end)| self.path.get(start..end)).unwrap_or_default()
    }
}

/// A match anywhere but at the beginning is none.
fn anchored(path: &str) -> Input<'_> {
    Input::new(path).anchored(Anchored::Yes)
}

fn is_operator(char: char) -> bool {
    r"\.+*?()|[]{}^$".contains(char)
}

/// Writes what no canonical path has, such as a space or `ü`, as paths have it. Within a class that is not possible:
/// there it is left for the parser to refuse, or never matches.
fn escape_foreign(text: &str) -> String {
    let has_class = text.contains('[');
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        if has_class || char.is_ascii_graphic() && !matches!(char, '"' | '<' | '>' | '`') {
            out.push(char);
            continue;
        }
        // One thing, should an operator follow.
        out.push_str("(?:");
        out.extend(char.encode_utf8(&mut [0; 4]).bytes().map(|byte| format!("%{byte:02X}")));
        out.push(')');
    }
    out
}

fn parse(text: &str, ignore_case: bool) -> Result<Hir, PatternError> {
    let config = syntax::Config::new().unicode(false).utf8(false).case_insensitive(ignore_case);
    syntax::parse_with(text, &config).map_err(|error| {
        PatternError::Syntax(match &error {
            regex_syntax::Error::Parse(error) => first_line(error.kind()),
            regex_syntax::Error::Translate(error) => first_line(error.kind()),
            other => first_line(other),
        })
    })
}

/// What everything begins with that `hir` matches.
fn literal_prefix(hir: &Hir) -> Box<str> {
    let bytes = match hir.kind() {
        HirKind::Literal(literal) => &literal.0,
        HirKind::Concat(parts) => match parts.first().map(Hir::kind) {
            Some(HirKind::Literal(literal)) => &literal.0,
            _ => return Box::default(),
        },
        _ => return Box::default(),
    };
    std::str::from_utf8(bytes).unwrap_or_default().into()
}

fn first_line(error: &dyn fmt::Display) -> Box<str> {
    error.to_string().lines().next().unwrap_or_default().into()
}

#[cfg(test)]
mod tests;
