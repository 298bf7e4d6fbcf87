//! The one pointer between the control plane and the workers.

use std::sync::Arc;

use arc_swap::{ArcSwap, Cache};
use tokio::sync::watch;

use super::Snapshot;

/// The current snapshot. Clones are the same pointer.
#[derive(Clone)]
pub struct Shared {
    pointer: Arc<ArcSwap<Snapshot>>,
    /// For those who have to let the one before go, though nobody asks them for anything.
    published: watch::Sender<()>,
}

impl Shared {
    pub fn new(snapshot: Arc<Snapshot>) -> Self {
        Self { pointer: Arc::new(ArcSwap::new(snapshot)), published: watch::channel(()).0 }
    }

    /// Makes `snapshot` the one that every handshake and request from now on is served by.
    pub fn publish(&self, snapshot: Arc<Snapshot>) {
        self.pointer.store(snapshot);
        self.published.send_replace(());
    }

    pub fn load(&self) -> Arc<Snapshot> {
        self.pointer.load_full()
    }

    /// A worker's own view, which costs one comparison while nothing has changed.
    pub fn reader(&self) -> Reader {
        Reader(Cache::new(self.pointer.clone()))
    }

    /// Changes whenever a snapshot is published.
    pub fn published(&self) -> watch::Receiver<()> {
        self.published.subscribe()
    }
}

/// Holds on to the snapshot it read last until it is asked again: a worker asks whenever one was published, so that an
/// old one is not kept for longer than that.
pub struct Reader(Cache<Arc<ArcSwap<Snapshot>>, Arc<Snapshot>>);

impl Reader {
    pub fn current(&mut self) -> &Arc<Snapshot> {
        self.0.load()
    }
}
