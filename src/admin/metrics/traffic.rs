//! Requests by route, connections and handshakes by worker.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::exposition::{Distribution, Exposition};
use super::families::{self as family, Family};
use super::host_label;
use crate::names::object::ServicePortRef;
use crate::snapshot::Snapshot;
use crate::snapshot::hosts::{Action, Route};
use crate::telemetry::histogram::Histogram;
use crate::telemetry::route_stats::Counters;
use crate::telemetry::worker_stats::{Counter, Gauge, WorkerStats};

/// What tells the series of routes apart. Two routes may have the same, an exact path and a prefix for
/// instance; those are counted as one, for a series must not occur twice.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct RouteLabels<'a> {
    host: String,
    path: &'a str,
    namespace: &'a str,
    ingress: &'a str,
    service: &'a str,
    /// The backend of a canary, as ingress-nginx writes it; empty for the main one.
    canary: String,
}

impl<'a> RouteLabels<'a> {
    fn of(route: &'a Route) -> Self {
        let service = match &route.action {
            Action::Forward(cluster) => &*cluster.service.name,
            _ => "",
        };
        Self {
            host: host_label(&route.host),
            path: &route.path,
            namespace: &route.ingress.namespace,
            ingress: &route.ingress.name,
            service,
            canary: String::new(),
        }
    }

    fn of_canary(route: &'a Route) -> Self {
        let canary = match &route.action {
            Action::Forward(cluster) => {
                let port = match &cluster.port {
                    ServicePortRef::Number(port) => port.to_string(),
                    ServicePortRef::Name(port) => port.to_string(),
                };
                format!("{}-{}-{port}", cluster.service.namespace, cluster.service.name)
            }
            _ => String::new(),
        };
        Self { canary, ..Self::of(route) }
    }

    /// What no route was found for.
    fn unrouted() -> Self {
        let host = "_unknown".into();
        Self { host, path: "", namespace: "", ingress: "", service: "", canary: String::new() }
    }

    /// In the order of the families.
    fn values(&self) -> [&str; 6] {
        [self.path, self.namespace, self.ingress, self.service, &self.canary, &self.host]
    }
}

type Traffic<'a> = BTreeMap<RouteLabels<'a>, Vec<&'a Counters>>;

/// Picks one histogram of a route.
type Pick = fn(&Counters) -> &Histogram;

pub(super) fn requests(out: &mut Exposition, snapshot: &Snapshot, workers: &[Arc<WorkerStats>]) {
    let mut traffic = Traffic::new();
    let routes = super::super::routes(snapshot).flat_map(|route| {
        let canary = route.canary.as_ref().map(|canary| &*canary.route);
        let labels = canary.map(|canary| (canary, RouteLabels::of_canary(canary)));
        std::iter::once((route, RouteLabels::of(route))).chain(labels)
    });
    for (route, labels) in routes {
        if let Some(counters) = route.stats.counters() {
            let same = traffic.entry(labels).or_default();
            if !same.iter().any(|known| std::ptr::eq(*known, counters)) {
                same.push(counters);
            }
        }
    }
    let unrouted: Vec<_> = workers.iter().filter_map(|worker| worker.unrouted.counters()).collect();
    if !unrouted.is_empty() {
        traffic.insert(RouteLabels::unrouted(), unrouted);
    }

    let mut family = out.family(&family::REQUESTS);
    for (labels, counters) in &traffic {
        let mut counts: BTreeMap<_, u64> = BTreeMap::new();
        for (method, status, count) in counters.iter().flat_map(|counters| counters.requests()) {
            *counts.entry((method, status)).or_default() += count;
        }
        let [path, namespace, ingress, service, canary, host] = labels.values();
        for ((method, status), count) in counts {
            family.add(&[&status, method, path, namespace, ingress, service, canary, host], count);
        }
    }
    histograms(out, &family::REQUEST_DURATION, &traffic, MICROSECONDS, |c| &c.request_duration);
    histograms(out, &family::RESPONSE_DURATION, &traffic, MICROSECONDS, |c| &c.response_duration);
    histograms(out, &family::REQUEST_SIZE, &traffic, BYTES, |c| &c.request_size);
    histograms(out, &family::RESPONSE_SIZE, &traffic, BYTES, |c| &c.response_size);
}

/// How many of what a histogram counts make one of what its family is in.
pub(super) const MICROSECONDS: f64 = 1e6;
const BYTES: f64 = 1.0;

fn histograms(out: &mut Exposition, family: &'static Family, traffic: &Traffic<'_>, per: f64, pick: Pick) {
    let mut family = out.family(family);
    for (labels, counters) in traffic {
        let distribution = add_up(counters.iter().map(|counters| pick(counters)), per);
        family.distribution(&labels.values(), &distribution);
    }
}

// Counts beyond 2^53 would be rounded, which nobody notices.
#[allow(clippy::cast_precision_loss)]
pub(super) fn add_up<'a>(histograms: impl Iterator<Item = &'a Histogram>, per: f64) -> Distribution {
    let mut total = Distribution::default();
    for histogram in histograms {
        let buckets = histogram.cumulative().map(|(bound, count)| {
            let bound = bound.map_or(f64::INFINITY, |bound| bound as f64 / per);
            (bound, count)
        });
        match total.buckets.is_empty() {
            true => total.buckets = buckets.collect(),
            false => total.buckets.iter_mut().zip(buckets).for_each(|(sum, (_, count))| sum.1 += count),
        }
        total.sum += histogram.sum() as f64 / per;
    }
    total
}

pub(super) fn workers(out: &mut Exposition, workers: &[Arc<WorkerStats>]) {
    let counter = |pick: fn(&WorkerStats) -> &Counter| workers.iter().map(|w| pick(w).get()).sum::<u64>();
    let gauge = |pick: fn(&WorkerStats) -> &Gauge| workers.iter().map(|w| pick(w).get()).sum::<u64>();

    out.family(&family::CONNECTIONS).add(&["active"], gauge(|w| &w.connections));
    out.family(&family::CONNECTIONS_TOTAL).add(&["accepted"], counter(|w| &w.accepted));
    let mut family = out.family(&family::WORKER_CONNECTIONS);
    for (index, worker) in workers.iter().enumerate() {
        family.add(&[&index.to_string()], worker.connections.get());
    }

    out.family(&family::REQUESTS_TOTAL).add(&[], counter(|w| &w.requests));
    out.family(&family::REQUESTS_IN_FLIGHT).add(&[], gauge(|w| &w.requests_in_flight));

    let mut failures: BTreeMap<_, u64> = BTreeMap::new();
    for (reason, count) in workers.iter().flat_map(|worker| worker.handshakes_failed.iter()) {
        *failures.entry(reason).or_default() += count;
    }
    let mut family = out.family(&family::HANDSHAKES);
    family.add(&["full"], counter(|w| &w.handshakes_full));
    family.add(&["resumed"], counter(|w| &w.handshakes_resumed));
    family.add(&["failed"], failures.values().sum::<u64>());
    let mut family = out.family(&family::HANDSHAKE_FAILURES);
    failures.iter().for_each(|(reason, count)| family.add(&[reason], count));
    out.family(&family::SNI_NO_MATCH).add(&[], counter(|w| &w.sni_no_match));
    let mut family = out.family(&family::DEFAULT_CERTIFICATE);
    family.add(&["true"], counter(|w| &w.default_for_host));
    family.add(&["false"], counter(|w| &w.default_for_others));
    out.family(&family::HANDSHAKES_STAPLED).add(&[], counter(|w| &w.handshakes_stapled));
    out.family(&family::HANDSHAKES_UNSTAPLED).add(&[], counter(|w| &w.handshakes_unstapled));
    out.family(&family::MUST_STAPLE_UNSTAPLED).add(&[], counter(|w| &w.must_staple_unstapled));
    out.family(&family::HANDSHAKES_IN_FLIGHT).add(&[], gauge(|w| &w.handshakes));
    out.family(&family::TUNNELS_OPEN).add(&[], gauge(|w| &w.tunnels.open));
    let mut family = out.family(&family::TUNNELS);
    family.add(&["opened"], counter(|w| &w.tunnels.opened));
    family.add(&["denied"], counter(|w| &w.tunnels.denied));
    family.add(&["refused"], counter(|w| &w.tunnels.refused));
    family.add(&["unavailable"], counter(|w| &w.tunnels.unavailable));
    out.family(&family::UPSTREAM_IDLE).add(&[], gauge(|w| &w.upstream_idle));
    out.family(&family::PROXY_HEADERS_REFUSED).add(&[], counter(|w| &w.proxy_headers_refused));
    out.family(&family::RESPONSES_BROKEN).add(&[], counter(|w| &w.responses_broken));
    out.family(&family::PANICS).add(&[], counter(|w| &w.panics));
}
