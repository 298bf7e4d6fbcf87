//! The canaries of a host: which path of which main Ingress each of them is for.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::claims::Claims;
use super::{Hosts, fit, forward, paths, reuse_route};
use crate::diagnostics::{Diagnostic, ObjectRef, Severity, quoted};
use crate::names::HostPattern;
use crate::snapshot::canary::{Canary, CanaryRules};
use crate::snapshot::clusters::ClusterMap;
use crate::snapshot::hosts::{Route, RoutePolicy};
use crate::snapshot::paths::PathMatch;
use crate::store::objects::{Backend, Ingress, Kind};

/// A path that an Ingress wants a canary for.
struct Wish<'a> {
    ingress: &'a Arc<Ingress>,
    rules: Arc<CanaryRules>,
    kind: PathMatch,
    /// Canonical, or a regular expression.
    path: Box<str>,
    /// Where the Ingress says so.
    field: String,
    backend: &'a Backend,
}

/// The canary of one route.
pub(super) struct Accepted<'a> {
    pub ingress: &'a Arc<Ingress>,
    pub rules: Arc<CanaryRules>,
    pub backend: &'a Backend,
}

pub(super) type Canaries<'a> = HashMap<(PathMatch, Box<str>), Accepted<'a>>;

impl<'a> Hosts<'a> {
    /// What `ingresses`, which are canaries, ask for and get.
    pub(super) fn canaries(
        &mut self,
        ingresses: &[&'a Arc<Ingress>],
        pattern: &HostPattern,
        regex: bool,
        claims: &Claims<'a>,
        findings: &mut Vec<Diagnostic>,
    ) -> Canaries<'a> {
        let mut wishes = Vec::new();
        for &ingress in ingresses {
            self.prepare(ingress);
            let Some(prepared) = self.prepared.get(&ingress.metadata.name) else { continue };
            let Some(rules) = prepared.canary.clone() else { continue };
            let wish = |kind, path, field, backend| Wish {
                ingress,
                rules: rules.clone(),
                kind,
                path,
                field,
                backend,
            };
            for (rule, path) in prepared.paths_of(ingress, pattern) {
                let field = || format!("spec.rules[{rule}].http.paths[{}].path", path.index);
                let patterns = regex.then_some(&mut self.patterns);
                let key = paths::key(ingress, path, patterns, 0, field, findings);
                let Some((kind, text)) = key else { continue };
                wishes.push(wish(kind, text, field(), &path.backend));
            }
            if let Some(backend) = &ingress.default_backend {
                wishes.push(wish(PathMatch::Prefix, "/".into(), "spec.defaultBackend".into(), backend));
            }
        }
        accept(wishes, pattern, claims, findings)
    }

    /// The canary of `main`.
    pub(super) fn canary(
        &mut self,
        main: &Route,
        kind: PathMatch,
        canary: &Accepted<'_>,
        clusters: &ClusterMap,
        previous: Option<&Arc<Route>>,
    ) -> Option<Box<Canary>> {
        let Backend::Service { name, port } = canary.backend else { return None };
        let by_service = self.prepare(canary.ingress).service_upstream;
        let mut policy = main.policy.clone();
        if !canary.rules.sticky {
            let affinity = self.prepare(canary.ingress).policy.redirected.affinity.clone();
            policy = fit(Arc::new(RoutePolicy { affinity, ..(*policy).clone() }), kind);
        }
        // Whatever keeps somebody out of the main route keeps them out of this one.
        let route = Route {
            action: forward(canary.ingress, name, port, by_service, clusters),
            policy,
            canary: None,
            stats: Arc::default(),
            ..main.clone()
        };
        let previous = previous.and_then(|route| route.canary.as_ref());
        let route = reuse_route(route, previous.map(|canary| &canary.route));
        Some(Box::new(Canary { rules: canary.rules.clone(), route }))
    }
}

/// Those of `wishes`, the oldest Ingress first, that have a main Ingress in `claims`; for each path the first.
fn accept<'a>(
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
