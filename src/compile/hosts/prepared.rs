//! What the annotations of an Ingress come to, looked at once for all of its hosts.

use std::sync::Arc;

use super::paths::{self, written};
use crate::annotations::{self, ClientAuthDraft, Effects, Redirects, Rewriting};
use crate::compile::auth;
use crate::diagnostics::Diagnostic;
use crate::names::HostPattern;
use crate::settings::Settings;
use crate::snapshot::canary::CanaryRules;
use crate::snapshot::hosts::{HttpsRedirect, RoutePolicy};
use crate::store::Store;
use crate::store::objects::{Ingress, IngressPath, ObjectName, PathType};

/// A policy, and what becomes of it for paths that are never redirected to HTTPS.
#[derive(Clone)]
pub(super) struct SharedPolicy {
    pub redirected: Arc<RoutePolicy>,
    pub unredirected: Arc<RoutePolicy>,
}

/// What all hosts of one Ingress have in common.
pub(super) struct Prepared {
    /// Each host with the place of a rule for it among those that can be used, in order.
    rules: Vec<(HostPattern, usize)>,
    pub policy: SharedPolicy,
    pub redirects: Redirects,
    pub rewriting: Rewriting,
    /// Its backends are reached by the addresses of their Services.
    pub service_upstream: bool,
    pub client_auth: ClientAuthDraft,
    /// Set for a canary, of which nothing else counts but its backends, and the affinity of its policy.
    pub canary: Option<Arc<CanaryRules>>,
    /// The annotation for whose sake no route of this Ingress is served.
    pub refusal: Option<&'static str>,
    /// The same for every route of its hosts.
    pub host_refusal: Option<&'static str>,
}

impl SharedPolicy {
    pub fn new(policy: RoutePolicy) -> Self {
        let unredirected = RoutePolicy { redirect: HttpsRedirect::Exempt, ..policy.clone() };
        Self { redirected: Arc::new(policy), unredirected: Arc::new(unredirected) }
    }
}

impl Prepared {
    pub fn new(ingress: &Ingress, store: &Store, settings: &Settings, plain: &SharedPolicy) -> Self {
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
    pub fn makes_patterns(&self, ingress: &Ingress, pattern: &HostPattern) -> bool {
        let Some(target) = self.rewriting.target.as_ref().map(|target| target.as_str()) else {
            return self.rewriting.use_regex;
        };
        let default = ingress.default_backend.as_ref().map(|_| "/");
        let mut paths = self.paths_of(ingress, pattern).map(|(_, path)| written(path)).chain(default);
        self.rewriting.use_regex || paths.any(|path| path != target)
    }

    /// Says so where the Ingress `cause` makes the paths of this one regular expressions. The root as a prefix is for all
    /// paths in any case.
    pub fn compelled(
        &self,
        ingress: &Ingress,
        pattern: &HostPattern,
        cause: &ObjectName,
    ) -> Option<Diagnostic> {
        let mut paths = self.paths_of(ingress, pattern);
        let (rule, _) = paths.find(|(_, path)| written(path) != "/" || path.kind == PathType::Exact)?;
        (!self.makes_patterns(ingress, pattern)).then(|| paths::compelled(ingress, rule, pattern, cause))
    }

    /// The paths for a host, each with the place of its rule as it was written.
    pub fn paths_of<'i>(
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
