//! From objects to a snapshot: a pure function, called by the control loop after every batch of events.
//!
//! It does no I/O, knows no time but the one it is handed, and panics on no input. A bad object yields a
//! finding in the [`Report`] and harms nothing else. Only hosts, backends and Ingresses that the changes touch
//! are compiled anew; everything else is the same `Arc` as before, so the work grows with what changed and not
//! with what exists. The result does not depend on the order in which objects arrived.

mod classes;
mod clusters;
mod external_names;
mod hosts;
mod ingresses;
mod rechecks;
pub mod report;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::diagnostics::{Diagnostic, ObjectRef, Severity};
use crate::names::HostPattern;
use crate::settings::Settings;
use crate::snapshot::Snapshot;
use crate::snapshot::certificates::{CertificateMap, HostCertificates};
use crate::snapshot::clusters::{ClusterKey, ClusterMap};
use crate::snapshot::hosts::HostMap;
use crate::store::objects::{Kind, ObjectName};
use crate::store::{Changes, Store};
use crate::tls::policy::{TlsPolicy, TlsPolicyError};
use crate::tls::tickets::Tickets;
use classes::Classes;
use hosts::Hosts;
use rechecks::Rechecks;
use report::{Report, Subject};

/// A snapshot, what there is to say about the objects it was made of, and when to look again. Copies share
/// structure.
#[derive(Clone)]
pub struct Compiled {
    pub snapshot: Snapshot,
    pub report: Report,
    rechecks: Rechecks,
    tickets: Arc<Tickets>,
}

impl Compiled {
    /// What is served before there is any object: nothing, with generation 0. Fails where the TLS settings
    /// ask for what the TLS library does not have.
    pub fn empty(
        settings: &Arc<Settings>,
        tickets: &Arc<Tickets>,
        _now: i64,
    ) -> Result<Self, TlsPolicyError> {
        let snapshot = Snapshot {
            generation: 0,
            settings: settings.clone(),
            certificates: CertificateMap {
                exact: Default::default(),
                wildcard: Default::default(),
                default: Arc::new(HostCertificates { certificates: Box::default() }),
            },
            hosts: HostMap::default(),
            clusters: ClusterMap::default(),
            tls: Arc::new(TlsPolicy::new(settings, tickets)?),
        };
        let (report, rechecks) = (Report::default(), Rechecks::default());
        Ok(Self { snapshot, report, rechecks, tickets: tickets.clone() })
    }

    /// The time, in seconds since the Unix epoch, at which something has to be compiled again although nothing
    /// changed: the control loop then calls [`compile`] with empty changes.
    pub fn recheck_at(&self) -> Option<i64> {
        self.rechecks.next()
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
    let mut next = previous.clone();
    next.snapshot.generation += 1;
    next.set_settings(settings);

    for name in &scope.ingresses {
        next.compile_ingress(store, &classes, name);
    }
    // Before hosts, whose routes share the keys of clusters.
    for key in &scope.clusters {
        next.compile_cluster(store, &classes, key);
    }
    let mut hosts = Hosts::new(store, &classes, settings);
    for pattern in &scope.hosts {
        next.compile_host(&mut hosts, pattern);
    }
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
        let found = ingress.map(|ingress| ingresses::diagnose_ingress(ingress, classes, settings));
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
        let (after, found) = hosts.compile_host(pattern, &self.snapshot.clusters, before.as_ref());
        let same = match (&before, &after) {
            (Some(before), Some(after)) => Arc::ptr_eq(before, after),
            (None, None) => true,
            _ => false,
        };
        if !same {
            self.snapshot.hosts.set(pattern, after);
        }
        self.report.set(Subject::Host(pattern.clone()), found);
    }
}

/// What has to be compiled.
struct Scope {
    hosts: BTreeSet<HostPattern>,
    clusters: BTreeSet<ClusterKey>,
    ingresses: BTreeSet<ObjectName>,
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
            return Self::everything(store, previous);
        }
        let due = previous.rechecks.due(now).filter_map(|subject| match subject {
            Subject::Certificates(pattern) => Some(pattern),
            _ => None,
        });
        Self {
            hosts: changes.hosts.iter().chain(due).cloned().collect(),
            clusters: changes.clusters.iter().cloned().collect(),
            ingresses: changes.ingresses.iter().cloned().collect(),
        }
    }

    /// All that there is and all that there was.
    fn everything(store: &Store, previous: &Compiled) -> Self {
        let snapshot = &previous.snapshot;
        let mut scope = Self {
            hosts: store.hosts(),
            clusters: store.clusters().cloned().collect(),
            ingresses: store.ingresses().map(|ingress| ingress.metadata.name.clone()).collect(),
        };
        scope.hosts.extend(snapshot.hosts.patterns());
        scope.clusters.extend(snapshot.clusters.0.keys().map(|key| (**key).clone()));
        for subject in previous.report.subjects() {
            match subject {
                Subject::Host(pattern) | Subject::Certificates(pattern) => {
                    scope.hosts.insert(pattern.clone());
                }
                Subject::Cluster(key) => {
                    scope.clusters.insert(key.clone());
                }
                Subject::Object(object) => {
                    scope.ingresses.insert(ObjectName::new(object.namespace.clone(), object.name.clone()));
                }
                Subject::Settings | Subject::DefaultCertificate => {}
            }
        }
        scope
    }
}
