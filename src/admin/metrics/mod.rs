//! `/metrics`: everything that is counted, in the Prometheus text format.
//!
//! A scrape walks the snapshot, whose routes carry their counters, and reads atomics; it holds nothing that a
//! worker waits for. Label values come from the configuration, never from clients, so nobody outside can add a
//! series; routes without requests have none.

mod exposition;
mod families;
mod process;
#[cfg(test)]
mod tests;
mod traffic;

use std::collections::{BTreeMap, BTreeSet};

use aws_lc_rs::digest;
use x509_parser::prelude::{FromDer, X509Certificate};

use self::exposition::Exposition;
use self::families as family;
use super::AdminState;
use super::certificates::{Ocsp, Served, algorithm_name, served};
use super::policies::{count_rejected, dangling, decisions, tried_out};
use super::view::{SourceStatus, View};
use crate::diagnostics::Severity;
use crate::names::HostPattern;
use crate::snapshot::Snapshot;
use crate::snapshot::certificates::{Binding, Certificate, CertificateMap};
use crate::snapshot::hosts::Action;
use crate::store::objects::Kind;

/// What the answer is labelled with.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// A certificate that ends within this time counts as `expiring`.
const EXPIRING: i64 = 14 * 24 * 3600;

/// All metrics at `now`, in seconds since the Unix epoch.
pub fn render(state: &AdminState, now: i64) -> String {
    let (snapshot, view) = (state.shared.load(), state.view());
    let settings = &snapshot.settings;
    let mut constant = vec![("controller_class", settings.controller_class.as_str())];
    if let Some(pod) = &view.pod {
        constant.push(("controller_namespace", &pod.namespace));
        constant.push(("controller_pod", &pod.name));
    }
    let mut out = Exposition::new(&constant);
    traffic::requests(&mut out, &snapshot, &state.workers);
    traffic::workers(&mut out, &state.workers);
    if let Some(logs) = &state.access_logs {
        out.family(&family::ACCESS_LOG_DROPPED).add(&[], logs.dropped());
    }
    policies(&mut out, &snapshot, state);
    certificates(&mut out, &snapshot, now);
    configuration(&mut out, &snapshot, &view);
    let applied = traffic::add_up([&*state.applied].into_iter(), traffic::MICROSECONDS);
    out.family(&family::APPLY_DURATION).distribution(&[], &applied);
    orphans(&mut out, &snapshot);
    process::process(&mut out, view.started);

    let mut text = out.into_text();
    if let Some(registry) = &state.registry {
        // Writing to a string cannot fail.
        let _ = prometheus_client::encoding::prometheus_text::encode(&mut text, registry);
    }
    text
}

fn policies(out: &mut Exposition, snapshot: &Snapshot, state: &AdminState) {
    let mut family = out.family(&family::POLICY_DECISIONS);
    for ((policy, reason), count) in decisions(&state.workers) {
        let (namespace, name) = policy.as_ref().map_or(("", ""), |name| (&*name.namespace, &*name.name));
        family.add(&[namespace, name, reason], count);
    }
    let mut family = out.family(&family::POLICY_DRY_RUN);
    for (tried, count) in tried_out(&state.workers) {
        let (namespace, name) = (&*tried.policy.namespace, &*tried.policy.name);
        let matched = if tried.matches { "true" } else { "false" };
        family.add(&[namespace, name, &tried.action.to_string(), matched], count);
    }
    out.family(&family::POLICY_DANGLING).add(&[], dangling(&snapshot.workloads).count());
    out.family(&family::POLICY_REJECTED).add(&[], count_rejected(state));
}

/// A host as metrics have it; `_` is every host, as ingress-nginx has it.
fn host_label(host: &HostPattern) -> String {
    match host {
        HostPattern::Any => "_".into(),
        host => host.to_string(),
    }
}

fn certificates(out: &mut Exposition, snapshot: &Snapshot, now: i64) {
    let class = snapshot.settings.controller_class.as_str();
    let all = served(&snapshot.certificates);
    let rows: Vec<_> = all.iter().flat_map(|served| rows(served, class)).collect();

    let mut expire = out.family(&family::EXPIRE_TIME);
    for row in &rows {
        expire.add(&row.labels(), row.not_after);
    }
    let mut info = out.family(&family::CERTIFICATE_INFO);
    for row in &rows {
        let [namespace, class, host, secret, identifier] = row.labels();
        let issuer = &row.issuer;
        let more = [issuer.organization.as_str(), &issuer.common_name, row.serial, row.algorithm];
        let [organization, common_name, serial, algorithm] = more;
        info.add(
            &[namespace, class, host, secret, identifier, organization, common_name, serial, algorithm],
            1,
        );
    }

    handshakes(out, &snapshot.certificates);

    let mut states =
        BTreeMap::from(["valid", "expiring", "expired", "not_yet_valid"].map(|state| (state, 0)));
    let mut staples: BTreeMap<_, u64> = BTreeMap::new();
    for Served { certificate, .. } in &all {
        *states.entry(validity(certificate.pair.not_before, certificate.pair.not_after, now)).or_default() +=
            1;
        *staples.entry(Ocsp::of(certificate, snapshot).state.as_str()).or_default() += 1;
    }
    let mut family = out.family(&family::CERTIFICATES);
    states.iter().for_each(|(state, count)| family.add(&[state], count));
    let mut family = out.family(&family::OCSP);
    staples.iter().for_each(|(state, count)| family.add(&[state], count));
    staple_times(out, &all, snapshot, now);
}

/// Those that have been served, by Secret and host.
fn handshakes(out: &mut Exposition, map: &CertificateMap) {
    let exact = map.exact.iter().map(|(name, of_host)| (HostPattern::Exact(name.clone()), of_host));
    let wildcard = map.wildcard.iter().map(|(name, of_host)| (HostPattern::Wildcard(name.clone()), of_host));
    let all = exact.chain(wildcard).chain([(HostPattern::Any, &map.default)]);
    let mut counts: BTreeMap<_, u64> = BTreeMap::new();
    for (host, of_host) in all {
        for Binding { certificate, .. } in of_host.iter() {
            *counts.entry((certificate.secret.as_ref(), host.clone())).or_default() +=
                certificate.handshakes.get();
        }
    }
    let mut family = out.family(&family::CERTIFICATE_HANDSHAKES);
    for ((secret, host), count) in counts.into_iter().filter(|(_, count)| *count > 0) {
        let (namespace, name) = secret.map_or(("", ""), |secret| (&*secret.namespace, &*secret.name));
        family.add(&[namespace, name, &host_label(&host)], count);
    }
}

/// Age and rest of each staple, in seconds.
fn staple_times(out: &mut Exposition, all: &[Served], snapshot: &Snapshot, now: i64) {
    let times: Vec<_> = all
        .iter()
        .filter_map(|Served { certificate, .. }| {
            let ocsp = Ocsp::of(certificate, snapshot);
            Some((certificate, now - ocsp.this_update?, ocsp.next_update? - now))
        })
        .collect();
    let labels = |certificate: &Certificate| {
        let secret = certificate.secret.as_ref();
        let (namespace, name) = secret.map_or(("", ""), |secret| (&*secret.namespace, &*secret.name));
        [namespace.to_owned(), name.to_owned(), certificate.pair.serial.to_string()]
    };
    let mut family = out.family(&family::STAPLE_AGE);
    for (certificate, age, _) in &times {
        family.add(&labels(certificate).each_ref().map(String::as_str), age);
    }
    let mut family = out.family(&family::STAPLE_REMAINING);
    for (certificate, _, remaining) in &times {
        family.add(&labels(certificate).each_ref().map(String::as_str), remaining);
    }
}

fn validity(not_before: i64, not_after: i64, now: i64) -> &'static str {
    if now < not_before {
        "not_yet_valid"
    } else if now > not_after {
        "expired"
    } else if now > not_after.saturating_sub(EXPIRING) {
        "expiring"
    } else {
        "valid"
    }
}

/// One certificate for one host.
struct Row<'a> {
    namespace: &'a str,
    class: &'a str,
    host: String,
    secret: &'a str,
    /// Issuer and serial number, the issuer always empty: the shape that ingress-nginx has.
    identifier: String,
    issuer: Issuer,
    serial: &'a str,
    algorithm: &'static str,
    not_after: i64,
}

fn rows<'a>(served: &'a Served, class: &'a str) -> impl Iterator<Item = Row<'a>> {
    let Served { certificate, hosts, default } = served;
    let pair = &certificate.pair;
    let (namespace, secret) = certificate.secret.as_ref().map_or(("", ""), |s| (&*s.namespace, &*s.name));
    let issuer = Issuer::of(pair.leaf());
    let hosts: BTreeSet<_> = hosts.iter().map(host_label).chain(default.then(|| "_".to_owned())).collect();
    hosts.into_iter().map(move |host| Row {
        namespace,
        class,
        host,
        secret,
        identifier: format!("-{}", pair.serial),
        issuer: issuer.clone(),
        serial: &pair.serial,
        algorithm: algorithm_name(pair.algorithm),
        not_after: pair.not_after,
    })
}

impl Row<'_> {
    fn labels(&self) -> [&str; 5] {
        [self.namespace, self.class, &self.host, self.secret, &self.identifier]
    }
}

/// Who signed a certificate; empty where it does not say.
#[derive(Clone, Default)]
struct Issuer {
    organization: String,
    common_name: String,
}

impl Issuer {
    fn of(leaf: &[u8]) -> Self {
        let Ok((_, leaf)) = X509Certificate::from_der(leaf) else { return Self::default() };
        let text = |value: Option<&x509_parser::x509::AttributeTypeAndValue<'_>>| {
            value.and_then(|value| value.as_str().ok()).unwrap_or_default().to_owned()
        };
        let issuer = leaf.issuer();
        Self {
            organization: text(issuer.iter_organization().next()),
            common_name: text(issuer.iter_common_name().next()),
        }
    }
}

fn configuration(out: &mut Exposition, snapshot: &Snapshot, view: &View) {
    out.family(&family::BUILD_INFO).add(&[env!("CARGO_PKG_VERSION"), "", env!("CARGO_PKG_NAME")], 1);
    out.family(&family::CONFIG_HASH).add(&[], settings_hash(snapshot));
    let successful = view.settings.error.is_none() && view.last_restart_error.is_none();
    out.family(&family::RELOAD_SUCCESSFUL).add(&[], u8::from(successful));
    out.family(&family::RELOAD_TIME).add(&[], view.settings.loaded);
    if let Some(leader) = view.leader {
        let name = view.pod.as_ref().map_or("", |pod| &pod.name);
        out.family(&family::LEADER).add(&[name], u8::from(leader));
    }
    out.family(&family::READY).add(&[], u8::from(view.unready().is_none()));
    out.family(&family::GENERATION).add(&[], snapshot.generation);
    let mut family = out.family(&family::CONFIG_CHANGES);
    family.add(&["dynamic"], view.changes.dynamic);
    family.add(&["restart"], view.changes.restart);
    family.add(&["rejected"], view.changes.rejected);
    out.family(&family::RESTART_PENDING).add(&[], view.pending_restart.len());
    let mut family = out.family(&family::SOURCE_SYNCED);
    let sources: BTreeMap<_, _> = view.sources.iter().map(|source| (&source.name, source)).collect();
    sources.iter().for_each(|(name, source)| family.add(&[name], u8::from(source.synced)));
    let mut family = out.family(&family::SOURCE_STALE);
    sources.iter().for_each(|(name, source)| family.add(&[name], u8::from(source.stale_since.is_some())));
    let mut family = out.family(&family::WATCH_UP);
    let is_up = |source: &SourceStatus| source.synced && source.last_error.is_none();
    sources.iter().for_each(|(name, source)| family.add(&[name], u8::from(is_up(source))));

    let mut findings: BTreeMap<_, u64> = BTreeMap::new();
    for found in view.diagnostics.iter() {
        *findings.entry((found.severity, found.reason)).or_default() += 1;
    }
    let mut family = out.family(&family::DIAGNOSTICS);
    for ((severity, reason), count) in findings {
        family.add(&[severity_name(severity), reason], count);
    }

    let errors = view.diagnostics.iter().filter(|found| found.severity == Severity::Error);
    let of_secrets = errors.filter_map(|found| {
        let secret = found.object.as_ref().filter(|object| object.kind == Kind::Secret)?;
        Some([&*secret.namespace, &*secret.name, found.reason])
    });
    let of_secrets: BTreeSet<_> = of_secrets.collect();
    let mut family = out.family(&family::CERTIFICATE_ERRORS);
    of_secrets.iter().for_each(|labels| family.add(labels, 1));

    out.family(&family::HOSTS).add(&[], snapshot.hosts.patterns().count());
    out.family(&family::CLUSTERS).add(&[], snapshot.clusters.0.len());
    let endpoints: usize = snapshot.clusters.0.values().map(|cluster| cluster.endpoints.len()).sum();
    out.family(&family::ENDPOINTS).add(&[], endpoints);
}

fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "info",
    }
}

/// Six bytes of a hash: a number that Prometheus, which only has floating point, holds exactly.
fn settings_hash(snapshot: &Snapshot) -> u64 {
    let settings = serde_json::to_vec(&*snapshot.settings).unwrap_or_default();
    let hash = digest::digest(&digest::SHA256, &settings);
    hash.as_ref().iter().take(6).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn orphans(out: &mut Exposition, snapshot: &Snapshot) {
    let routes = super::routes(snapshot);
    let orphans: BTreeSet<_> = routes
        .filter_map(|route| {
            let Action::Forward(key) = &route.action else { return None };
            let kind = match snapshot.clusters.get(key) {
                None => "no-service",
                Some(cluster) if cluster.endpoints.is_empty() => "no-endpoint",
                Some(_) => return None,
            };
            Some((&*route.ingress.namespace, &*route.ingress.name, kind))
        })
        .collect();
    let mut family = out.family(&family::ORPHAN_INGRESS);
    orphans.into_iter().for_each(|(namespace, ingress, kind)| family.add(&[namespace, ingress, kind], 1));
}
