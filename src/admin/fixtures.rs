//! What the admin port reads, made by hand for tests: a snapshot, counters and a view, without a data plane.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use tokio::sync::watch;

use super::AdminState;
use super::view::{PendingRestart, SettingsStatus, SourceStatus, View};
use crate::compile::Compiled;
use crate::diagnostics::{Diagnostic, ObjectRef, Severity};
use crate::names::HostPattern;
use crate::settings::{ChangeCounts, Settings};
use crate::snapshot::Snapshot;
use crate::snapshot::certificates::{Binding, Certificate, HostCertificates, Stapling};
use crate::snapshot::clusters::{Cluster, ClusterKey, Endpoint};
use crate::snapshot::hosts::{Action, BackendProtocol, Host, HttpsRedirect, Route, RoutePolicy};
use crate::snapshot::paths::{PathMap, PathMatch};
use crate::snapshot::shared::Shared;
use crate::store::objects::{Kind, ObjectName, ServicePortRef};
use crate::telemetry::histogram::{APPLY_BOUNDS, Histogram};
use crate::telemetry::route_stats::{Observation, RouteStats};
use crate::telemetry::worker_stats::WorkerStats;
use crate::testing::certificates::{Authority, PemPair};
use crate::tls::keys::Algorithm;
use crate::tls::ocsp::{OcspState, OcspStatus};
use crate::tls::tickets::Tickets;

/// A small gateway without a data plane: what the admin port reads, made by hand.
pub struct Gateway {
    pub snapshot: Snapshot,
    pub workers: Vec<Arc<WorkerStats>>,
    pub view: View,
    authority: Authority,
    /// Everything secret that went in.
    pub pairs: Vec<PemPair>,
}

impl Gateway {
    pub fn new(settings: Settings) -> Self {
        let settings = Arc::new(settings);
        let tickets = Tickets::new(Duration::from_secs(60)).unwrap();
        let mut snapshot = Compiled::empty(&settings, &tickets, now()).unwrap().snapshot;
        snapshot.generation = 7;
        Self {
            snapshot,
            workers: vec![Arc::default(), Arc::default()],
            view: View { ready: true, ..View::default() },
            authority: Authority::new("Example \"Issuing\" CA"),
            pairs: Vec::new(),
        }
    }

    /// A gateway with something of everything.
    pub fn sample() -> Self {
        let mut gateway = Self::new(Settings::default());
        gateway.certificate("shop/tls", &["shop.example.com", "*.shop.example.com"], Algorithm::EcdsaP256);
        gateway.staple("shop.example.com", 1_700_000_000);
        gateway.certificate("blog/tls", &["blog.example.com"], Algorithm::Rsa);
        let shop = gateway.route("shop.example.com", "/", "shop/web");
        gateway.route("shop.example.com", "/cart", "shop/cart");
        gateway.route("blog.example.com", "/", "blog/web");
        gateway.orphan("gone.example.com", "/", "blog/gone");
        observe(&shop, &Method::GET, 200);
        observe(&shop, &Method::POST, 502);
        observe(&gateway.workers[0].unrouted, &Method::GET, 404);
        gateway.workers[1].connections.enter();
        gateway.workers[1].accepted.add_one();
        gateway.workers[0].handshakes_failed.count("not_tls");
        gateway.view.started = 1_700_000_000;
        gateway.view.diagnostics =
            [(Severity::Error, "SecretNotFound"), (Severity::Warning, "UnknownAnnotation")]
                .map(|(severity, reason)| {
                    let object = ObjectRef::new(Kind::Ingress, &ObjectName::new("blog", "<img src=x>"));
                    Diagnostic::new(severity, object, "spec.tls[0].secretName", reason, "a \"message\"")
                })
                .into();
        gateway.view.pending_restart =
            vec![PendingRestart { key: "http-port", reason: "listeners are opened before workers start" }];
        gateway.view.settings = SettingsStatus { loaded: 1_700_000_000, error: None };
        gateway.view.sources = vec![SourceStatus {
            name: "directory".into(),
            synced: true,
            since: 0,
            last_error: None,
            stale_since: None,
        }];
        gateway.view.changes = ChangeCounts { dynamic: 5, restart: 1, rejected: 2 };
        gateway
    }

    pub fn certificate(&mut self, secret: &str, names: &[&str], algorithm: Algorithm) {
        let leaf = self.authority.leaf(names).algorithm(algorithm).ocsp_responder("http://ocsp.example.com");
        let pem = leaf.issue();
        let (pair, secret) = (Arc::new(pem.parse()), Some(object(secret)));
        let certificate = Arc::new(Certificate { pair, secret, handshakes: Arc::default() });
        self.pairs.push(pem);
        for name in names {
            let binding = Binding { certificate: certificate.clone(), ingress: None, missing_since: None };
            let of_host = Arc::new(HostCertificates::new(binding, []));
            let certificates = &mut self.snapshot.certificates;
            match HostPattern::parse(name).unwrap() {
                HostPattern::Exact(name) => certificates.exact.insert(name, of_host),
                HostPattern::Wildcard(name) => certificates.wildcard.insert(name, of_host),
                HostPattern::Any => panic!("a certificate has names"),
            };
        }
    }

    /// Staples the certificate of `host` for an hour from `this_update`.
    fn staple(&mut self, host: &str, this_update: u64) {
        let certificates = &mut self.snapshot.certificates;
        let pair = certificates.find(host).unwrap().iter().next().unwrap().certificate.pair.clone();
        let status = OcspStatus {
            state: OcspState::Good,
            this_update: Some(this_update),
            next_update: Some(this_update + 3600),
            next_fetch: Some(this_update + 1800),
            last_error: Some("timeout".into()),
            ..OcspStatus::pending(pair.fingerprint)
        };
        let stapling = Stapling { status: Arc::new(status), stapled: None };
        certificates.staples.insert(pair.digest, Arc::new(stapling));
    }

    /// Adds a route to a backend with one endpoint, and returns its counters.
    pub fn route(&mut self, host: &str, path: &str, ingress: &str) -> Arc<RouteStats> {
        self.add_route(
            host,
            (PathMatch::Prefix, path),
            ingress,
            &[Endpoint::Address(([192, 0, 2, 1], 80).into())],
        )
    }

    pub fn orphan(&mut self, host: &str, path: &str, ingress: &str) -> Arc<RouteStats> {
        self.add_route(host, (PathMatch::Prefix, path), ingress, &[])
    }

    pub fn add_route(
        &mut self,
        host: &str,
        (kind, path): (PathMatch, &str),
        ingress: &str,
        endpoints: &[Endpoint],
    ) -> Arc<RouteStats> {
        let pattern = HostPattern::parse(host).unwrap();
        let ingress = object(ingress);
        let service = ObjectName::new(ingress.namespace.clone(), format!("{}-service", ingress.name));
        let key = Arc::new(ClusterKey { service, port: ServicePortRef::Number(80), by_service: false });
        let endpoints: Vec<_> = endpoints.iter().cloned().map(Arc::new).collect();
        let cluster = Cluster::new(key.clone(), endpoints, None);
        self.snapshot.clusters.0.insert(key.clone(), Arc::new(cluster));

        let route = Arc::new(Route {
            host: pattern.clone(),
            path: path.into(),
            ingress,
            action: Action::Forward(key),
            fallback: None,
            rewrite: None,
            policy: Arc::new(policy()),
            canary: None,
            stats: Arc::default(),
        });
        let stats = route.stats.clone();
        let known = self.snapshot.hosts.find_named(host).cloned();
        let mut routes: Vec<_> = known.iter().flat_map(|host| host.routes.entries()).map(owned).collect();
        routes.push((kind, path.into(), route));
        let host =
            Host { pattern: pattern.clone(), routes: PathMap::new(routes), has_tls: true, client_auth: None };
        self.snapshot.hosts.set(&pattern, Some(Arc::new(host)));
        stats
    }

    /// Closes all routes of a host for the sake of an annotation.
    pub fn close(&mut self, host: &str, annotation: &'static str) {
        let known = self.snapshot.hosts.find_named(host).unwrap().clone();
        let routes = known.routes.entries().map(|(kind, path, route)| {
            let Route { host, path: own, ingress, policy, stats, .. } = &**route;
            let action = Action::Refuse(annotation);
            let (host, own, ingress) = (host.clone(), own.clone(), ingress.clone());
            let (fallback, rewrite, policy, stats) = (None, None, policy.clone(), stats.clone());
            let canary = None;
            let closed = Route { host, path: own, ingress, action, fallback, rewrite, policy, canary, stats };
            (kind, path.into(), Arc::new(closed))
        });
        let host = Host {
            pattern: known.pattern.clone(),
            routes: PathMap::new(routes),
            has_tls: known.has_tls,
            client_auth: None,
        };
        self.snapshot.hosts.set(&known.pattern, Some(Arc::new(host)));
    }

    pub fn state(self) -> (AdminState, watch::Sender<Arc<View>>) {
        let (sender, view) = watch::channel(Arc::new(self.view));
        let shared = Shared::new(Arc::new(self.snapshot));
        let applied = Arc::new(Histogram::new(&APPLY_BOUNDS));
        let workers = self.workers;
        (AdminState { shared, workers, access_logs: None, applied, registry: None, view }, sender)
    }
}

fn owned((kind, path, route): (PathMatch, &str, &Arc<Route>)) -> (PathMatch, Box<str>, Arc<Route>) {
    (kind, path.into(), route.clone())
}

fn policy() -> RoutePolicy {
    let timeout = Duration::from_secs(60);
    RoutePolicy {
        redirect: HttpsRedirect::Never,
        preserve_trailing_slash: false,
        protocol: BackendProtocol::Http1,
        backend_mtls: false,
        cors: None,
        sources: None,
        auth: None,
        limits: None,
        max_body: None,
        connect_timeout: timeout,
        read_timeout: timeout,
        send_timeout: timeout,
        affinity: None,
    }
}

/// Seconds since the Unix epoch.
pub fn now() -> i64 {
    time::OffsetDateTime::now_utc().unix_timestamp()
}

pub fn object(name: &str) -> ObjectName {
    let (namespace, name) = name.split_once('/').unwrap();
    ObjectName::new(namespace, name)
}

pub fn observe(stats: &RouteStats, method: &Method, status: u16) {
    stats.observe(&Observation {
        method,
        status: StatusCode::from_u16(status).unwrap(),
        duration: Duration::from_millis(30),
        upstream: Some(Duration::from_millis(20)),
        received: 10,
        sent: 2000,
    });
}
