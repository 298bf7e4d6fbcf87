//! Which Ingress has which path of a host. The oldest is asked first and keeps what it has.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::paths::{self, Patterns, written};
use super::prepared::Prepared;
use crate::diagnostics::{Diagnostic, ObjectRef, Severity, quoted};
use crate::names::HostPattern;
use crate::snapshot::paths::PathMatch;
use crate::snapshot::redirects::Redirect;
use crate::store::objects::{Backend, Ingress, Kind, ObjectName};

/// A path of the host, the Ingress that has it and what answers there.
pub(super) struct Claim<'a> {
    pub ingress: &'a Arc<Ingress>,
    /// As the Ingress has it.
    pub written: &'a str,
    pub answer: Answer<'a>,
}

pub(super) enum Answer<'a> {
    Backend(&'a Backend),
    Redirect(Arc<Redirect>),
}

pub(super) type Claims<'a> = HashMap<(PathMatch, Box<str>), Claim<'a>>;

/// Takes the paths of an Ingress that no older one has taken. With `patterns` they are regular expressions.
pub(super) fn claim_paths<'a>(
    ingress: &'a Arc<Ingress>,
    prepared: &Prepared,
    pattern: &HostPattern,
    mut patterns: Option<&mut Patterns>,
    claims: &mut Claims<'a>,
    findings: &mut Vec<Diagnostic>,
) {
    let wanted = prepared.rewriting.target.as_ref().map_or(0, |target| target.groups());
    for (rule, path) in prepared.paths_of(ingress, pattern) {
        let written = written(path);
        let field = || format!("spec.rules[{rule}].http.paths[{}].path", path.index);
        let is_service = matches!(path.backend, Backend::Service { .. });
        let host = prepared.rewriting.host.as_ref().filter(|_| is_service);
        if host.is_some_and(|host| host.of(ingress, &path.backend).is_none()) {
            findings.push(paths::unknown_port(ingress, rule, path));
        }
        let known = patterns.as_deref_mut();
        let Some(key) = paths::key(ingress, path, known, wanted, field, findings) else { continue };
        match claims.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(Claim { ingress, written, answer: Answer::Backend(&path.backend) });
            }
            Entry::Occupied(entry) => {
                let winner = &entry.get().ingress.metadata.name;
                findings.push(path_conflict(ingress, field(), pattern, written, winner));
            }
        }
    }
}

/// A default backend serves what no rule takes: of the hosts that its Ingress has rules for, or, where it has
/// none, of requests that no host is there for.
pub(super) fn claim_root<'a>(ingress: &'a Arc<Ingress>, claims: &mut Claims<'a>) {
    if let Some(backend) = &ingress.default_backend {
        claims.entry((PathMatch::Prefix, "/".into())).or_insert(Claim {
            ingress,
            written: "/",
            answer: Answer::Backend(backend),
        });
    }
}

fn path_conflict(
    ingress: &Ingress,
    field: String,
    pattern: &HostPattern,
    path: &str,
    winner: &ObjectName,
) -> Diagnostic {
    let object = ObjectRef::new(Kind::Ingress, &ingress.metadata.name);
    let path = quoted(path);
    let (reason, message) = match *winner == ingress.metadata.name {
        true => (
            "DuplicatePath",
            format!("Path {path} of host {pattern} occurs before in this Ingress; the first one is served."),
        ),
        false => (
            "PathConflict",
            format!("Path {path} of host {pattern} is served by the older Ingress {winner}."),
        ),
    };
    Diagnostic::new(Severity::Warning, object, field, reason, message)
}
