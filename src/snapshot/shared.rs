//! The one pointer between the control plane and the workers.

use std::sync::Arc;

use arc_swap::{ArcSwap, Cache};

use super::Snapshot;

/// The current snapshot. Clones are the same pointer.
#[derive(Clone)]
pub struct Shared(Arc<ArcSwap<Snapshot>>);

impl Shared {
    pub fn new(snapshot: Arc<Snapshot>) -> Self {
        Self(Arc::new(ArcSwap::new(snapshot)))
    }

    /// Makes `snapshot` the one that every handshake and request from now on is served by.
    pub fn publish(&self, snapshot: Arc<Snapshot>) {
        self.0.store(snapshot);
    }

    pub fn load(&self) -> Arc<Snapshot> {
        self.0.load_full()
    }

    /// A worker's own view, which costs one comparison while nothing has changed.
    pub fn reader(&self) -> Reader {
        Reader(Cache::new(self.0.clone()))
    }
}

/// Holds on to the snapshot it read last until it is asked again: a worker asks at each tick, so that an old
/// one is not kept for longer than that.
pub struct Reader(Cache<Arc<ArcSwap<Snapshot>>, Arc<Snapshot>>);

impl Reader {
    pub fn current(&mut self) -> &Arc<Snapshot> {
        self.0.load()
    }
}
