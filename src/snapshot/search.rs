//! Regular expressions that are searched for in what a client says: a field for a canary, the subject of a certificate.
//! What it takes to match is bounded, whatever the text. Bytes are bytes: classes as `\w` mean ASCII.

use std::fmt;

use regex_automata::meta::{Config, Regex};
use regex_automata::util::syntax;

/// Bytes that each thread may use to remember states of one automaton.
const LARGEST_CACHE: usize = 64 << 10;

/// How large a pattern may be, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// As it is written.
    pub text: usize,
    /// The automaton that it becomes.
    pub automaton: usize,
}

/// A compiled pattern. A match anywhere in a text counts, unless the pattern is anchored, and case does too.
#[derive(Clone)]
pub struct SearchPattern {
    text: Box<str>,
    regex: Regex,
}

/// It is no regular expression, one with look-around or references, or too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoPattern;

impl SearchPattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// It is none, or is beyond `bounds`.
    pub fn new(text: &str, bounds: Bounds) -> Result<Self, NoPattern> {
        if text.len() > bounds.text {
            return Err(NoPattern);
        }
        let limits = Config::new()
            .nfa_size_limit(Some(bounds.automaton))
            .onepass_size_limit(Some(LARGEST_CACHE))
            .hybrid_cache_capacity(LARGEST_CACHE)
            .utf8_empty(false);
        let syntax = syntax::Config::new().unicode(false).utf8(false);
        let regex = Regex::builder().configure(limits).syntax(syntax).build(text).map_err(|_| NoPattern)?;
        Ok(Self { text: text.into(), regex })
    }

    /// Whether it is found in `text`.
    pub fn is_match(&self, text: &[u8]) -> bool {
        self.regex.is_match(text)
    }
}

impl PartialEq for SearchPattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl fmt::Debug for SearchPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}
