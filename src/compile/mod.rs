//! From objects to a snapshot: a pure function, called by the control loop after every batch of events.
//!
//! It does no I/O, knows no time but the one it is handed, and panics on no input. A bad object yields a
//! finding in the [`Report`] and harms nothing else. Only hosts, backends and Ingresses that the changes touch
//! are compiled anew; everything else is the same `Arc` as before, so the work grows with what changed and not
//! with what exists. The result does not depend on the order in which objects arrived.

mod aliases;
mod auth;
pub mod certificates;
mod classes;
mod client_auth;
mod clusters;
mod external_names;
mod handed_on;
mod hosts;
mod ingresses;
pub mod policies;
mod rechecks;
pub mod report;
pub mod staples;
#[cfg(test)]
mod tests;
mod ticket_keys;
mod trust;
mod workloads;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use crate::annotations;
use crate::diagnostics::{Diagnostic, ObjectRef, Severity};
use crate::names::HostPattern;
use crate::settings::Settings;
use crate::snapshot::Snapshot;
use crate::snapshot::certificates::Certificate;
use crate::snapshot::clusters::ClusterKey;
use crate::store::objects::{Ingress, Kind, ObjectName};
use crate::store::{Changes, Store};
use crate::tls::hbone::HboneTls;
use crate::tls::keys::{GenerateError, KeyPair};
use crate::tls::policy::{TlsPolicy, TlsPolicyError};
use crate::tls::tickets::{SharedKeys, Tickets};
use certificates::StapleWaits;
use classes::Classes;
use handed_on::HandedOn;
use hosts::Hosts;
use policies::Policies;
use rechecks::Rechecks;
use report::{Report, Subject};
use staples::{Leaves, StapleChanges, StapleDemand};
pub use workloads::LAST_GOOD_STAYS;

/// A snapshot, what there is to say about the objects it was made of, and when to look again. Copies share
/// structure.
#[derive(Clone)]
pub struct Compiled {
    pub snapshot: Snapshot,
    pub report: Report,
    /// Hosts whose certificates have changed, `Any` for the default certificate, until somebody takes it.
    pub recertified: Vec<HostPattern>,
    /// Whom to ask for staples from now on.
    pub staple_demand: StapleDemand,
    /// The session ticket keys that replicas share, where they do.
    pub ticket_keys: Option<SharedKeys>,
    /// What a generation before served, until the first compile.
    handed_on: HandedOn,
    leaves: Leaves,
    rechecks: Rechecks,
    tickets: Arc<Tickets>,
    /// The default certificate where no Secret gives one.
    generated: Arc<KeyPair>,
    policies: workloads::Table,
    /// The gateway's own certificate of the mesh that could be used last.
    own: Option<Arc<KeyPair>>,
}

/// Why there is nothing to begin with.
#[derive(Debug, thiserror::Error)]
pub enum EmptyError {
    #[error(transparent)]
    Tls(#[from] TlsPolicyError),
    #[error(transparent)]
    Certificate(#[from] GenerateError),
}

impl Compiled {
    /// What is served before there is any object: nothing, with generation 0 and a default certificate made
    /// for the occasion. Fails where the TLS settings ask for what the TLS library does not have.
    pub fn empty(settings: &Arc<Settings>, tickets: &Arc<Tickets>, now: i64) -> Result<Self, EmptyError> {
        let generated = Arc::new(KeyPair::generate_default()?);
        let (store, waits) = (Store::new(), StapleWaits::of(settings));
        let default = certificates::compile_default_certificate(&store, None, &generated, None, waits, now);
        let tls = Arc::new(TlsPolicy::new(settings, tickets)?);
        let snapshot = Snapshot::empty(settings.clone(), tls, default.certificates);
        let policies = workloads::Table::new(settings);
        Ok(Self {
            snapshot,
            report: Report::default(),
            recertified: Vec::new(),
            staple_demand: StapleDemand::default(),
            ticket_keys: None,
            handed_on: HandedOn::default(),
            leaves: Leaves::default(),
            rechecks: Rechecks::default(),
            tickets: tickets.clone(),
            generated,
            policies,
            own: None,
        })
    }

    /// Whether [`compile`] would change nothing: no object did, nor did the settings, and nothing is due at
    /// `now`. What was never compiled is not current.
    pub fn is_current(&self, changes: &Changes, settings: &Arc<Settings>, now: i64) -> bool {
        self.snapshot.generation > 0
            && changes.is_empty()
            && Arc::ptr_eq(settings, &self.snapshot.settings)
            && self.recheck_at().is_none_or(|at| at > now)
    }

    /// The time, in seconds since the Unix epoch, at which something has to be compiled again although nothing
    /// changed: the control loop then calls [`compile`] with empty changes.
    pub fn recheck_at(&self) -> Option<i64> {
        self.rechecks.next()
    }

    /// The policies of the mesh, compiled.
    pub fn policies(&self) -> &Arc<Policies> {
        self.policies.policies()
    }

    /// Every certificate to keep a staple for, one for each leaf.
    pub fn wanted_staples(&self) -> impl Iterator<Item = &Arc<Certificate>> {
        self.leaves.wanted()
    }
}

/// What `previous` becomes with `changes`, which are those of `store` since `previous` was compiled from it.
/// `now` is in seconds since the Unix epoch. The generation counts up.
pub fn compile(
    store: &Store,
    changes: &Changes,
    settings: &Arc<Settings>,
    previous: &Compiled,
    now: i64,
) -> Compiled {
    let scope = Scope::new(store, changes, settings, previous, now);
    let classes = Classes::new(store, settings);
    let mut staples = StapleChanges::new(previous, changes.staples.iter().copied());
    let mut next = previous.clone();
    next.snapshot.generation += 1;
    next.set_settings(settings);

    for name in &scope.ingresses {
        next.compile_ingress(store, &classes, name);
    }
    // Before hosts, whose routes share the keys of clusters.
    for key in &scope.clusters {
        for by_service in [false, true] {
            next.compile_cluster(store, &classes, &key.reached(by_service));
        }
    }
    let mut hosts = Hosts::new(store, &classes, settings, next.snapshot.tls.clone(), now);
    for pattern in &scope.hosts {
        next.compile_host(&mut hosts, pattern);
    }
    for pattern in &scope.certificates {
        next.compile_host_certificates(store, &classes, pattern, &mut staples, now);
    }
    for name in &scope.secrets {
        next.compile_secret(store, name);
    }
    if scope.default_certificate {
        next.compile_default_certificate(store, &mut staples, now);
    }
    next.compile_staples(store, staples);
    next.compile_workloads(store, &scope);
    if scope.trust {
        next.compile_trust(store, now);
    }
    if scope.ticket_keys {
        next.compile_ticket_keys(store);
    }
    next.handed_on.clear();
    next
}

impl Compiled {
    /// TLS settings that cannot be had leave the TLS policy as it was.
    fn set_settings(&mut self, settings: &Arc<Settings>) {
        if Arc::ptr_eq(settings, &self.snapshot.settings) {
            return;
        }
        let mut found = Vec::new();
        match TlsPolicy::new(settings, &self.tickets) {
            Ok(policy) => self.snapshot.tls = Arc::new(policy),
            Err(error) => found.push(Diagnostic {
                severity: Severity::Error,
                file: None,
                object: None,
                field: String::new(),
                reason: "InvalidTlsSettings",
                message: format!("{error}; the TLS policy stays as it was"),
            }),
        }
        self.report.set(Subject::Settings, found);
        self.snapshot.settings = settings.clone();
    }

    fn compile_ingress(&mut self, store: &Store, classes: &Classes, name: &ObjectName) {
        let settings = &self.snapshot.settings;
        let ingress = store.ingress(name);
        let found = ingress.map(|ingress| ingresses::diagnose_ingress(ingress, store, classes, settings));
        self.report.set(Subject::Object(ObjectRef::new(Kind::Ingress, name)), found.unwrap_or_default());
    }

    fn compile_cluster(&mut self, store: &Store, classes: &Classes, key: &ClusterKey) {
        let clusters = &mut self.snapshot.clusters.0;
        let before = clusters.get(key).cloned();
        let (after, found) =
            clusters::compile_cluster(store, classes, &self.snapshot.settings, key, before.as_ref());
        match after {
            Some(after) if before.is_some_and(|before| Arc::ptr_eq(&before, &after)) => {}
            Some(after) => {
                clusters.insert(after.key.clone(), after);
            }
            None => {
                clusters.remove(key);
            }
        }
        self.report.set(Subject::Cluster(key.clone()), found);
    }

    fn compile_host(&mut self, hosts: &mut Hosts, pattern: &HostPattern) {
        let before = self.snapshot.hosts.get(pattern).cloned();
        let after = hosts.compile_host(pattern, &self.snapshot.clusters, before.as_ref());
        if !same(&before, &after.host) {
            self.snapshot.hosts.set(pattern, after.host);
        }
        let subject = Subject::Host(pattern.clone());
        self.report.set(subject.clone(), after.found);
        self.rechecks.set(subject, after.recheck_at);
    }
}

impl Compiled {
    fn compile_host_certificates(
        &mut self,
        store: &Store,
        classes: &Classes,
        pattern: &HostPattern,
        staples: &mut StapleChanges,
        now: i64,
    ) {
        let grace = self.snapshot.settings.secret_grace_period.as_secs();
        let grace = i64::try_from(grace).unwrap_or(i64::MAX);
        let before = self.snapshot.certificates.get(pattern).cloned();
        let waits = StapleWaits::of(&self.snapshot.settings);
        let outcome = certificates::compile_host_certificates(
            store,
            pattern,
            &tls_ingresses(store, classes, &self.snapshot.settings, pattern),
            before.as_ref().or(self.handed_on.get(pattern)),
            grace,
            waits,
            now,
        );
        if !same(&before, &outcome.certificates) {
            self.replace_leaves(staples, before.as_deref(), outcome.certificates.as_deref());
            self.snapshot.certificates.set(pattern, outcome.certificates);
            self.recertified.push(pattern.clone());
        }
        let subject = Subject::Certificates(pattern.clone());
        self.report.set(subject.clone(), outcome.diagnostics);
        self.rechecks.set(subject, outcome.recheck_at);
    }

    fn compile_default_certificate(&mut self, store: &Store, staples: &mut StapleChanges, now: i64) {
        let secret = self.snapshot.settings.default_ssl_certificate.as_ref();
        let waits = StapleWaits::of(&self.snapshot.settings);
        let before = self.snapshot.certificates.default.clone();
        let outcome = certificates::compile_default_certificate(
            store,
            secret,
            &self.generated,
            Some(self.handed_on.get(&HostPattern::Any).unwrap_or(&before)),
            waits,
            now,
        );
        if !Arc::ptr_eq(&before, &outcome.certificates) {
            self.replace_leaves(staples, Some(&before), Some(&outcome.certificates));
            self.recertified.push(HostPattern::Any);
        }
        self.snapshot.certificates.default = outcome.certificates;
        self.report.set(Subject::DefaultCertificate, outcome.diagnostics);
        self.rechecks.set(Subject::DefaultCertificate, outcome.recheck_at);
    }

    /// Policies first: pods are looked at by the new ones.
    fn compile_workloads(&mut self, store: &Store, scope: &Scope) {
        let workloads = &mut self.snapshot.workloads;
        if scope.policies {
            let found = self.policies.recompile(store, &self.snapshot.settings);
            self.policies.compile_all(store, workloads);
            self.report.set(Subject::Policies, found);
        }
        for address in &scope.pods {
            self.policies.compile_address(store, workloads, *address);
        }
        for address in &scope.services {
            workloads::compile_service_address(store, workloads, *address);
        }
    }

    /// Root certificates, and a certificate of the gateway's own, that cannot be used leave those before them in
    /// force.
    fn compile_trust(&mut self, store: &Store, now: i64) {
        let snapshot = &mut self.snapshot;
        let settings = &snapshot.settings;
        let (trust, mut found) = trust::compile_trust(store, settings, snapshot.trust.take(), now);
        let (own, about_own) = trust::compile_own_certificate(store, settings, self.own.take());
        found.extend(about_own);
        // Roots that stay although they have ended, because nothing has come after them, are not looked at again.
        let next_end =
            trust.as_ref().map(|trust| trust.next_end()).filter(|end| now < *end && *end < i64::MAX);
        let policy = trust.clone().map(|trust| TlsPolicy::mesh(settings, trust));
        // An error is reported with the settings, which the policy of the other ports is made of too.
        if let Ok(policy) = policy.transpose() {
            snapshot.mesh = policy.map(Arc::new);
        }
        let hbone = trust.clone().zip(own.as_ref()).map(|(trust, own)| HboneTls::new(settings, trust, own));
        if let Ok(hbone) = hbone.transpose() {
            snapshot.hbone = hbone.map(Arc::new);
        }
        snapshot.hbone_client = trust::compile_client(&trust, &own, snapshot.hbone_client.take());
        snapshot.trust = trust;
        self.own = own;
        self.report.set(Subject::Trust, found);
        self.rechecks.set(Subject::Trust, next_end);
    }

    /// Keys that cannot be used leave those before them in use.
    fn compile_ticket_keys(&mut self, store: &Store) {
        let previous = self.ticket_keys.take();
        let (keys, found) = ticket_keys::compile_ticket_keys(store, &self.snapshot.settings, previous);
        self.ticket_keys = keys;
        self.report.set(Subject::TicketKeys, found);
    }

    fn compile_secret(&mut self, store: &Store, name: &ObjectName) {
        let found = store.secret(name).map(|secret| secret.findings());
        self.report.set(Subject::Object(ObjectRef::new(Kind::Secret, name)), found.unwrap_or_default());
    }
}

/// The Ingresses with a say about the certificates of a host, oldest first: those with rules for it or for the host that
/// it is another name of (`server-alias`), else those that send it on to a host of theirs (`from-to-www-redirect`).
fn tls_ingresses<'a>(
    store: &'a Store,
    classes: &Classes,
    settings: &Settings,
    host: &HostPattern,
) -> Vec<&'a Arc<Ingress>> {
    let has_say = |ingress: &&Arc<Ingress>| !ingress.tls.is_empty() && classes.serves_as_main(ingress);
    let origin = aliases::origin(store, classes, settings, host);
    let mut ingresses = store.ingresses_of_host(origin.as_ref().unwrap_or(host));
    ingresses.retain(has_say);
    if ingresses.is_empty() {
        let sends_on = |ingress: &Ingress| annotations::effects(&ingress.metadata, settings).redirects.www;
        ingresses = store.ingresses_of_www_partner(host);
        ingresses.retain(|ingress| has_say(ingress) && sends_on(ingress));
    }
    ingresses
}

fn same<T>(before: &Option<Arc<T>>, after: &Option<Arc<T>>) -> bool {
    match (before, after) {
        (Some(before), Some(after)) => Arc::ptr_eq(before, after),
        (None, None) => true,
        _ => false,
    }
}

/// Whether `ingress` has a say in what is served: its class is ours.
pub fn is_served(store: &Store, settings: &Settings, ingress: &Ingress) -> bool {
    Classes::new(store, settings).serves(ingress)
}

/// What has to be compiled.
struct Scope {
    /// Hosts for their routes.
    hosts: BTreeSet<HostPattern>,
    /// Hosts for their certificates.
    certificates: BTreeSet<HostPattern>,
    /// Each is meant by the Service's own address too.
    clusters: BTreeSet<ClusterKey>,
    ingresses: BTreeSet<ObjectName>,
    secrets: BTreeSet<ObjectName>,
    default_certificate: bool,
    /// All policies and workloads.
    policies: bool,
    pods: BTreeSet<IpAddr>,
    /// Addresses of Services.
    services: BTreeSet<IpAddr>,
    trust: bool,
    ticket_keys: bool,
}

impl Scope {
    fn new(
        store: &Store,
        changes: &Changes,
        settings: &Arc<Settings>,
        previous: &Compiled,
        now: i64,
    ) -> Self {
        let same_settings =
            Arc::ptr_eq(settings, &previous.snapshot.settings) || *settings == previous.snapshot.settings;
        if changes.all_hosts || !same_settings {
            return Self::everything(store, changes, settings, previous);
        }
        let due: BTreeSet<_> = previous.rechecks.due(now).collect();
        let certificates_due = due.iter().filter_map(|subject| match subject {
            Subject::Certificates(pattern) => Some(pattern),
            _ => None,
        });
        let hosts_due = due.iter().filter_map(|subject| match subject {
            Subject::Host(pattern) => Some(pattern),
            _ => None,
        });
        let changed = |secret: &Option<ObjectName>| {
            secret.as_ref().is_some_and(|secret| changes.secrets.contains(secret))
        };
        Self {
            hosts: changes.hosts.iter().chain(hosts_due).cloned().collect(),
            certificates: changes
                .hosts
                .iter()
                .chain(&changes.certificates)
                .chain(certificates_due)
                .chain(previous.handed_on.keys().filter(|host| **host != HostPattern::Any))
                .cloned()
                .collect(),
            clusters: changes.clusters.iter().cloned().collect(),
            ingresses: changes.ingresses.iter().cloned().collect(),
            secrets: changes.secrets.iter().cloned().collect(),
            // Named but not there is worth a word from the start.
            policies: changes.policies || previous.snapshot.generation == 0,
            pods: changes.pods.iter().copied().collect(),
            services: changes.services.iter().copied().collect(),
            trust: changes.trust
                || previous.snapshot.generation == 0
                || due.contains(&Subject::Trust)
                || changes.secrets.iter().any(|secret| trust::is_about(settings, secret)),
            default_certificate: previous.snapshot.generation == 0
                || due.contains(&Subject::DefaultCertificate)
                || changed(&settings.default_ssl_certificate),
            ticket_keys: previous.snapshot.generation == 0 || changed(&settings.ssl_session_ticket_secret),
        }
    }

    /// All that there is and all that there was.
    fn everything(store: &Store, changes: &Changes, settings: &Settings, previous: &Compiled) -> Self {
        let snapshot = &previous.snapshot;
        let mut scope = Self {
            hosts: store.hosts(),
            certificates: BTreeSet::new(),
            clusters: store.clusters().cloned().collect(),
            ingresses: store.ingresses().map(|ingress| ingress.metadata.name.clone()).collect(),
            // What there is to say about a Secret depends on nothing else.
            secrets: changes.secrets.iter().cloned().collect(),
            default_certificate: true,
            policies: changes.policies
                || previous.snapshot.generation == 0
                || previous.policies.differs(settings),
            pods: changes.pods.iter().copied().collect(),
            services: changes.services.iter().copied().collect(),
            trust: true,
            ticket_keys: true,
        };
        scope.hosts.extend(snapshot.hosts.patterns());
        scope.hosts.extend(snapshot.certificates.patterns());
        scope.hosts.extend(previous.handed_on.keys().filter(|host| **host != HostPattern::Any).cloned());
        scope.clusters.extend(snapshot.clusters.0.keys().map(|key| key.reached(false)));
        for subject in previous.report.subjects() {
            match subject {
                Subject::Host(pattern) | Subject::Certificates(pattern) => {
                    scope.hosts.insert(pattern.clone());
                }
                Subject::Cluster(key) => {
                    scope.clusters.insert(key.reached(false));
                }
                Subject::Object(object) if object.kind == Kind::Ingress => {
                    scope.ingresses.insert(ObjectName::new(object.namespace.clone(), object.name.clone()));
                }
                Subject::Object(_)
                | Subject::Settings
                | Subject::DefaultCertificate
                | Subject::Policies
                | Subject::Staple(_)
                | Subject::Trust
                | Subject::TicketKeys => {}
            }
        }
        scope.certificates.clone_from(&scope.hosts);
        scope
    }
}
