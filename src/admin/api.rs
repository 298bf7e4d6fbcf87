//! The JSON answers. Their shapes are a contract with scripts, with `portcullis certs` and `status` and with
//! the web page: fields are added, never renamed or taken away.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::AdminState;
use super::certificates::{CertificateJson, served};
use super::policies::{Policies, Summary};
use super::view::{PendingRestart, SettingsStatus, SourceStatus};
use crate::diagnostics::Diagnostic;
use crate::names::HostPattern;
use crate::settings::ChangeCounts;
use crate::snapshot::clusters::ClusterMap;
use crate::snapshot::hosts::{Action, BackendProtocol, Host, Route};
use crate::supervisor::messages::{Crash, GenerationStatus};
use crate::telemetry::worker_stats::WorkerStats;

/// `/api/v1/certificates`.
pub fn certificates(state: &AdminState) -> String {
    #[derive(Serialize)]
    struct Answer<'a> {
        certificates: Vec<CertificateJson<'a>>,
    }
    let snapshot = state.shared.load();
    let all = served(&snapshot.certificates);
    let certificates = all.iter().map(|served| CertificateJson::new(served, &snapshot)).collect();
    to_json(&Answer { certificates })
}

/// `/api/v1/policies`.
pub fn policies(state: &AdminState) -> String {
    to_json(&Policies::of(state))
}

/// `/api/v1/diagnostics`.
pub fn diagnostics(state: &AdminState) -> String {
    #[derive(Serialize)]
    struct Answer<'a> {
        diagnostics: &'a [Diagnostic],
    }
    to_json(&Answer { diagnostics: &state.view().diagnostics })
}

/// `/api/v1/status` at `now`, in seconds since the Unix epoch.
pub fn status(state: &AdminState, now: i64) -> String {
    #[derive(Serialize)]
    struct Answer<'a> {
        version: &'static str,
        pid: u32,
        generation: u64,
        ready: bool,
        not_ready_because: Option<String>,
        draining: bool,
        leader: Option<bool>,
        #[serde(serialize_with = "rfc3339")]
        started: i64,
        uptime_seconds: i64,
        pending_restart: &'a [PendingRestart],
        changes: ChangeCounts,
        last_restart_error: Option<&'a str>,
        last_crash: Option<CrashJson<'a>>,
        supervisor: u32,
        generations: &'a [GenerationStatus],
        settings: &'a SettingsStatus,
        sources: &'a [SourceStatus],
        hosts: usize,
        routes: usize,
        certificates: usize,
        clusters: usize,
        endpoints: usize,
        requests: u64,
        diagnostics: Counts,
        policies: Summary,
        workers: Vec<WorkerJson>,
    }
    #[derive(Serialize)]
    struct CrashJson<'a> {
        reason: &'a str,
        #[serde(serialize_with = "rfc3339")]
        at: i64,
    }
    #[derive(Serialize)]
    struct Counts {
        error: usize,
        warning: usize,
        info: usize,
    }
    let (snapshot, view) = (state.shared.load(), state.view());
    let not_ready_because = view.unready();
    let [(_, error), (_, warning), (_, info)] = view.counts();
    to_json(&Answer {
        version: env!("CARGO_PKG_VERSION"),
        pid: std::process::id(),
        generation: snapshot.generation,
        ready: not_ready_because.is_none(),
        not_ready_because,
        draining: view.draining,
        leader: view.leader,
        started: view.started,
        uptime_seconds: now.saturating_sub(view.started).max(0),
        pending_restart: &view.pending_restart,
        changes: view.changes,
        last_restart_error: view.last_restart_error.as_deref(),
        last_crash: view.last_crash.as_ref().map(|Crash { reason, at }| CrashJson { reason, at: *at }),
        supervisor: view.supervisor,
        generations: &view.generations,
        settings: &view.settings,
        sources: &view.sources,
        hosts: snapshot.hosts.patterns().count(),
        routes: super::routes(&snapshot).count(),
        certificates: served(&snapshot.certificates).len(),
        clusters: snapshot.clusters.0.len(),
        endpoints: snapshot.clusters.0.values().map(|cluster| cluster.endpoints.len()).sum(),
        requests: state.workers.iter().map(|worker| worker.requests.get()).sum(),
        diagnostics: Counts { error, warning, info },
        policies: Summary::of(state),
        workers: state.workers.iter().enumerate().map(WorkerJson::new).collect(),
    })
}

#[derive(Serialize)]
struct WorkerJson {
    worker: usize,
    /// Workers are threads of one process.
    pid: u32,
    connections: u64,
    accepted: u64,
    requests: u64,
    requests_in_flight: u64,
    handshakes_full: u64,
    handshakes_resumed: u64,
    handshakes_failed: u64,
    handshakes_in_flight: u64,
    upstream_idle: u64,
}

impl WorkerJson {
    fn new((worker, stats): (usize, &Arc<WorkerStats>)) -> Self {
        Self {
            worker,
            pid: std::process::id(),
            connections: stats.connections.get(),
            accepted: stats.accepted.get(),
            requests: stats.requests.get(),
            requests_in_flight: stats.requests_in_flight.get(),
            handshakes_full: stats.handshakes_full.get(),
            handshakes_resumed: stats.handshakes_resumed.get(),
            handshakes_failed: stats.handshakes_failed.iter().map(|(_, count)| count).sum(),
            handshakes_in_flight: stats.handshakes.get(),
            upstream_idle: stats.upstream_idle.get(),
        }
    }
}

/// `/api/v1/hosts`: hosts and routes as they are served now, with what was counted.
pub fn hosts(state: &AdminState) -> String {
    #[derive(Serialize)]
    struct Answer<'a> {
        hosts: Vec<HostJson<'a>>,
    }
    let snapshot = state.shared.load();
    let mut hosts: Vec<_> = super::hosts(&snapshot).collect();
    hosts.sort_by(|a, b| a.pattern.cmp(&b.pattern));
    to_json(&Answer {
        hosts: hosts.into_iter().map(|host| HostJson::new(host, &snapshot.clusters)).collect(),
    })
}

#[derive(Serialize)]
struct HostJson<'a> {
    host: &'a HostPattern,
    tls: bool,
    routes: Vec<RouteJson<'a>>,
}

#[derive(Serialize)]
struct RouteJson<'a> {
    path: &'a str,
    ingress: String,
    /// Service and port; null where no backend is asked.
    backend: Option<String>,
    protocol: &'static str,
    /// The route before has this one for some of its requests.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    canary: bool,
    endpoints: usize,
    /// Why requests cannot be served.
    unavailable: Option<Cow<'static, str>>,
    requests: u64,
    /// Requests that ended with a status of 500 or more.
    failed: u64,
}

impl<'a> HostJson<'a> {
    fn new(host: &'a Host, clusters: &ClusterMap) -> Self {
        let with_canary = |route: &'a Arc<Route>| {
            let canary = route.canary.as_ref().map(|canary| RouteJson::of_canary(&canary.route, clusters));
            std::iter::once(RouteJson::new(route, clusters)).chain(canary)
        };
        let routes = host.routes.iter().flat_map(with_canary).collect();
        Self { host: &host.pattern, tls: host.has_tls, routes }
    }
}

impl<'a> RouteJson<'a> {
    fn of_canary(route: &'a Route, clusters: &ClusterMap) -> Self {
        Self { canary: true, ..Self::new(route, clusters) }
    }

    fn new(route: &'a Route, clusters: &ClusterMap) -> Self {
        let key = match &route.action {
            Action::Forward(key) => Some(key),
            _ => None,
        };
        let cluster = key.and_then(|key| clusters.get(key));
        let unavailable = match &route.action {
            Action::Forward(_) => cluster.and_then(|cluster| cluster.unavailable).map(Cow::Borrowed),
            Action::Refuse(annotation) => {
                Some(format!("closed, because the annotation {annotation} is not supported").into())
            }
            Action::NotFound => Some("resource backends are not supported".into()),
            Action::Redirect(_) => None,
        };
        let mut requests = 0;
        let mut failed = 0;
        for (_, status, count) in route.stats.counters().into_iter().flat_map(|counters| counters.requests())
        {
            requests += count;
            failed += if status.starts_with('5') { count } else { 0 };
        }
        Self {
            path: &route.path,
            ingress: route.ingress.to_string(),
            backend: key.map(ToString::to_string),
            protocol: protocol_name(route.policy.protocol),
            canary: false,
            endpoints: cluster.map_or(0, |cluster| cluster.endpoints.len()),
            unavailable,
            requests,
            failed,
        }
    }
}

fn protocol_name(protocol: BackendProtocol) -> &'static str {
    match protocol {
        BackendProtocol::Http1 => "HTTP/1.1",
        BackendProtocol::H2c => "HTTP/2",
        BackendProtocol::Https => "HTTPS",
        BackendProtocol::Grpcs => "HTTP/2 over TLS",
    }
}

/// Everything that is answered is a tree of plain values, which serialises.
fn to_json(answer: &impl Serialize) -> String {
    serde_json::to_string(answer).unwrap_or_else(|_| "{}".into())
}

/// Seconds since the Unix epoch as RFC 3339; null for a time that has no such form.
pub fn rfc3339<S: Serializer>(seconds: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    let time = OffsetDateTime::from_unix_timestamp(*seconds).ok().and_then(|time| time.format(&Rfc3339).ok());
    time.serialize(serializer)
}

/// As [`rfc3339`], where there may be no time.
pub fn rfc3339_or_null<S: Serializer>(seconds: &Option<i64>, serializer: S) -> Result<S::Ok, S::Error> {
    match seconds {
        Some(seconds) => rfc3339(seconds, serializer),
        None => serializer.serialize_none(),
    }
}
