//! Transport policy on a worker: each exchange with an endpoint is registered before its first check, and stays so
//! until its last byte.
//!
//! The check is made against the newest snapshot, whichever the request began under. When policies, workloads or
//! roots and revocation lists change, or a client's certificate ends, everything that is registered is checked again, and
//! only what is denied now is ended: between registering and re-checking there is no gap that a denied exchange could stay
//! open in. A connection of the mesh is registered too, without an endpoint: it ends when its certificate has ended, is
//! revoked, or leads to no root any more.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use slab::Slab;

use crate::clock;
use crate::names::object::ObjectName;
use crate::snapshot::Snapshot;
use crate::snapshot::policies::{Connection, Reason};
use crate::telemetry::policy_stats::{Decided, PolicyStats, TriedOut};
use crate::tls::mesh::{MeshClient, Standing};
use crate::tls::spiffe::SpiffeId;

/// Everything open on one worker. Clones are the same.
#[derive(Clone, Default)]
pub struct Guards(Rc<State>);

struct State {
    open: RefCell<Slab<Entry>>,
    /// The snapshot that everything was checked against last.
    checked: Cell<u64>,
    /// No certificate of a client ends earlier, in seconds since the Unix epoch; that of one who left may have.
    first_end: Cell<u64>,
    /// Decisions since they were handed on.
    decided: RefCell<HashMap<Decided, u64>>,
    /// The same of policies that are only tried out.
    tried_out: RefCell<HashMap<TriedOut, u64>>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            open: RefCell::default(),
            checked: Cell::default(),
            first_end: Cell::new(u64::MAX),
            decided: RefCell::default(),
            tried_out: RefCell::default(),
        }
    }
}

struct Entry {
    peer: Peer,
    target: Option<Target>,
    /// What was decided last, for the log.
    admission: Admission,
    denied: bool,
    waker: Option<Waker>,
}

/// Who wants to be served.
#[derive(Clone)]
pub struct Peer {
    pub source: IpAddr,
    /// As the certificate says that was verified on this connection.
    pub client: Option<Rc<MeshClient>>,
}

impl Peer {
    fn principal(&self) -> Option<&SpiffeId> {
        self.client.as_ref().map(|client| &client.id)
    }
}

/// The endpoint that was chosen.
struct Target {
    address: SocketAddr,
    /// Of the Service that leads there.
    namespace: Arc<str>,
}

/// Who spoke to whom, and which policy decided about it.
#[derive(Clone, Debug, Default)]
pub struct Admission {
    /// Where the exchange goes.
    pub endpoint: Option<SocketAddr>,
    pub source: Option<SpiffeId>,
    pub destination: Option<SpiffeId>,
    pub policy: Option<ObjectName>,
}

/// Why an exchange may not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The policy that decided, where one did.
    pub policy: Option<ObjectName>,
    pub reason: Reason,
}

impl Denial {
    /// For the log.
    pub fn describe(&self) -> String {
        match &self.policy {
            Some(policy) => format!("{}: {policy}", self.reason),
            None => self.reason.to_string(),
        }
    }
}

impl Entry {
    /// When the certificate of the client ends.
    fn ends(&self) -> u64 {
        self.peer.client.as_ref().map_or(u64::MAX, |client| client.ends())
    }

    /// Whether the client is still who it was when it connected.
    fn identify(&self, snapshot: &Snapshot, now: impl Fn() -> u64) -> Result<(), Reason> {
        let Some(client) = &self.peer.client else { return Ok(()) };
        if now() > client.ends() {
            return Err(Reason::Untrusted);
        }
        match snapshot.trust.as_ref().map(|trust| client.standing(trust)) {
            None | Some(Standing::Good) => Ok(()),
            Some(Standing::Revoked) => Err(Reason::Revoked),
            Some(Standing::Untrusted) => Err(Reason::Untrusted),
        }
    }

    fn decide(&self, snapshot: &Snapshot, now: impl Fn() -> u64) -> Result<Decided, Denial> {
        self.identify(snapshot, now).map_err(|reason| Denial { policy: None, reason })?;
        let Some(target) = &self.target else {
            return Ok(Decided { policy: None, reason: Reason::NoAllowPolicy });
        };
        if snapshot.workloads.hides(target.address.ip(), &snapshot.settings.mesh_root_namespace) {
            return Err(Denial { policy: None, reason: Reason::Undecidable });
        }
        let decision = snapshot.workloads.decide(&target.namespace, &self.connection(target));
        let policy = decision.policy.cloned();
        match decision.allowed {
            true => Ok(Decided { policy, reason: decision.reason }),
            false => Err(Denial { policy, reason: decision.reason }),
        }
    }

    fn connection(&self, target: &Target) -> Connection<'_> {
        Connection {
            principal: self.peer.principal(),
            source: self.peer.source,
            destination: target.address.ip(),
            port: target.address.port(),
        }
    }
}

impl Guards {
    /// Registers an exchange; it has no endpoint yet.
    pub fn register(&self, peer: Peer) -> Guard {
        let entry = Entry { peer, target: None, admission: Admission::default(), denied: false, waker: None };
        self.0.first_end.set(self.0.first_end.get().min(entry.ends()));
        Guard { guards: self.clone(), slot: self.0.open.borrow_mut().insert(entry) }
    }

    /// Whether there is no exchange.
    pub fn is_empty(&self) -> bool {
        self.0.open.borrow().is_empty()
    }

    /// For how long no certificate ends, as of `now` in seconds since the Unix epoch; `None` where none ever does.
    pub fn until_first_end(&self, now: u64) -> Option<Duration> {
        let end = self.0.first_end.get();
        (end < u64::MAX).then(|| Duration::from_secs(end.saturating_sub(now).saturating_add(1)))
    }

    /// Checks everything again where `snapshot` is another than last time, or a certificate has ended at `now`, in seconds
    /// since the Unix epoch; ends what is denied now.
    pub fn recheck(&self, snapshot: &Snapshot, now: u64) {
        let same = self.0.checked.replace(snapshot.generation) == snapshot.generation;
        if same && now <= self.0.first_end.get() {
            return;
        }
        let mut first_end = u64::MAX;
        let mut woken = Vec::new();
        for (_, entry) in self.0.open.borrow_mut().iter_mut().filter(|(_, entry)| !entry.denied) {
            if let Err(denial) = entry.decide(snapshot, || now) {
                tracing::info!(
                    source = %entry.peer.source,
                    reason = denial.reason.label(),
                    policy = denial.policy.as_ref().map(tracing::field::display),
                    "connection closed due to policy change"
                );
                entry.denied = true;
                woken.extend(entry.waker.take());
                self.count(Decided { policy: denial.policy, reason: denial.reason });
            } else {
                first_end = first_end.min(entry.ends());
            }
        }
        self.0.first_end.set(first_end);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Hands on what was counted.
    pub fn flush(&self, stats: &PolicyStats) {
        let mut decided = self.0.decided.borrow_mut();
        let mut tried_out = self.0.tried_out.borrow_mut();
        if !decided.is_empty() {
            stats.add(decided.drain());
        }
        if !tried_out.is_empty() {
            stats.add_tried_out(tried_out.drain());
        }
    }

    fn count(&self, decided: Decided) {
        *self.0.decided.borrow_mut().entry(decided).or_default() += 1;
    }
}

/// One exchange; it is over when this is dropped.
pub struct Guard {
    guards: Guards,
    slot: usize,
}

impl Guard {
    /// Whether the exchange may go on with the endpoint at `address`, which a Service of `namespace` leads to. To be
    /// asked for each endpoint that is tried.
    ///
    /// # Errors
    /// The policies there deny it.
    pub fn admit(
        &self,
        snapshot: &Snapshot,
        address: SocketAddr,
        namespace: &Arc<str>,
    ) -> Result<Decided, Denial> {
        let mut open = self.guards.0.open.borrow_mut();
        let Some(entry) = open.get_mut(self.slot) else {
            return Err(Denial { policy: None, reason: Reason::DanglingPolicy });
        };
        entry.target = Some(Target { address, namespace: namespace.clone() });
        let decision = entry.decide(snapshot, clock::seconds);
        let workloads = snapshot.workloads.at(address.ip(), namespace);
        entry.admission = Admission {
            // A name is resolved later.
            endpoint: Some(address).filter(|address| !address.ip().is_unspecified()),
            source: entry.peer.principal().cloned(),
            destination: workloads.first().and_then(|workload| workload.principal.clone()),
            policy: match &decision {
                Ok(decided) => decided.policy.clone(),
                Err(denial) => denial.policy.clone(),
            },
        };
        // Where there are no policies there is nothing worth counting but a refusal.
        if decision.is_err() || workloads.iter().any(|workload| workload.policies.any()) {
            let decided = match &decision {
                Ok(decided) => decided.clone(),
                Err(denial) => Decided { policy: denial.policy.clone(), reason: denial.reason },
            };
            self.guards.count(decided);
        }
        if let Some(target) = &entry.target {
            let connection = entry.connection(target);
            for (policy, matches) in workloads.iter().flat_map(|at| at.policies.dry_run(&connection)) {
                let tried = TriedOut { policy: policy.name.clone(), action: policy.action, matches };
                *self.guards.0.tried_out.borrow_mut().entry(tried).or_default() += 1;
            }
        }
        decision
    }

    /// Whether the exchange may go on as it is, by the newest policies.
    ///
    /// # Errors
    /// It is denied by now.
    pub fn check(&self, snapshot: &Snapshot) -> Result<(), Denial> {
        let open = self.guards.0.open.borrow();
        open.get(self.slot).map_or(Ok(()), |entry| entry.decide(snapshot, clock::seconds).map(drop))
    }

    pub fn admission(&self) -> Admission {
        let open = self.guards.0.open.borrow();
        open.get(self.slot).map(|entry| entry.admission.clone()).unwrap_or_default()
    }

    /// Ready once a change of policies denies the exchange.
    pub fn poll_denied(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut open = self.guards.0.open.borrow_mut();
        let Some(entry) = open.get_mut(self.slot) else { return Poll::Ready(()) };
        if entry.denied {
            return Poll::Ready(());
        }
        match &mut entry.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => entry.waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.guards.0.open.borrow_mut().try_remove(self.slot);
    }
}

#[cfg(test)]
mod tests;
