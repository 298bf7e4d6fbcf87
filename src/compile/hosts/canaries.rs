//! The canaries of a host: which path of which main Ingress each of them is for.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::Claims;
use crate::diagnostics::{Diagnostic, ObjectRef, Severity, quoted};
use crate::names::HostPattern;
use crate::snapshot::canary::CanaryRules;
use crate::snapshot::paths::PathMatch;
use crate::store::objects::{Backend, Ingress, Kind};

/// A path that an Ingress wants a canary for.
pub(super) struct Wish<'a> {
    pub ingress: &'a Arc<Ingress>,
    pub rules: Arc<CanaryRules>,
    pub kind: PathMatch,
    /// Canonical.
    pub path: Box<str>,
    /// Where the Ingress says so.
    pub field: String,
    pub backend: &'a Backend,
}

/// The canary of one route.
pub(super) struct Accepted<'a> {
    pub ingress: &'a Arc<Ingress>,
    pub rules: Arc<CanaryRules>,
    pub backend: &'a Backend,
}

pub(super) type Canaries<'a> = HashMap<(PathMatch, Box<str>), Accepted<'a>>;

/// Those of `wishes`, the oldest Ingress first, that have a main Ingress in `claims`; for each path the first.
pub(super) fn accept<'a>(
    wishes: Vec<Wish<'a>>,
    pattern: &HostPattern,
    claims: &Claims<'_>,
    findings: &mut Vec<Diagnostic>,
) -> Canaries<'a> {
    let mut accepted = Canaries::new();
    for wish in wishes {
        let Wish { ingress, rules, kind, path, field, backend } = wish;
        let mut refuse = |reason, why: String| {
            let message = format!("No canary for path {} of host {pattern}: {why}", quoted(&path));
            let object = ObjectRef::new(Kind::Ingress, &ingress.metadata.name);
            findings.push(Diagnostic::new(Severity::Warning, object, field.clone(), reason, message));
        };
        let key = (kind, path.clone());
        let Some(main) = claims.get(&key).map(|claim| &claim.ingress.metadata.name) else {
            let why =
                "no other Ingress has this path, of the same kind; a canary brings no routes of its own.";
            refuse("CanaryWithoutMain", why.into());
            continue;
        };
        // Who may have paths of a host is settled by age; a canary would take them from anybody.
        if main.namespace != ingress.metadata.name.namespace {
            refuse("CanaryOfOtherNamespace", format!("it is that of {main}, in another namespace."));
            continue;
        }
        match accepted.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(Accepted { ingress, rules, backend });
            }
            Entry::Occupied(entry) => {
                let first = &entry.get().ingress.metadata.name;
                refuse("CanaryConflict", format!("it has that of {first}, and one alone counts."));
            }
        }
    }
    accepted
}
