//! The routes of one host, merged from all Ingresses that have rules for it.
//!
//! The oldest Ingress wins a path, so the result does not depend on the order of arrival. What did not change
//! stays the same `Arc` as before, and a route keeps its counters when its policy or its backend changes.
//!
//! One Ingress with `use-regex` or `rewrite-target` makes the paths of its host regular expressions, those of all others
//! too: that is what ingress-nginx does, and who is affected is told.

mod canaries;
mod claims;
mod paths;
mod prepared;

use std::collections::HashMap;
use std::sync::Arc;

use super::aliases;
use super::classes::Classes;
use super::client_auth::{ClientAuths, Outcome, Wish};
use crate::annotations;
use crate::diagnostics::Diagnostic;
use crate::names::HostPattern;
use crate::settings::Settings;
use crate::snapshot::affinity::Affinity;
use crate::snapshot::clusters::{ClusterKey, ClusterMap};
use crate::snapshot::hosts::{Action, Host, Route, RoutePolicy};
use crate::snapshot::paths::{PathMap, PathMatch};
use crate::snapshot::redirects::{Location, Redirect};
use crate::snapshot::rewrites::Rewrite;
use crate::store::Store;
use crate::store::objects::{Backend, Ingress, ObjectName, ServicePortRef};
use crate::tls::policy::TlsPolicy;
use canaries::Canaries;
use claims::{Answer, Claim, Claims, claim_paths, claim_root};
use paths::Patterns;
use prepared::{Prepared, SharedPolicy};

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
        Some(shared(key, clusters))
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
    Action::Forward(shared(key, clusters))
}

/// The key as its backend has it, where there is one: routes have it in common.
fn shared(key: ClusterKey, clusters: &ClusterMap) -> Arc<ClusterKey> {
    let known = clusters.get(&key).map(|cluster| cluster.key.clone());
    known.unwrap_or_else(|| Arc::new(key))
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
