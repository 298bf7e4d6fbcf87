//! A canary: another backend for some of the requests of a route.

use std::fmt;
use std::sync::Arc;

use http::HeaderName;
use regex_automata::meta::{Config, Regex};
use regex_automata::util::syntax;

use super::hosts::Route;

/// Bytes of a pattern as it is written.
const LONGEST_PATTERN: usize = 1024;
/// Bytes of the automaton that it becomes.
const LARGEST_AUTOMATON: usize = 256 << 10;
/// Bytes that each thread may use to remember states of it.
const LARGEST_CACHE: usize = 64 << 10;

/// The canary of a route.
#[derive(Clone)]
pub struct Canary {
    pub rules: Arc<CanaryRules>,
    /// What the requests take that are its own. Policy and names are those of the main Ingress.
    pub route: Arc<Route>,
}

impl PartialEq for Canary {
    fn eq(&self, other: &Self) -> bool {
        self.rules == other.rules && Arc::ptr_eq(&self.route, &other.route)
    }
}

/// Which requests are the canary's: the first rule that has something to say decides.
#[derive(Clone, Debug, PartialEq)]
pub struct CanaryRules {
    /// A session stays with the backend that it began with, whatever the rules say.
    pub sticky: bool,
    pub header: Option<HeaderRule>,
    /// A cookie that says `always` or `never`.
    pub cookie: Option<Box<str>>,
    /// Of `total` requests.
    pub weight: u32,
    pub total: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct HeaderRule {
    pub name: HeaderName,
    pub values: HeaderValues,
}

/// What a field must say.
#[derive(Clone, Debug, PartialEq)]
pub enum HeaderValues {
    /// `always` or `never`.
    Words,
    /// This, for the canary.
    Exactly(Box<str>),
    /// A match anywhere in it, for the canary.
    Matching(HeaderPattern),
}

/// A regular expression for the value of a field. What it takes to match is bounded, whatever the value.
#[derive(Clone)]
pub struct HeaderPattern {
    text: Box<str>,
    regex: Regex,
}

/// It is no regular expression, one with look-around or references, or too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoPattern;

impl HeaderPattern {
    pub fn new(text: &str) -> Result<Self, NoPattern> {
        if text.len() > LONGEST_PATTERN {
            return Err(NoPattern);
        }
        let limits = Config::new()
            .nfa_size_limit(Some(LARGEST_AUTOMATON))
            .onepass_size_limit(Some(LARGEST_CACHE))
            .hybrid_cache_capacity(LARGEST_CACHE)
            .utf8_empty(false);
        // Values are bytes.
        let syntax = syntax::Config::new().unicode(false).utf8(false);
        let regex = Regex::builder().configure(limits).syntax(syntax).build(text).map_err(|_| NoPattern)?;
        Ok(Self { text: text.into(), regex })
    }

    pub fn is_match(&self, value: &[u8]) -> bool {
        self.regex.is_match(value)
    }
}

impl PartialEq for HeaderPattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl fmt::Debug for HeaderPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_are_found_anywhere_and_are_of_bounded_size() {
        let pattern = HeaderPattern::new("^beta-[0-9]+$|internal").unwrap();
        for (value, matches) in
            [("beta-12", true), ("beta-", false), ("an internal one", true), ("Beta-1", false), ("", false)]
        {
            assert_eq!(pattern.is_match(value.as_bytes()), matches, "{value}");
        }
        assert!(HeaderPattern::new(r"\w").unwrap().is_match(b"\xff_"));
        assert!(!HeaderPattern::new(r"\w").unwrap().is_match(b"\xff"));
        for refused in ["(", "a{1000}{1000}", "(?=x)", r"(a)\1", &"a".repeat(2000)] {
            assert!(HeaderPattern::new(refused).is_err(), "{refused}");
        }
    }

    proptest! {
        #[test]
        fn neither_patterns_nor_values_panic(text in "\\PC{0,40}|[a-z(|)*+?{}0-9\\\\^$.\\[\\]-]{0,30}", value in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(pattern) = HeaderPattern::new(&text) {
                pattern.is_match(&value);
            }
        }
    }
}
