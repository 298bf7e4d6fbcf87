//! Paths: the one canonical form of a path, and the map from a canonical path to a route.
//!
//! [`canonical_path`] is applied to the path of every request and to every path of an Ingress; matching,
//! authorisation and forwarding all use its result, so no spelling of a path can reach around a rule.
//! [`PathMap`] is built by `compile` and read by `proxy` without allocation, in time bounded by the longest
//! path that was configured, whatever a client sends. Regular expressions are a third list beside `exact` and
//! `prefixes`, empty for nearly all hosts, and asked one after the other.

mod canonical;
pub mod patterns;
#[cfg(test)]
mod tests;

use std::cmp::{Ordering, Reverse};
use std::collections::HashSet;
use std::sync::Arc;

pub use canonical::{PathError, assembled_path, canonical_path};
use patterns::PathPattern;

/// How the path of a rule is compared with the path of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathMatch {
    /// Byte by byte.
    Exact,
    /// By segments: `/foo` is for `/foo`, `/foo/` and `/foo/bar`, never for `/foobar`.
    ///
    /// `/foo/` is for the same requests, `/foo` included, as Kubernetes defines it (nginx would redirect that
    /// one). Where both are configured, `/foo` keeps the requests for exactly `/foo`.
    Prefix,
    /// As a regular expression for its beginning: see [`patterns`].
    Pattern,
}

/// Routes of one host by path. An exact path comes before patterns, those before prefixes. A longer path comes before a
/// shorter one, and of patterns that are equally long the last in the order of text, as ingress-nginx has it.
#[derive(Clone, Debug)]
pub struct PathMap<T> {
    /// Longest path first, as they are shown.
    routes: Box<[Entry<T>]>,
    /// Paths in order, with the index of their route.
    exact: Box<[(Box<str>, usize)]>,
    /// In the order of [`compare`]: whatever a prefix covers comes right after it.
    prefixes: Box<[Prefix]>,
    /// In the order in which they are asked, with the index of their route.
    patterns: Box<[(Arc<PathPattern>, usize)]>,
}

#[derive(Clone, Debug)]
struct Entry<T> {
    kind: PathMatch,
    path: Box<str>,
    route: T,
}

#[derive(Clone, Debug)]
struct Prefix {
    path: Box<str>,
    /// Index of the longest other prefix that covers this one.
    parent: Option<usize>,
    /// Index of the route.
    route: usize,
}

impl<T> Default for PathMap<T> {
    fn default() -> Self {
        Self {
            routes: Box::default(),
            exact: Box::default(),
            prefixes: Box::default(),
            patterns: Box::default(),
        }
    }
}

impl<T> PathMap<T> {
    /// A map of routes by canonical path. Of two with the same kind and path, the first stays.
    pub fn new(routes: impl IntoIterator<Item = (PathMatch, Box<str>, T)>) -> Self {
        Self::with_patterns(routes, |_| None)
    }

    /// As [`new`](Self::new), with patterns by their text. A pattern that is not to be had is never matched.
    pub fn with_patterns(
        routes: impl IntoIterator<Item = (PathMatch, Box<str>, T)>,
        pattern: impl Fn(&str) -> Option<Arc<PathPattern>>,
    ) -> Self {
        let mut seen = HashSet::new();
        let mut routes: Vec<_> = routes
            .into_iter()
            .filter(|(kind, path, _)| seen.insert((*kind, path.clone())))
            .map(|(kind, path, route)| Entry { kind, path, route })
            .collect();
        routes.sort_by(|a, b| a.display_order().cmp(&b.display_order()));

        let paths_of = |kind| {
            let entries = routes.iter().enumerate().filter(move |(_, entry)| entry.kind == kind);
            entries.map(|(index, entry)| (entry.path.clone(), index))
        };
        let mut exact: Vec<_> = paths_of(PathMatch::Exact).collect();
        exact.sort();
        let prefixes = link(with_bare_forms(paths_of(PathMatch::Prefix).collect()));
        let mut texts: Vec<_> = paths_of(PathMatch::Pattern).collect();
        texts.sort_by_key(|(text, _)| Reverse((text.len(), text.clone())));
        let patterns = texts.into_iter().filter_map(|(text, index)| Some((pattern(&text)?, index)));
        Self {
            exact: exact.into(),
            prefixes: prefixes.into(),
            patterns: patterns.collect(),
            routes: routes.into(),
        }
    }

    /// The route for `path`, which must be canonical.
    pub fn find(&self, path: &str) -> Option<&T> {
        let found = self.find_exact(path);
        found.or_else(|| self.find_pattern(path)).or_else(|| self.find_prefix(path))
    }

    /// All routes, longest path first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.routes.iter().map(|entry| &entry.route)
    }

    /// All routes with the path they were configured for, in the order of [`iter`](Self::iter).
    pub fn entries(&self) -> impl Iterator<Item = (PathMatch, &str, &T)> {
        self.routes.iter().map(|entry| (entry.kind, &*entry.path, &entry.route))
    }

    /// All patterns with their text.
    pub fn patterns(&self) -> impl Iterator<Item = (&str, &Arc<PathPattern>)> {
        let text = |index: usize| self.routes.get(index).map(|entry| &*entry.path);
        self.patterns.iter().filter_map(move |(pattern, index)| Some((text(*index)?, pattern)))
    }

    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    fn find_exact(&self, path: &str) -> Option<&T> {
        let found = self.exact.binary_search_by(|(exact, _)| (**exact).cmp(path)).ok()?;
        self.route(self.exact.get(found)?.1)
    }

    fn find_pattern(&self, path: &str) -> Option<&T> {
        let (_, index) = self.patterns.iter().find(|(pattern, _)| pattern.matches(path))?;
        self.route(*index)
    }

    /// The last prefix that is not after `path` is, in this order, the longest one that covers it or one of
    /// those that the longest one covers too: going up from there finds it.
    fn find_prefix(&self, path: &str) -> Option<&T> {
        let after = self.prefixes.partition_point(|prefix| compare(&prefix.path, path) != Ordering::Greater);
        let mut candidate = self.prefixes.get(after.checked_sub(1)?)?;
        while !covers(&candidate.path, path) {
            candidate = self.prefixes.get(candidate.parent?)?;
        }
        self.route(candidate.route)
    }

    fn route(&self, index: usize) -> Option<&T> {
        self.routes.get(index).map(|entry| &entry.route)
    }
}

impl<T> Entry<T> {
    fn display_order(&self) -> (Reverse<usize>, &str, PathMatch) {
        (Reverse(self.path.len()), &self.path, self.kind)
    }
}

/// Adds to each `/foo/` a `/foo` for the same route, unless one is configured.
fn with_bare_forms(mut prefixes: Vec<(Box<str>, usize)>) -> Vec<(Box<str>, usize)> {
    let configured: HashSet<Box<str>> = prefixes.iter().map(|(path, _)| path.clone()).collect();
    let bare: Vec<_> = prefixes
        .iter()
        .filter_map(|(path, route)| Some((path.strip_suffix('/')?, *route)))
        .filter(|(path, _)| !path.is_empty() && !configured.contains(*path))
        .map(|(path, route)| (path.into(), route))
        .collect();
    prefixes.extend(bare);
    prefixes
}

/// Puts prefixes in order and gives each its parent.
fn link(mut prefixes: Vec<(Box<str>, usize)>) -> Vec<Prefix> {
    prefixes.sort_by(|(a, _), (b, _)| compare(a, b));
    let mut linked: Vec<Prefix> = Vec::with_capacity(prefixes.len());
    let mut open: Vec<usize> = Vec::new();
    for (path, route) in prefixes {
        while open.last().is_some_and(|&index| !covers(&linked[index].path, &path)) {
            open.pop();
        }
        let parent = open.last().copied();
        open.push(linked.len());
        linked.push(Prefix { path, parent, route });
    }
    linked
}

/// Whether the segments of `path` begin with those of `prefix`.
fn covers(prefix: &str, path: &str) -> bool {
    match path.strip_prefix(prefix) {
        Some(rest) => rest.is_empty() || rest.starts_with('/') || prefix.ends_with('/'),
        None => false,
    }
}

/// An order in which everything below `/foo` follows it at once: `/` is the least of all bytes. Looks no
/// further than the shorter of the two.
fn compare(a: &str, b: &str) -> Ordering {
    let rank = |byte: u8| if byte == b'/' { 0 } else { byte };
    let differing = a.bytes().zip(b.bytes()).find(|(a, b)| a != b);
    match differing {
        Some((a, b)) => rank(a).cmp(&rank(b)),
        None => a.len().cmp(&b.len()),
    }
}
