//! What the paths of Ingresses are taken for, and what there is to say about that. Regular expressions are compiled once
//! for all hosts of a compile, and kept from the snapshot before.

use std::collections::HashMap;
use std::sync::Arc;

use crate::diagnostics::{Diagnostic, ObjectRef, Severity, quoted};
use crate::names::HostPattern;
use crate::snapshot::hosts::Host;
use crate::snapshot::paths::patterns::{PathPattern, PatternError};
use crate::snapshot::paths::{PathMatch, canonical_path};
use crate::store::objects::{Ingress, IngressPath, Kind, ObjectName, PathType};

type Compiled = Result<Arc<PathPattern>, PatternError>;

/// Patterns by their text.
#[derive(Default)]
pub(super) struct Patterns(HashMap<Box<str>, Compiled>);

impl Patterns {
    /// Has the patterns of `host` stay the ones they are.
    pub fn keep(&mut self, host: &Host) {
        for (text, pattern) in host.routes.patterns() {
            self.0.entry(text.into()).or_insert_with(|| Ok(pattern.clone()));
        }
    }

    /// The pattern, compiled where it was not.
    pub fn compile(&mut self, text: &str) -> &Compiled {
        self.0.entry(text.into()).or_insert_with(|| PathPattern::new(text).map(Arc::new))
    }

    /// The pattern, where it was compiled and can be used.
    pub fn get(&self, text: &str) -> Option<&Arc<PathPattern>> {
        self.0.get(text)?.as_ref().ok()
    }
}

/// The path as the Ingress has it.
pub(super) fn written(path: &IngressPath) -> &str {
    if path.path.is_empty() { "/" } else { &path.path }
}

/// What a path is filed under, and what there is to say about that. With `patterns` it is a regular expression, of which
/// groups up to `wanted` are asked for.
pub(super) fn key(
    ingress: &Ingress,
    path: &IngressPath,
    patterns: Option<&mut Patterns>,
    wanted: usize,
    field: impl Fn() -> String,
    findings: &mut Vec<Diagnostic>,
) -> Option<(PathMatch, Box<str>)> {
    let written = written(path);
    let Some(patterns) = patterns else { return literal(ingress, path, field, findings) };
    // As a regular expression, the root is for all paths.
    if written == "/" {
        return Some((PathMatch::Prefix, written.into()));
    }
    match patterns.compile(written) {
        Ok(compiled) => {
            if compiled.groups() < wanted {
                findings.push(missing_group(ingress, field(), written, wanted, compiled.groups()));
            }
            Some((PathMatch::Pattern, written.into()))
        }
        Err(error) => {
            findings.push(invalid(ingress, field(), written, error));
            None
        }
    }
}

/// A path that means what it says, in the canonical form; `None` where it is none.
fn literal(
    ingress: &Ingress,
    path: &IngressPath,
    field: impl Fn() -> String,
    findings: &mut Vec<Diagnostic>,
) -> Option<(PathMatch, Box<str>)> {
    let written = written(path);
    let mut tell = |severity, reason, message: String| {
        let object = ObjectRef::new(Kind::Ingress, &ingress.metadata.name);
        findings.push(Diagnostic::new(severity, object, field(), reason, message));
    };
    match canonical_path(written) {
        Ok(canonical) => {
            if canonical != written {
                let message = format!("{} is taken as {}.", quoted(written), quoted(&canonical));
                tell(Severity::Info, "PathNormalised", message);
            }
            Some((match_of(path), canonical.into()))
        }
        Err(error) => {
            let message = format!("{} is not a path: {error}. The path is left out.", quoted(written));
            tell(Severity::Error, "InvalidPath", message);
            None
        }
    }
}

/// A path that is no regular expression although its host has them.
fn invalid(ingress: &Ingress, field: String, path: &str, error: &PatternError) -> Diagnostic {
    let object = ObjectRef::new(Kind::Ingress, &ingress.metadata.name);
    let message = format!(
        "{} is a regular expression that cannot be used: {error}. The path is left out.",
        quoted(path)
    );
    Diagnostic::new(Severity::Error, object, field, "InvalidPattern", message)
}

/// `rewrite-target` asks for a group that a path does not have.
fn missing_group(ingress: &Ingress, field: String, path: &str, wanted: usize, groups: usize) -> Diagnostic {
    let object = ObjectRef::new(Kind::Ingress, &ingress.metadata.name);
    let message = format!(
        "rewrite-target asks for group {wanted} of the path, and {} has {groups}: nothing takes its place.",
        quoted(path)
    );
    Diagnostic::new(Severity::Warning, object, field, "MissingGroup", message)
}

/// The paths of an Ingress do not mean what they say, because of another one.
pub(super) fn compelled(
    ingress: &Ingress,
    rule: usize,
    pattern: &HostPattern,
    cause: &ObjectName,
) -> Diagnostic {
    let object = ObjectRef::new(Kind::Ingress, &ingress.metadata.name);
    let message = format!(
        "Ingress {cause} has use-regex or rewrite-target, which counts for all paths of host {pattern}: those here \
         are regular expressions too, for every path that begins with a match, whatever its case."
    );
    Diagnostic::new(
        Severity::Warning,
        object,
        format!("spec.rules[{rule}].host"),
        "PathsArePatterns",
        message,
    )
}

/// `upstream-vhost` asks for the number of a port that is given by its name.
pub(super) fn unknown_port(ingress: &Ingress, rule: usize, path: &IngressPath) -> Diagnostic {
    let object = ObjectRef::new(Kind::Ingress, &ingress.metadata.name);
    let field = format!("spec.rules[{rule}].http.paths[{}].backend.service.port", path.index);
    let message =
        "upstream-vhost asks for $service_port, which needs a number here: the Host of the client stays.";
    Diagnostic::new(Severity::Warning, object, field, "UnknownPort", message)
}

fn match_of(path: &IngressPath) -> PathMatch {
    match path.kind {
        PathType::Exact => PathMatch::Exact,
        PathType::Prefix | PathType::ImplementationSpecific => PathMatch::Prefix,
    }
}
