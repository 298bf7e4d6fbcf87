//! Where the loops of all kinds come together: what they found goes on as one [`Batch`] each, with the word
//! whether by now everything has been listed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use tokio::sync::Notify;
use tokio::sync::mpsc::Sender;

use super::kept::Text;
use super::references::References;
use crate::sources::{Batch, IngressStatus, ObjectFindings, WatchState};
use crate::store::Event;
use crate::store::objects::ObjectName;

/// Tells watches apart.
pub(super) type WatchId = usize;

pub(super) struct Hub {
    batches: Sender<Batch>,
    /// Watches that have not listed yet.
    unlisted: RefCell<BTreeSet<WatchId>>,
    next_id: Cell<WatchId>,
    /// Some kind is served as it was kept on disk.
    restored: Cell<bool>,
    references: RefCell<References>,
    /// The references may name other missing Secrets than before.
    referenced: Notify,
}

/// What a watch found at once.
#[derive(Default)]
pub(super) struct Found {
    pub events: Vec<Event>,
    pub findings: Vec<ObjectFindings>,
    pub statuses: Vec<IngressStatus>,
    /// What is kept of them on disk; nothing of those that have gone.
    pub kept: Vec<(ObjectName, Option<Text>)>,
}

impl Found {
    pub fn is_empty(&self) -> bool {
        self.events.is_empty() && self.findings.is_empty()
    }
}

impl Hub {
    pub fn new(batches: Sender<Batch>, secrets: impl IntoIterator<Item = ObjectName>) -> Self {
        Self {
            batches,
            unlisted: RefCell::default(),
            next_id: Cell::default(),
            restored: Cell::default(),
            references: RefCell::new(References::new(secrets)),
            referenced: Notify::new(),
        }
    }

    /// A watch that has to list before the source counts as synced.
    pub fn register(&self) -> WatchId {
        let id = self.next_id.replace(self.next_id.get() + 1);
        self.unlisted.borrow_mut().insert(id);
        id
    }

    /// The watch has listed, or never will and does not have to.
    pub fn listed(&self, id: WatchId) {
        self.unlisted.borrow_mut().remove(&id);
        self.referenced.notify_one();
    }

    /// A whole kind is served as it was kept on disk, which counts as listed.
    pub fn restored(&self, id: WatchId) {
        self.restored.set(true);
        self.listed(id);
    }

    /// Whether some kind is served as it was kept on disk.
    pub fn is_restored(&self) -> bool {
        self.restored.get()
    }

    /// Whether all have listed but this one.
    pub fn all_listed_but(&self, id: WatchId) -> bool {
        self.unlisted.borrow().iter().all(|unlisted| *unlisted == id)
    }

    /// Passes on what the watch of a whole kind found.
    pub async fn send(&self, found: Found, state: Option<WatchState>) {
        if self.references.borrow_mut().observe(&found.events) {
            self.referenced.notify_one();
        }
        self.send_named(found, state).await;
    }

    /// Passes on what the watch of one named object found.
    pub async fn send_named(&self, found: Found, state: Option<WatchState>) {
        let batch = Batch {
            events: found.events,
            object_findings: found.findings,
            ingress_statuses: found.statuses,
            states: state.into_iter().collect(),
            synced: self.unlisted.borrow().is_empty(),
            ..Batch::default()
        };
        // Nobody listens any more when the process is ending; `closed` says so.
        let _ = self.batches.send(batch).await;
    }

    /// Waits until what is referenced, or listed, changes.
    pub async fn changed(&self) {
        self.referenced.notified().await;
    }

    /// Secrets that are named somewhere and are not among those of the type that is watched.
    pub fn missing(&self) -> BTreeSet<ObjectName> {
        self.references.borrow().missing().clone()
    }

    /// Whether the watch of all TLS Secrets has this one.
    pub fn is_watched(&self, secret: &ObjectName) -> bool {
        self.references.borrow().is_watched(secret)
    }

    /// Resolves when nobody wants batches any more.
    pub async fn closed(&self) {
        self.batches.closed().await;
    }
}
