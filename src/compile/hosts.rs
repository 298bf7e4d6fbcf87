//! The routes of one host, merged from all Ingresses that have rules for it.
//!
//! The oldest Ingress wins a path, so the result does not depend on the order of arrival. What did not change
//! stays the same `Arc` as before, and a route keeps its counters when its policy or its backend changes.

mod canaries;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::auth;
use super::classes::Classes;
use super::client_auth::{ClientAuths, Outcome, Wish};
use crate::annotations::{self, ClientAuthDraft, Effects, Redirects};
use crate::diagnostics::{Diagnostic, ObjectRef, Severity, quoted};
use crate::names::HostPattern;
use crate::settings::Settings;
use crate::snapshot::canary::{Canary, CanaryRules};
use crate::snapshot::clusters::{ClusterKey, ClusterMap};
use crate::snapshot::hosts::{Action, Host, HttpsRedirect, Route, RoutePolicy};
use crate::snapshot::paths::{PathMap, PathMatch, canonical_path};
use crate::snapshot::redirects::{Location, Redirect};
use crate::store::Store;
use crate::store::objects::{Backend, Ingress, IngressPath, Kind, ObjectName, PathType, ServicePortRef};
use crate::tls::policy::TlsPolicy;
use canaries::{Accepted, Canaries};

/// Compiles hosts of one store; Ingresses that several of them share are looked at once.
pub(super) struct Hosts<'a> {
    store: &'a Store,
    classes: &'a Classes<'a>,
    settings: &'a Settings,
    /// What most Ingresses have.
    plain: SharedPolicy,
    prepared: HashMap<ObjectName, Prepared>,
    client_auths: ClientAuths<'a>,
}

/// A host as it is now.
pub(super) struct CompiledHost {
    /// `None` where nobody has rules for it.
    pub host: Option<Arc<Host>>,
    pub found: Vec<Diagnostic>,
    /// When to look again although nothing changed, in seconds since the Unix epoch.
    pub recheck_at: Option<i64>,
}

/// A policy, and what becomes of it for paths that are never redirected to HTTPS.
#[derive(Clone)]
struct SharedPolicy {
    redirected: Arc<RoutePolicy>,
    unredirected: Arc<RoutePolicy>,
}

/// What all hosts of one Ingress have in common.
struct Prepared {
    /// Each host with the place of a rule for it among those that can be used, in order.
    rules: Vec<(HostPattern, usize)>,
    policy: SharedPolicy,
    redirects: Redirects,
    client_auth: ClientAuthDraft,
    /// Set for a canary, of which nothing else counts but its backends, and the affinity of its policy.
    canary: Option<Arc<CanaryRules>>,
    /// The annotation for whose sake no route of this Ingress is served.
    refusal: Option<&'static str>,
    /// The same for every route of its hosts.
    host_refusal: Option<&'static str>,
}

/// A path of the host, the Ingress that has it and what answers there.
struct Claim<'a> {
    ingress: &'a Arc<Ingress>,
    answer: Answer<'a>,
}

enum Answer<'a> {
    Backend(&'a Backend),
    Redirect(Arc<Redirect>),
}

type Claims<'a> = HashMap<(PathMatch, Box<str>), Claim<'a>>;

impl<'a> Hosts<'a> {
    /// `tls` is the TLS policy of hosts that ask clients for nothing, `now` in seconds since the Unix epoch.
    pub fn new(
        store: &'a Store,
        classes: &'a Classes<'a>,
        settings: &'a Settings,
        tls: Arc<TlsPolicy>,
        now: i64,
    ) -> Self {
        let plain = SharedPolicy::new(annotations::plain_policy(settings));
        let client_auths = ClientAuths { store, settings, tls, now };
        Self { store, classes, settings, plain, prepared: HashMap::new(), client_auths }
    }

    /// The host as it is now, and what there is to say.
    pub fn compile_host(
        &mut self,
        pattern: &HostPattern,
        clusters: &ClusterMap,
        previous: Option<&Arc<Host>>,
    ) -> CompiledHost {
        let mut ingresses = self.store.ingresses_of_host(pattern);
        ingresses.retain(|ingress| self.classes.serves(ingress));
        let (canaries, mut ingresses): (Vec<_>, Vec<_>) =
            ingresses.into_iter().partition(|ingress| self.prepare(ingress).canary.is_some());

        let mut conflicts = Vec::new();
        let mut claims = Claims::new();
        for ingress in &ingresses {
            let rules = self.prepare(ingress).rules_of(pattern);
            claim_paths(ingress, rules, pattern, &mut claims, &mut conflicts);
        }
        for ingress in &ingresses {
            claim_root(ingress, &mut claims);
        }
        self.redirect_root(&mut claims);
        let canaries = self.canaries(&canaries, pattern, &claims, &mut conflicts);
        // A host without any path still is one: its requests get 404 and not the routes of a wildcard.
        let declared = *pattern != HostPattern::Any && !ingresses.is_empty();
        let sender = self.claim_www(pattern, &mut claims);
        if claims.is_empty() && !declared {
            return CompiledHost { host: None, found: conflicts, recheck_at: None };
        }
        let wishes: Vec<_> = ingresses
            .iter()
            .map(|&ingress| Wish { ingress, draft: self.prepare(ingress).client_auth.clone() })
            .collect();
        let auth = previous.and_then(|previous| previous.client_auth.as_ref());
        let Outcome { auth: client_auth, mut found, recheck_at } =
            self.client_auths.compile(pattern, &wishes, auth);
        found.append(&mut conflicts);
        if !declared {
            ingresses.extend(sender);
        }
        // Rules without a host have no certificate of their own, so nothing to redirect to.
        let has_tls = *pattern != HostPattern::Any && ingresses.iter().any(|ingress| !ingress.tls.is_empty());
        let host_refusal = ingresses.iter().find_map(|ingress| self.prepare(ingress).host_refusal);
        let routes = self.routes(pattern, claims, &canaries, host_refusal, clusters, previous);
        let host = Host { pattern: pattern.clone(), routes, has_tls, client_auth };
        CompiledHost { host: Some(reuse_host(host, previous)), found, recheck_at }
    }

    fn routes(
        &mut self,
        pattern: &HostPattern,
        claims: Claims,
        canaries: &Canaries,
        host_refusal: Option<&'static str>,
        clusters: &ClusterMap,
        previous: Option<&Arc<Host>>,
    ) -> PathMap<Arc<Route>> {
        let entries = previous.into_iter().flat_map(|host| host.routes.entries());
        let before: HashMap<_, _> =
            entries.map(|(kind, path, route)| ((kind, path, &route.ingress), route)).collect();
        PathMap::new(claims.into_iter().map(|((kind, path), claim)| {
            let ingress = &claim.ingress.metadata.name;
            let previous = before.get(&(kind, &*path, ingress)).copied();
            let mut route = Route {
                host: pattern.clone(),
                path: path.clone(),
                ingress: ingress.clone(),
                // What a host asks for is not for the challenges of its certificate: those come in the clear.
                action: match host_refusal
                    .filter(|_| !self.is_unredirected(&path))
                    .or(self.prepare(claim.ingress).refusal)
                {
                    Some(annotation) => Action::Refuse(annotation),
                    None => self.action(&claim, clusters),
                },
                policy: self.policy(claim.ingress, &path),
                canary: None,
                stats: Arc::default(),
            };
            let key = (kind, path);
            if let (Action::Forward(_), Some(canary)) = (&route.action, canaries.get(&key)) {
                route.canary = self.canary(&route, canary, clusters, previous);
            }
            let (kind, path) = key;
            (kind, path, reuse_route(route, previous))
        }))
    }

    /// What `ingresses`, which are canaries, ask for and get.
    fn canaries(
        &mut self,
        ingresses: &[&'a Arc<Ingress>],
        pattern: &HostPattern,
        claims: &Claims<'a>,
        findings: &mut Vec<Diagnostic>,
    ) -> Canaries<'a> {
        let mut wishes = Vec::new();
        for &ingress in ingresses {
            let prepared = self.prepare(ingress);
            let Some(rules) = prepared.canary.clone() else { continue };
            let wish = |kind, path, field, backend| canaries::Wish {
                ingress,
                rules: rules.clone(),
                kind,
                path,
                field,
                backend,
            };
            for rule in prepared.rules_of(pattern).filter_map(|at| ingress.rules.get(at)) {
                for path in &rule.paths {
                    let Some((kind, canonical)) = canonical(path) else { continue };
                    let field = format!("spec.rules[{}].http.paths[{}].path", rule.index, path.index);
                    wishes.push(wish(kind, canonical, field, &path.backend));
                }
            }
            if let Some(backend) = &ingress.default_backend {
                wishes.push(wish(PathMatch::Prefix, "/".into(), "spec.defaultBackend".into(), backend));
            }
        }
        canaries::accept(wishes, pattern, claims, findings)
    }

    /// The canary of `main`.
    fn canary(
        &mut self,
        main: &Route,
        canary: &Accepted<'_>,
        clusters: &ClusterMap,
        previous: Option<&Arc<Route>>,
    ) -> Option<Box<Canary>> {
        let Backend::Service { name, port } = canary.backend else { return None };
        let mut policy = main.policy.clone();
        if !canary.rules.sticky {
            let affinity = self.prepare(canary.ingress).policy.redirected.affinity.clone();
            policy = Arc::new(RoutePolicy { affinity, ..(*policy).clone() });
        }
        // Whatever keeps somebody out of the main route keeps them out of this one.
        let route = Route {
            action: forward(canary.ingress, name, port, clusters),
            policy,
            canary: None,
            stats: Arc::default(),
            ..main.clone()
        };
        let previous = previous.and_then(|route| route.canary.as_ref());
        let route = reuse_route(route, previous.map(|canary| &canary.route));
        Some(Box::new(Canary { rules: canary.rules.clone(), route }))
    }

    /// `app-root` of the Ingress that serves `/`.
    fn redirect_root(&mut self, claims: &mut Claims<'a>) {
        let root = |kind| claims.get(&(kind, "/".into())).map(|claim| claim.ingress);
        if let Some(ingress) = root(PathMatch::Exact).or_else(|| root(PathMatch::Prefix))
            && let Some(redirect) = self.prepare(ingress).redirects.root.clone()
        {
            claims.insert(
                (PathMatch::Exact, "/".into()),
                Claim { ingress, answer: Answer::Redirect(redirect) },
            );
        }
    }

    /// Sends what nobody has a path for on the host `pattern` to the one with or without `www.`, where an Ingress asks for
    /// it: `from-to-www-redirect`. The answer is who does.
    fn claim_www(&mut self, pattern: &HostPattern, claims: &mut Claims<'a>) -> Option<&'a Arc<Ingress>> {
        let HostPattern::Exact(name) = pattern else { return None };
        let mut senders = self.store.ingresses_of_www_partner(pattern).into_iter();
        let sender = senders.find(|i| self.classes.serves_as_main(i) && self.prepare(i).redirects.www)?;
        let location = Location::of_host(name.with_or_without_www()?.as_str());
        let status = Redirect::status(self.settings.http_redirect_code);
        let answer = Answer::Redirect(Arc::new(Redirect { status, location }));
        claims.entry((PathMatch::Prefix, "/".into())).or_insert(Claim { ingress: sender, answer });
        Some(sender)
    }

    fn action(&mut self, claim: &Claim<'_>, clusters: &ClusterMap) -> Action {
        let backend = match &claim.answer {
            Answer::Redirect(redirect) => return Action::Redirect(redirect.clone()),
            Answer::Backend(backend) => backend,
        };
        if let Some(redirect) = &self.prepare(claim.ingress).redirects.all {
            return Action::Redirect(redirect.clone());
        }
        let Backend::Service { name, port } = backend else { return Action::NotFound };
        forward(claim.ingress, name, port, clusters)
    }

    fn policy(&mut self, ingress: &Ingress, path: &str) -> Arc<RoutePolicy> {
        let is_unredirected = self.is_unredirected(path);
        let policy = &self.prepare(ingress).policy;
        if is_unredirected { policy.unredirected.clone() } else { policy.redirected.clone() }
    }

    /// Whether a path is to be answered in the clear, whatever else its host asks for.
    fn is_unredirected(&self, path: &str) -> bool {
        let mut locations = self.settings.no_tls_redirect_locations.iter();
        locations.any(|location| !location.is_empty() && path.starts_with(location.as_str()))
    }

    fn prepare(&mut self, ingress: &Ingress) -> &Prepared {
        let name = &ingress.metadata.name;
        self.prepared
            .entry(name.clone())
            .or_insert_with(|| Prepared::new(ingress, self.store, self.settings, &self.plain))
    }
}

impl SharedPolicy {
    fn new(policy: RoutePolicy) -> Self {
        let unredirected = RoutePolicy { redirect: HttpsRedirect::Exempt, ..policy.clone() };
        Self { redirected: Arc::new(policy), unredirected: Arc::new(unredirected) }
    }
}

impl Prepared {
    fn new(ingress: &Ingress, store: &Store, settings: &Settings, plain: &SharedPolicy) -> Self {
        let pattern = |host: &Option<String>| HostPattern::parse(host.as_deref().unwrap_or("")).ok();
        let mut rules = Vec::with_capacity(ingress.rules.len());
        rules.extend(ingress.rules.iter().zip(0..).filter_map(|(rule, at)| Some((pattern(&rule.host)?, at))));
        rules.sort();
        let Effects { mut policy, refusal, redirects, auth, client_auth, canary } =
            annotations::effects(&ingress.metadata, settings);
        let auth = auth::of_route(ingress, auth, store);
        let refusal = refusal.or(auth.as_ref().err().copied());
        policy.auth = auth.unwrap_or_default();
        let policy = match policy == *plain.redirected {
            true => plain.clone(),
            false => SharedPolicy::new(policy),
        };
        let protections = || annotations::unsupported_protections(&ingress.metadata, settings);
        Self {
            rules,
            policy,
            redirects,
            client_auth,
            canary,
            refusal: refusal.or_else(|| protections().next()),
            host_refusal: protections().find(|annotation| annotations::protects_host(annotation)),
        }
    }

    /// Where the rules for a host are.
    fn rules_of(&self, pattern: &HostPattern) -> impl Iterator<Item = usize> {
        let first = self.rules.partition_point(|(other, _)| other < pattern);
        let rules = self.rules.iter().skip(first).take_while(move |(other, _)| other == pattern);
        rules.map(|(_, at)| *at)
    }
}

/// Takes the paths of an Ingress that no older one has taken.
fn claim_paths<'a>(
    ingress: &'a Arc<Ingress>,
    rules: impl Iterator<Item = usize>,
    pattern: &HostPattern,
    claims: &mut Claims<'a>,
    conflicts: &mut Vec<Diagnostic>,
) {
    for rule in rules.filter_map(|at| ingress.rules.get(at)) {
        for path in &rule.paths {
            let Some(key) = canonical(path) else { continue };
            match claims.entry(key) {
                Entry::Vacant(entry) => {
                    entry.insert(Claim { ingress, answer: Answer::Backend(&path.backend) });
                }
                Entry::Occupied(entry) => {
                    let field = format!("spec.rules[{}].http.paths[{}].path", rule.index, path.index);
                    let winner = &entry.get().ingress.metadata.name;
                    conflicts.push(path_conflict(ingress, field, pattern, written(path), winner));
                }
            }
        }
    }
}

/// The path as the Ingress has it.
fn written(path: &IngressPath) -> &str {
    if path.path.is_empty() { "/" } else { &path.path }
}

/// The path in its canonical form, if it is one, and what is compared with it.
fn canonical(path: &IngressPath) -> Option<(PathMatch, Box<str>)> {
    let kind = match path.kind {
        PathType::Exact => PathMatch::Exact,
        PathType::Prefix | PathType::ImplementationSpecific => PathMatch::Prefix,
    };
    canonical_path(written(path)).ok().map(|canonical| (kind, canonical.as_ref().into()))
}

/// To a Service in the namespace of `ingress`.
fn forward(ingress: &Ingress, service: &str, port: &ServicePortRef, clusters: &ClusterMap) -> Action {
    let namespace = ingress.metadata.name.namespace.clone();
    let key = ClusterKey { service: ObjectName::new(namespace, service), port: port.clone() };
    let shared = clusters.get(&key).map(|cluster| cluster.key.clone());
    Action::Forward(shared.unwrap_or_else(|| Arc::new(key)))
}

/// A default backend serves what no rule takes: of the hosts that its Ingress has rules for, or, where it has
/// none, of requests that no host is there for.
fn claim_root<'a>(ingress: &'a Arc<Ingress>, claims: &mut Claims<'a>) {
    if let Some(backend) = &ingress.default_backend {
        claims
            .entry((PathMatch::Prefix, "/".into()))
            .or_insert(Claim { ingress, answer: Answer::Backend(backend) });
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

fn reuse_route(new: Route, previous: Option<&Arc<Route>>) -> Arc<Route> {
    let Some(previous) = previous else { return Arc::new(new) };
    let same = previous.action == new.action && previous.policy == new.policy;
    if same && previous.canary == new.canary {
        return previous.clone();
    }
    Arc::new(Route { stats: previous.stats.clone(), ..new })
}

fn reuse_host(new: Host, previous: Option<&Arc<Host>>) -> Arc<Host> {
    let same = |previous: &&Arc<Host>| {
        let auths = previous.client_auth.as_ref().zip(new.client_auth.as_ref());
        previous.has_tls == new.has_tls
            && auths.map_or(previous.client_auth.is_none() == new.client_auth.is_none(), |(a, b)| {
                Arc::ptr_eq(a, b)
            })
            && previous.routes.iter().count() == new.routes.iter().count()
            && previous.routes.entries().zip(new.routes.entries()).all(
                |((old_kind, old_path, old), (kind, path, route))| {
                    old_kind == kind && old_path == path && Arc::ptr_eq(old, route)
                },
            )
    };
    match previous.filter(same) {
        Some(previous) => previous.clone(),
        None => Arc::new(new),
    }
}
