//! Hosts and their routes: which route a request takes, and everything that was decided about it beforehand.

use std::sync::Arc;
use std::time::Duration;

use super::SharedMap;
use super::access::SourceRanges;
use super::affinity::Affinity;
use super::canary::Canary;
use super::client_auth::ClientAuth;
use super::clusters::ClusterKey;
use super::cors::Cors;
use super::limits::Limits;
use super::passwords::BasicAuth;
use super::paths::PathMap;
use super::redirects::Redirect;
use super::rewrites::Rewrite;
use crate::names::object::ObjectName;
use crate::names::{HostName, HostPattern, parent_of};
use crate::telemetry::route_stats::RouteStats;

/// All hosts: exact names, one-label wildcards (held by the name after `*.`) and the rules without a host.
#[derive(Clone, Default)]
pub struct HostMap {
    pub exact: SharedMap<HostName, Arc<Host>>,
    pub wildcard: SharedMap<HostName, Arc<Host>>,
    pub any: Option<Arc<Host>>,
    /// How many of them ask clients for certificates.
    asking: usize,
}

impl HostMap {
    /// The host that a handshake for `sni` (canonical) is with, if any asks clients for certificates: where none does, a
    /// handshake has no need to know.
    pub fn asking(&self, sni: Option<&str>) -> Option<&Arc<Host>> {
        if self.asking == 0 {
            return None;
        }
        sni.map_or(self.any.as_ref(), |sni| self.find(sni))
    }

    /// The host that serves `host` (canonical): exact, then wildcard, then the rules without a host. An exact
    /// host without a fitting path does not fall through to a wildcard.
    pub fn find(&self, host: &str) -> Option<&Arc<Host>> {
        self.find_named(host).or(self.any.as_ref())
    }

    /// As [`find`](Self::find), without the rules that have no host.
    pub fn find_named(&self, host: &str) -> Option<&Arc<Host>> {
        self.exact.get(host).or_else(|| self.wildcard.get(parent_of(host)?))
    }

    /// The entry of exactly this pattern.
    pub fn get(&self, pattern: &HostPattern) -> Option<&Arc<Host>> {
        match pattern {
            HostPattern::Exact(name) => self.exact.get(name),
            HostPattern::Wildcard(parent) => self.wildcard.get(parent),
            HostPattern::Any => self.any.as_ref(),
        }
    }

    /// Puts `host` in the place of this pattern's entry, or takes the entry out.
    pub fn set(&mut self, pattern: &HostPattern, host: Option<Arc<Host>>) {
        let asks =
            |host: Option<&Arc<Host>>| usize::from(host.is_some_and(|host| host.client_auth.is_some()));
        self.asking = self.asking + asks(host.as_ref()) - asks(self.get(pattern));
        let (map, name) = match pattern {
            HostPattern::Exact(name) => (&mut self.exact, name),
            HostPattern::Wildcard(parent) => (&mut self.wildcard, parent),
            HostPattern::Any => {
                self.any = host;
                return;
            }
        };
        match host {
            Some(host) => map.insert(name.clone(), host),
            None => map.remove(name),
        };
    }

    /// The patterns of all entries, in no order.
    pub fn patterns(&self) -> impl Iterator<Item = HostPattern> {
        let exact = self.exact.keys().cloned().map(HostPattern::Exact);
        let wildcard = self.wildcard.keys().cloned().map(HostPattern::Wildcard);
        exact.chain(wildcard).chain(self.any.as_ref().map(|_| HostPattern::Any))
    }
}

/// One host with its routes.
pub struct Host {
    pub pattern: HostPattern,
    pub routes: PathMap<Arc<Route>>,
    /// An Ingress of this host has a `tls` section: plain HTTP is redirected unless a route says otherwise.
    pub has_tls: bool,
    /// What is asked of clients' certificates, for all of its routes; `None` is nothing.
    pub client_auth: Option<Arc<ClientAuth>>,
}

/// What happens to requests of one path of one host.
#[derive(Clone)]
pub struct Route {
    /// The host as the rule has it, for metrics and logs: a bounded set.
    pub host: HostPattern,
    pub path: Box<str>,
    pub ingress: ObjectName,
    pub action: Action,
    /// Who answers while the backend that requests are forwarded to has no endpoint.
    pub fallback: Option<Arc<ClusterKey>>,
    /// What a request is changed into before it is forwarded.
    pub rewrite: Option<Box<Rewrite>>,
    pub policy: Arc<RoutePolicy>,
    /// Another route for some of the requests, where this one forwards.
    pub canary: Option<Box<Canary>>,
    /// Goes on counting when the route changes.
    pub stats: Arc<RouteStats>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Forward(Arc<ClusterKey>),
    /// A backend that Portcullis does not serve, such as a `resource`: 404.
    NotFound,
    /// Somewhere else, without a backend and before any redirect to HTTPS.
    Redirect(Arc<Redirect>),
    /// The Ingress asks, by this annotation, for what must not be left out and cannot be done: 503 for everyone.
    Refuse(&'static str),
}

/// Everything that annotations and settings decide about a route; shared by the routes of an Ingress.
#[derive(Clone, Debug, PartialEq)]
pub struct RoutePolicy {
    pub redirect: HttpsRedirect,
    /// The redirect to HTTPS of `/` ends with the slash.
    pub preserve_trailing_slash: bool,
    pub protocol: BackendProtocol,
    /// Backends with TLS are workloads of the mesh: both sides show certificates of its CA.
    pub backend_mtls: bool,
    /// What pages of other origins may do, where the gateway says it.
    pub cors: Option<Arc<Cors>>,
    /// The clients that the route is for; `None` is everybody.
    pub sources: Option<Arc<SourceRanges>>,
    /// Who must say a password; `None` is nobody.
    pub auth: Option<Arc<BasicAuth>>,
    /// What one client may ask for; `None` is without limit.
    pub limits: Option<Arc<Limits>>,
    /// Bytes of request body; `None` is unlimited.
    pub max_body: Option<u64>,
    pub connect_timeout: Duration,
    /// Longest wait for the response, and between two reads of its body.
    pub read_timeout: Duration,
    /// Longest wait between two writes of the request.
    pub send_timeout: Duration,
    /// Sessions stay with one endpoint.
    pub affinity: Option<Arc<Affinity>>,
}

/// When plain HTTP is answered with a redirect to HTTPS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpsRedirect {
    Never,
    /// As `Never`, and nor is a certificate asked of a client in the clear: the challenges of the host's own certificate.
    Exempt,
    /// `ssl-redirect`: where the host has TLS.
    IfTls,
    /// `force-ssl-redirect`.
    Always,
}

/// What the backend speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BackendProtocol {
    Http1,
    /// HTTP/2 with prior knowledge, which gRPC uses.
    H2c,
    Https,
    /// gRPC over TLS: HTTP/2 by ALPN.
    Grpcs,
}
