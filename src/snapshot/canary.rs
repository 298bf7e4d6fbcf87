//! A canary: another backend for some of the requests of a route.

use std::sync::Arc;

use http::HeaderName;

use super::hosts::Route;
use super::search::{Bounds, SearchPattern};

/// Of a pattern for the value of a field.
pub const HEADER_PATTERN: Bounds = Bounds { text: 1024, automaton: 256 << 10 };

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
    Matching(SearchPattern),
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_are_found_anywhere_and_are_of_bounded_size() {
        let pattern = SearchPattern::new("^beta-[0-9]+$|internal", HEADER_PATTERN).unwrap();
        for (value, matches) in
            [("beta-12", true), ("beta-", false), ("an internal one", true), ("Beta-1", false), ("", false)]
        {
            assert_eq!(pattern.is_match(value.as_bytes()), matches, "{value}");
        }
        assert!(SearchPattern::new(r"\w", HEADER_PATTERN).unwrap().is_match(b"\xff_"));
        assert!(!SearchPattern::new(r"\w", HEADER_PATTERN).unwrap().is_match(b"\xff"));
        for refused in ["(", "a{1000}{1000}", "(?=x)", r"(a)\1", &"a".repeat(2000)] {
            assert!(SearchPattern::new(refused, HEADER_PATTERN).is_err(), "{refused}");
        }
    }

    proptest! {
        #[test]
        fn neither_patterns_nor_values_panic(text in "\\PC{0,40}|[a-z(|)*+?{}0-9\\\\^$.\\[\\]-]{0,30}", value in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(pattern) = SearchPattern::new(&text, HEADER_PATTERN) {
                pattern.is_match(&value);
            }
        }
    }
}
