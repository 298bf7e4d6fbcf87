//! Where the loops of all kinds come together: what they found goes on as one [`Batch`] each, with the word
//! whether by now everything has been listed.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use tokio::sync::mpsc::Sender;
use tokio::sync::{Notify, watch};

use super::kept::Text;
use super::references::{Reference, References};
use crate::diagnostics::ObjectRef;
use crate::sources::{Batch, IngressStatus, ObjectFindings, PolicyStatus, WatchState};
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
    /// The references may name other missing objects than before.
    referenced: Notify,
    /// The namespaces that the setting `watch-namespace-selector` selects; `None` until they have been listed.
    namespaces: watch::Sender<Option<BTreeSet<Arc<str>>>>,
}

/// What a watch found at once.
#[derive(Default)]
pub(super) struct Found {
    pub events: Vec<Event>,
    pub findings: Vec<ObjectFindings>,
    pub ingress_statuses: Vec<IngressStatus>,
    pub policy_statuses: Vec<PolicyStatus>,
    /// What is kept of them on disk; nothing of those that have gone.
    pub kept: Vec<(ObjectName, Option<Text>)>,
}

impl Found {
    pub fn is_empty(&self) -> bool {
        self.events.is_empty() && self.findings.is_empty()
    }
}

impl Hub {
    pub fn new(batches: Sender<Batch>) -> Self {
        Self {
            batches,
            unlisted: RefCell::default(),
            next_id: Cell::default(),
            restored: Cell::default(),
            references: RefCell::default(),
            referenced: Notify::new(),
            namespaces: watch::channel(None).0,
        }
    }

    /// A watch that has to list before the source counts as synced.
    pub fn register(&self) -> WatchId {
        let id = self.next_id.replace(self.next_id.get() + 1);
        self.unlisted.borrow_mut().insert(id);
        id
    }

    /// The watch has listed, or never will and does not have to, or has ended.
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

    /// Whether all have listed.
    pub fn is_synced(&self) -> bool {
        self.unlisted.borrow().is_empty()
    }

    /// These are the namespaces that are selected.
    pub fn select(&self, names: BTreeSet<Arc<str>>) {
        self.namespaces.send_if_modified(|known| {
            let changed = known.as_ref() != Some(&names);
            *known = Some(names);
            changed
        });
    }

    /// The namespaces that are selected, now and from now on.
    pub fn selection(&self) -> watch::Receiver<Option<BTreeSet<Arc<str>>>> {
        self.namespaces.subscribe()
    }

    /// Settings name these objects from now on.
    pub fn set_named_by_settings(&self, named: BTreeSet<Reference>) {
        self.references.borrow_mut().set_named_by_settings(named);
    }

    /// Passes on what the watch of a whole kind found.
    pub async fn send(&self, mut found: Found, state: Option<WatchState>) {
        if self.references.borrow_mut().observe(&found.events) {
            self.referenced.notify_one();
        }
        // What was said of an object that was looked at by name is no longer so, whatever this watch says of it.
        let unsaid = self.references.borrow_mut().take_unsaid();
        if !unsaid.is_empty() {
            let about = |(kind, name): Reference| ObjectRef::new(kind, &name);
            let unsay = |reference| ObjectFindings { about: about(reference), diagnostics: Vec::new() };
            found.findings.splice(0..0, unsaid.into_iter().map(unsay));
        }
        self.pass_on(found, state).await;
    }

    /// Passes on what was found of one object that is looked at by name. Where the watch of a whole kind has it by now,
    /// that one knows better: the two come in no order.
    pub async fn send_named(&self, reference: &Reference, mut found: Found, state: Option<WatchState>) {
        if self.is_watched(reference) {
            found.events.clear();
            found.findings.clear();
        }
        let exists = found.events.last().map(|event| matches!(event, Event::Apply(_)));
        self.pass_on(found, state).await;
        // Only now: where this is given up half-way, nothing was passed on.
        if let Some(exists) = exists
            && self.references.borrow_mut().set_found(reference, exists)
        {
            self.referenced.notify_one();
        }
    }

    /// Says that everything has been listed.
    pub async fn announce(&self) {
        self.pass_on(Found::default(), None).await;
    }

    async fn pass_on(&self, found: Found, state: Option<WatchState>) {
        let batch = Batch {
            events: found.events,
            object_findings: found.findings,
            ingress_statuses: found.ingress_statuses,
            policy_statuses: found.policy_statuses,
            states: state.into_iter().collect(),
            synced: self.is_synced(),
            ..Batch::default()
        };
        self.send_batch(batch).await;
    }

    /// Says that nobody looks any more at the object of the watch of this name: as good as gone, unless the watch of a
    /// whole kind has it.
    pub async fn send_end(&self, reference: &Reference, watch: Arc<str>) {
        let mut found = Found::default();
        if !self.is_watched(reference) {
            let (kind, name) = reference.clone();
            let about = ObjectRef::new(kind, &name);
            found.events.push(Event::Delete(kind, name));
            found.findings.push(ObjectFindings { about, diagnostics: Vec::new() });
        }
        let batch = Batch {
            events: found.events,
            object_findings: found.findings,
            ended: vec![watch],
            synced: self.is_synced(),
            ..Batch::default()
        };
        self.send_batch(batch).await;
        self.references.borrow_mut().set_found(reference, false);
    }

    async fn send_batch(&self, batch: Batch) {
        // Nobody listens any more when the process is ending; `closed` says so.
        let _ = self.batches.send(batch).await;
    }

    /// Waits until what is referenced, or listed, changes.
    pub async fn changed(&self) {
        self.referenced.notified().await;
    }

    /// Objects that are named somewhere and are not among those that are watched as a whole; those that matter most
    /// first.
    pub fn missing(&self) -> Vec<Reference> {
        self.references.borrow().missing()
    }

    /// Whether it is a Secret that the watch of all TLS Secrets has.
    pub fn is_watched(&self, reference: &Reference) -> bool {
        self.references.borrow().is_watched(reference)
    }

    /// Whether an object that is looked at by name was passed on.
    pub fn is_found(&self, reference: &Reference) -> bool {
        self.references.borrow().is_found(reference)
    }

    /// The objects that the watch of a whole kind has had since this was asked last.
    pub fn take_taken_over(&self) -> HashSet<Reference> {
        self.references.borrow_mut().take_taken_over()
    }

    /// Resolves when nobody wants batches any more.
    pub async fn closed(&self) {
        self.batches.closed().await;
    }
}
