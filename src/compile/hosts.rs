//! The routes of one host, merged from all Ingresses that have rules for it.
//!
//! The oldest Ingress wins a path, so the result does not depend on the order of arrival. What did not change
//! stays the same `Arc` as before, and a route keeps its counters when its policy or its backend changes.
//!
//! One Ingress with `use-regex` or `rewrite-target` makes the paths of its host regular expressions, those of all others
//! too: that is what ingress-nginx does, and who is affected is told.

mod canaries;
mod paths;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::classes::Classes;
use super::client_auth::{ClientAuths, Outcome, Wish};
use super::{aliases, auth};
use crate::annotations::{self, ClientAuthDraft, Effects, Redirects, Rewriting};
use crate::diagnostics::{Diagnostic, ObjectRef, Severity, quoted};
use crate::names::HostPattern;
use crate::settings::Settings;
use crate::snapshot::affinity::Affinity;
use crate::snapshot::canary::{Canary, CanaryRules};
use crate::snapshot::clusters::{ClusterKey, ClusterMap};
use crate::snapshot::hosts::{Action, Host, HttpsRedirect, Route, RoutePolicy};
use crate::snapshot::paths::{PathMap, PathMatch};
use crate::snapshot::redirects::{Location, Redirect};
use crate::snapshot::rewrites::Rewrite;
use crate::store::Store;
use crate::store::objects::{Backend, Ingress, IngressPath, Kind, ObjectName, PathType, ServicePortRef};
use crate::tls::policy::TlsPolicy;
use canaries::{Accepted, Canaries};
use paths::{Patterns, written};

/// Compiles hosts of one store; Ingresses that several of them share are looked at once.
pub(super) struct Hosts<'a> {
    store: &'a Store,
    classes: &'a Classes<'a>,
    settings: &'a Settings,
    /// What most Ingresses have.
    plain: SharedPolicy,
    prepared: HashMap<ObjectName, Prepared>,
    patterns: Patterns,
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
    rewriting: Rewriting,
    /// Its backends are reached by the addresses of their Services.
    service_upstream: bool,
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
    /// As the Ingress has it.
    written: &'a str,
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
        let (prepared, patterns) = (HashMap::new(), Patterns::default());
        Self { store, classes, settings, plain, prepared, patterns, client_auths }
    }

    /// The host as it is now, and what there is to say.
    pub fn compile_host(
        &mut self,
        pattern: &HostPattern,
        clusters: &ClusterMap,
        previous: Option<&Arc<Host>>,
    ) -> CompiledHost {
        let mut found = aliases::findings(self.store, self.classes, self.settings, pattern);
        let origin = aliases::origin(self.store, self.classes, self.settings, pattern);
        let mut compiled =
            self.compile_rules(origin.as_ref().unwrap_or(pattern), pattern, clusters, previous);
        // What there is to say about the routes of an alias is said about the host itself.
        if origin.is_none() {
            found.append(&mut compiled.found);
        }
        CompiledHost { found, ..compiled }
    }

    /// The host `pattern` with the rules that there are for `origin`.
    fn compile_rules(
        &mut self,
        origin: &HostPattern,
        pattern: &HostPattern,
        clusters: &ClusterMap,
        previous: Option<&Arc<Host>>,
    ) -> CompiledHost {
        let mut ingresses = self.store.ingresses_of_host(origin);
        ingresses.retain(|ingress| self.classes.serves(ingress));
        let (canaries, mut ingresses): (Vec<_>, Vec<_>) =
            ingresses.into_iter().partition(|ingress| self.prepare(ingress).canary.is_some());

        let mut findings = Vec::new();
        let mut claims = Claims::new();
        let regex = ingresses.iter().find(|ingress| self.prepare(ingress).makes_patterns(ingress, origin));
        if let Some(cause) = regex {
            previous.into_iter().for_each(|host| self.patterns.keep(host));
            for ingress in &ingresses {
                findings.extend(self.prepare(ingress).compelled(ingress, origin, &cause.metadata.name));
            }
        }
        for ingress in &ingresses {
            self.prepare(ingress);
            let Some(prepared) = self.prepared.get(&ingress.metadata.name) else { continue };
            let patterns = regex.map(|_| &mut self.patterns);
            claim_paths(ingress, prepared, origin, patterns, &mut claims, &mut findings);
        }
        for ingress in &ingresses {
            claim_root(ingress, &mut claims);
        }
        self.redirect_root(&mut claims);
        let canaries = self.canaries(&canaries, origin, regex.is_some(), &claims, &mut findings);
        // A host without any path still is one: its requests get 404 and not the routes of a wildcard.
        let declared = *pattern != HostPattern::Any && !ingresses.is_empty();
        let sender = if origin == pattern { self.claim_www(pattern, &mut claims) } else { None };
        if claims.is_empty() && !declared {
            return CompiledHost { host: None, found: findings, recheck_at: None };
        }
        let wishes: Vec<_> = ingresses
            .iter()
            .map(|&ingress| Wish { ingress, draft: self.prepare(ingress).client_auth.clone() })
            .collect();
        let auth = previous.and_then(|previous| previous.client_auth.as_ref());
        let Outcome { auth: client_auth, mut found, recheck_at } =
            self.client_auths.compile(pattern, &wishes, auth);
        found.append(&mut findings);
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
        let mut routes = Vec::with_capacity(claims.len());
        for ((kind, path), claim) in claims {
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
                fallback: self.fallback(&claim, clusters),
                rewrite: self.rewrite(&claim),
                policy: fit(self.policy(claim.ingress, &path), kind),
                canary: None,
                stats: Arc::default(),
            };
            let key = (kind, path);
            if let (Action::Forward(_), Some(canary)) = (&route.action, canaries.get(&key)) {
                route.canary = self.canary(&route, kind, canary, clusters, previous);
            }
            let (kind, path) = key;
            routes.push((kind, path, reuse_route(route, previous)));
        }
        PathMap::with_patterns(routes, |text| self.patterns.get(text).cloned())
    }

    /// What `ingresses`, which are canaries, ask for and get.
    fn canaries(
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
            let wish = |kind, path, field, backend| canaries::Wish {
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
        canaries::accept(wishes, pattern, claims, findings)
    }

    /// The canary of `main`.
    fn canary(
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

    /// `app-root` of the Ingress that serves `/`.
    fn redirect_root(&mut self, claims: &mut Claims<'a>) {
        let root = |kind| claims.get(&(kind, "/".into())).map(|claim| claim.ingress);
        let by_pattern = || {
            let of_root = claims.iter().filter(|((kind, text), _)| {
                *kind == PathMatch::Pattern
                    && self.patterns.get(text).is_some_and(|pattern| pattern.matches("/"))
            });
            let first = of_root.max_by_key(|((_, text), _)| (text.len(), text.clone()));
            first.map(|(_, claim)| claim.ingress)
        };
        let ingress = root(PathMatch::Exact).or_else(by_pattern).or_else(|| root(PathMatch::Prefix));
        if let Some(ingress) = ingress
            && let Some(redirect) = self.prepare(ingress).redirects.root.clone()
        {
            claims.insert(
                (PathMatch::Exact, "/".into()),
                Claim { ingress, written: "/", answer: Answer::Redirect(redirect) },
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
        claims.entry((PathMatch::Prefix, "/".into())).or_insert(Claim {
            ingress: sender,
            written: "/",
            answer,
        });
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
        let by_service = self.prepare(claim.ingress).service_upstream;
        forward(claim.ingress, name, port, by_service, clusters)
    }

    /// The backend that the Ingress wants to answer in place of one without endpoints.
    fn fallback(&self, claim: &Claim<'_>, clusters: &ClusterMap) -> Option<Arc<ClusterKey>> {
        let Answer::Backend(Backend::Service { .. }) = &claim.answer else { return None };
        let metadata = &claim.ingress.metadata;
        let service = annotations::default_backend(metadata, self.settings)?;
        let service = ObjectName::new(metadata.name.namespace.clone(), service);
        let key = ClusterKey { service, port: ServicePortRef::First, by_service: false };
        let shared = clusters.get(&key).map(|cluster| cluster.key.clone());
        Some(shared.unwrap_or_else(|| Arc::new(key)))
    }

    /// What the Ingress wants changed of requests for this path.
    fn rewrite(&mut self, claim: &Claim<'_>) -> Option<Box<Rewrite>> {
        let Answer::Backend(backend) = &claim.answer else { return None };
        let rewriting = &self.prepare(claim.ingress).rewriting;
        let host = rewriting.host.as_ref().and_then(|host| host.of(claim.ingress, backend));
        let target = rewriting.target.as_ref().filter(|target| target.as_str() != claim.written).cloned();
        let prefix = rewriting.prefix.clone();
        let groups = target.as_ref().map_or(0, |target| target.groups());
        let groups = groups.max(prefix.as_ref().map_or(0, |prefix| prefix.groups()));
        let mut rewrite = Rewrite { pattern: None, target, host, prefix };
        if groups > 0 {
            rewrite.pattern = self.patterns.get(claim.written).cloned();
        }
        (!rewrite.is_empty()).then(|| Box::new(rewrite))
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
        let Effects { mut policy, redirects, auth, client_auth, canary, rewriting, refusal } =
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
            rewriting,
            service_upstream: annotations::service_upstream(&ingress.metadata, settings),
            refusal: refusal.or_else(|| protections().next()),
            host_refusal: protections().find(|annotation| annotations::protects_host(annotation)),
        }
    }

    /// Whether this Ingress makes the paths of a host regular expressions: it says so, or rewrites one of them.
    fn makes_patterns(&self, ingress: &Ingress, pattern: &HostPattern) -> bool {
        let Some(target) = self.rewriting.target.as_ref().map(|target| target.as_str()) else {
            return self.rewriting.use_regex;
        };
        let default = ingress.default_backend.as_ref().map(|_| "/");
        let mut paths = self.paths_of(ingress, pattern).map(|(_, path)| written(path)).chain(default);
        self.rewriting.use_regex || paths.any(|path| path != target)
    }

    /// Says so where the Ingress `cause` makes the paths of this one regular expressions. The root as a prefix is for all
    /// paths in any case.
    fn compelled(&self, ingress: &Ingress, pattern: &HostPattern, cause: &ObjectName) -> Option<Diagnostic> {
        let mut paths = self.paths_of(ingress, pattern);
        let (rule, _) = paths.find(|(_, path)| written(path) != "/" || path.kind == PathType::Exact)?;
        (!self.makes_patterns(ingress, pattern)).then(|| paths::compelled(ingress, rule, pattern, cause))
    }

    /// The paths for a host, each with the place of its rule as it was written.
    fn paths_of<'i>(
        &self,
        ingress: &'i Ingress,
        pattern: &HostPattern,
    ) -> impl Iterator<Item = (usize, &'i IngressPath)> {
        let rules = self.rules_of(pattern).filter_map(|at| ingress.rules.get(at));
        rules.flat_map(|rule| rule.paths.iter().map(|path| (rule.index, path)))
    }

    /// Where the rules for a host are.
    fn rules_of(&self, pattern: &HostPattern) -> impl Iterator<Item = usize> {
        let first = self.rules.partition_point(|(other, _)| other < pattern);
        let rules = self.rules.iter().skip(first).take_while(move |(other, _)| other == pattern);
        rules.map(|(_, at)| *at)
    }
}

/// Takes the paths of an Ingress that no older one has taken. With `patterns` they are regular expressions.
fn claim_paths<'a>(
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

/// A policy for a path of this kind: the cookie of a session cannot be for a regular expression, so it is for all paths.
fn fit(policy: Arc<RoutePolicy>, kind: PathMatch) -> Arc<RoutePolicy> {
    match &policy.affinity {
        Some(affinity) if kind == PathMatch::Pattern && affinity.cookie.path.is_none() => {
            let mut affinity = Affinity::clone(affinity);
            affinity.cookie.path = Some("/".into());
            Arc::new(RoutePolicy { affinity: Some(Arc::new(affinity)), ..(*policy).clone() })
        }
        _ => policy,
    }
}

/// To a Service in the namespace of `ingress`.
fn forward(
    ingress: &Ingress,
    service: &str,
    port: &ServicePortRef,
    by_service: bool,
    clusters: &ClusterMap,
) -> Action {
    let namespace = ingress.metadata.name.namespace.clone();
    let key = ClusterKey { service: ObjectName::new(namespace, service), port: port.clone(), by_service };
    let shared = clusters.get(&key).map(|cluster| cluster.key.clone());
    Action::Forward(shared.unwrap_or_else(|| Arc::new(key)))
}

/// A default backend serves what no rule takes: of the hosts that its Ingress has rules for, or, where it has
/// none, of requests that no host is there for.
fn claim_root<'a>(ingress: &'a Arc<Ingress>, claims: &mut Claims<'a>) {
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

fn reuse_route(new: Route, previous: Option<&Arc<Route>>) -> Arc<Route> {
    let Some(previous) = previous else { return Arc::new(new) };
    let same =
        previous.action == new.action && previous.policy == new.policy && previous.fallback == new.fallback;
    if same && previous.rewrite == new.rewrite && previous.canary == new.canary {
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
