//! All that is written to the API server: addresses in the status of Ingresses, conditions in the status of
//! AuthorizationPolicies, and findings as Events. Written by the replica that holds the Lease, in tasks on the
//! control runtime; nothing ever waits for it.
//!
//! The control loop puts into an [`Outbox`] what is to be said; a lost Lease or a lost API server only means
//! that it is said later. What was written is taken back by the last replica alone, and only if a setting says so.

mod addresses;
mod events;
mod ingresses;
pub mod lease;
mod policies;
mod replicas;
mod rights;

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use imbl::{OrdMap, OrdSet};
use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::compile;
use crate::compile::policies::Policies;
use crate::diagnostics::Diagnostic;
use crate::pod::PodIdentity;
use crate::settings::Settings;
use crate::sources::{IngressStatus, PolicyStatus};
use crate::store::objects::{Kind, ObjectName};
use crate::store::{Changes, Event, Store};
use addresses::Addresses;
use lease::Election;
use policies::Verdicts;
use replicas::Replicas;
use rights::general;

/// The field manager of what we write, and the reporter of Events.
const MANAGER: &str = "portcullis";
/// What changes shortly after another change is written with it.
const PAUSE: Duration = Duration::from_millis(500);
/// Time for what is still to be said at the end.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How often everything is looked at without a change.
const RELOOK: Duration = Duration::from_secs(10);

/// Time to find out whether other replicas are left, and to clear the status.
const CLEAR: Duration = Duration::from_secs(5);

/// What the control loop wants to be written. A copy shares everything.
#[derive(Clone)]
struct Wanted {
    settings: Arc<Settings>,
    /// The Ingresses that are served, with what their status says now.
    served: OrdMap<ObjectName, Arc<IngressStatus>>,
    /// AuthorizationPolicies, with what their status says now.
    policies: OrdMap<ObjectName, Arc<PolicyStatus>>,
    verdicts: Verdicts,
    diagnostics: Arc<[Diagnostic]>,
}

/// The control loop's side: takes what is to be written, and never blocks.
pub struct Outbox {
    /// Of all Ingresses, served or not.
    statuses: OrdMap<ObjectName, Arc<IngressStatus>>,
    wanted: watch::Sender<Wanted>,
    leader: watch::Receiver<bool>,
    /// Why nobody can tell who leads.
    no_lease: watch::Receiver<Option<String>>,
    /// What the writer is kept from.
    findings: watch::Receiver<Vec<Diagnostic>>,
    /// Whether the writer shall say what is due and end.
    last_words: watch::Sender<bool>,
    writer: JoinHandle<()>,
    stop: watch::Sender<bool>,
    election: JoinHandle<()>,
    client: Client,
    /// Where the Lease is, and whatever else is our own.
    namespace: String,
    replicas: Replicas,
}

impl Outbox {
    /// Starts the election and the writers, on the control runtime.
    pub fn start(client: Client, settings: Arc<Settings>, pod: &PodIdentity) -> Self {
        let namespace = pod.namespace().unwrap_or(client.default_namespace()).to_owned();
        let election = Election::new(client.clone(), &namespace, &settings.election_id, pod.lease_holder());
        let (leader, no_lease) = (election.leader(), election.problem());
        let (stop, stopped) = watch::channel(false);
        let wanted = Wanted {
            settings,
            served: OrdMap::new(),
            policies: OrdMap::new(),
            verdicts: Verdicts::default(),
            diagnostics: Arc::new([]),
        };
        let (wanted, wants) = watch::channel(wanted);
        let (last_words, last) = watch::channel(false);
        let replicas = Replicas::of(pod.pod());
        let addresses = Addresses::new(replicas.clone());
        let (told, findings) = watch::channel(Vec::new());
        let instance = pod.instance().to_owned();
        let writer = write(client.clone(), instance, addresses, wants, leader.clone(), last, told);
        let writer = tokio::task::spawn_local(writer);
        let election = tokio::task::spawn_local(election.run(stopped));
        let statuses = OrdMap::new();
        Self {
            statuses,
            wanted,
            leader,
            no_lease,
            findings,
            last_words,
            writer,
            stop,
            election,
            client,
            namespace,
            replicas,
        }
    }

    /// Whether this replica is the one that writes.
    pub fn is_leader(&self) -> bool {
        *self.leader.borrow()
    }

    /// The same, now and from now on.
    pub fn leader(&self) -> watch::Receiver<bool> {
        self.leader.clone()
    }

    /// The namespace of what is the gateway's own.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// What keeps us from writing.
    pub fn findings(&self) -> Vec<Diagnostic> {
        let no_lease = self.no_lease.borrow().as_deref().map(no_lease);
        self.findings.borrow().iter().cloned().chain(no_lease).collect()
    }

    /// Waits until another replica leads, or something else keeps us from writing.
    pub async fn changed(&mut self) {
        let changed = tokio::select! {
            changed = self.leader.changed() => changed,
            changed = self.no_lease.changed() => changed,
            changed = self.findings.changed() => changed,
        };
        if changed.is_err() {
            pending().await
        }
    }

    /// Takes note of what sources saw.
    pub fn observe(&mut self, events: &[Event], statuses: Vec<IngressStatus>, policies: Vec<PolicyStatus>) {
        let gone = gone(events);
        let of = |kind| gone.iter().filter(move |(gone, _)| *gone == kind).map(|(_, name)| *name);
        of(Kind::Ingress).for_each(|name| drop(self.statuses.remove(name)));
        if !policies.is_empty() || of(Kind::AuthorizationPolicy).next().is_some() {
            self.wanted.send_modify(|wanted| {
                let policies = policies.into_iter().map(|status| (status.policy.clone(), Arc::new(status)));
                wanted.policies.extend(policies);
                of(Kind::AuthorizationPolicy).for_each(|name| drop(wanted.policies.remove(name)));
            });
        }
        if statuses.is_empty() {
            return;
        }
        let known = &mut self.statuses;
        self.wanted.send_if_modified(|wanted| {
            let mut changed = false;
            let there = |status: &IngressStatus| !gone.contains(&(Kind::Ingress, &status.ingress));
            for status in statuses.into_iter().filter(there) {
                let (name, status) = (status.ingress.clone(), Arc::new(status));
                known.insert(name.clone(), status.clone());
                if wanted.served.contains_key(&name) {
                    wanted.served.insert(name, status);
                    changed = true;
                }
            }
            changed
        });
    }

    /// Brings up to date which Ingresses are served, after a compile of these changes.
    pub fn compiled(
        &mut self,
        store: &Store,
        settings: &Arc<Settings>,
        changes: &Changes,
        policies: &Arc<Policies>,
    ) {
        let statuses = &self.statuses;
        self.wanted.send_if_modified(|wanted| {
            let other_policies = wanted.verdicts.update(policies, || {
                store.authorization_policies().outdated().cloned().collect::<OrdSet<_>>()
            });
            let all = changes.all_hosts || !Arc::ptr_eq(settings, &wanted.settings);
            wanted.settings = settings.clone();
            let names: Vec<_> = match all {
                true => statuses.keys().chain(wanted.served.keys()).cloned().collect(),
                false => changes.ingresses.iter().cloned().collect(),
            };
            for name in &names {
                let ingress = store.ingress(name).filter(|it| compile::is_served(store, settings, it));
                match ingress.and_then(|_| statuses.get(name)) {
                    Some(status) => drop(wanted.served.insert(name.clone(), status.clone())),
                    None => drop(wanted.served.remove(name)),
                }
            }
            all || !names.is_empty() || other_policies
        });
    }

    /// Takes note of all there is to say.
    pub fn diagnosed(&self, diagnostics: &Arc<[Diagnostic]>) {
        self.wanted.send_if_modified(|wanted| {
            let changed = wanted.diagnostics != *diagnostics;
            wanted.diagnostics = diagnostics.clone();
            changed
        });
    }

    /// Says what is due, such as why the gateway restarts, and gives the Lease up, in bounded time. What was written
    /// stays, unless this is the end of the whole gateway (`for_good`), no other replica is left, and the setting
    /// `update-status-on-shutdown` says otherwise.
    pub async fn end(self, for_good: bool) {
        let leads = self.is_leader();
        self.last_words.send_replace(true);
        let _ = timeout(LAST_WORDS, self.writer).await;
        let wanted = self.wanted.borrow().clone();
        if for_good && wanted.settings.update_status_on_shutdown && leads {
            match timeout(CLEAR, self.replicas.others(&self.client)).await {
                Ok(Ok(0)) => {
                    let _ = timeout(CLEAR, ingresses::clear(&self.client, &wanted.served)).await;
                }
                Ok(Ok(others)) => tracing::debug!(others, "the status is left to the other replicas"),
                Ok(Err(error)) => tracing::warn!(%error, "status not cleared: other replicas may be left"),
                Err(_) => tracing::warn!("status not cleared: the API server did not answer in time"),
            }
        }
        self.stop.send_replace(true);
        let _ = self.election.await;
    }
}

/// The Ingresses and policies whose last event says that they are gone: objects may come and go within one batch.
fn gone(events: &[Event]) -> BTreeSet<(Kind, &ObjectName)> {
    let mut gone = BTreeSet::new();
    for event in events {
        match event {
            Event::Delete(kind @ (Kind::Ingress | Kind::AuthorizationPolicy), name) => {
                gone.insert((*kind, name));
            }
            Event::Apply(object) => {
                gone.remove(&(object.kind(), &object.metadata().name));
            }
            _ => {}
        }
    }
    gone
}

fn no_lease(error: &str) -> Diagnostic {
    general(
        "NoLease",
        format!("Neither status nor Events are written, since nobody can tell which replica leads: {error}."),
    )
}

/// Writes what is wanted, for as long as there is somebody who wants it, and says what keeps it from that.
async fn write(
    client: Client,
    instance: String,
    mut addresses: Addresses,
    mut wants: watch::Receiver<Wanted>,
    mut leader: watch::Receiver<bool>,
    mut last_words: watch::Receiver<bool>,
    findings: watch::Sender<Vec<Diagnostic>>,
) {
    let tell = |now: Vec<Diagnostic>| {
        findings.send_if_modified(|before| {
            let changed = *before != now;
            *before = now;
            changed
        });
    };
    let mut ingresses = ingresses::Writer::default();
    let mut policies = policies::Writer::default();
    let mut events = events::Writer::new(instance);
    let mut left = false;
    loop {
        let again = if left { events::LASTING } else { RELOOK };
        tokio::select! {
            changed = wants.changed() => if changed.is_err() { return },
            changed = leader.changed() => if changed.is_err() { return },
            () = sleep(again) => {}
            _ = last_words.wait_for(|last| *last) => {
                let wanted = wants.borrow_and_update().clone();
                events.observe(&wanted.diagnostics);
                events.write(&client, &wanted.served, &leader).await;
                return;
            }
        }
        tokio::select! {
            () = sleep(PAUSE) => {}
            _ = last_words.wait_for(|last| *last) => continue,
        }
        let wanted = wants.borrow_and_update().clone();
        events.observe(&wanted.diagnostics);
        if !*leader.borrow_and_update() {
            left = false;
            tell(Vec::new());
            continue;
        }
        let current = addresses.current(&client, &wanted.settings).await;
        ingresses.write(&client, &wanted.served, &current, &leader).await;
        policies.write(&client, &wanted.policies, &wanted.verdicts, &leader).await;
        left = events.write(&client, &wanted.served, &leader).await;
        let mut kept_from = ingresses.findings();
        kept_from.extend(policies.findings());
        kept_from.extend(events.findings());
        tell(kept_from);
    }
}
