//! Whether anything in a set of folders has changed, as the file system tells it.
//!
//! A counter that grows with every event. Some file systems tell nothing, so once a minute the files are looked at
//! all the same, and a difference that nobody told of counts too.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::watch;

use super::{Revision, StoreError};

/// How often the files are looked at without an event.
const RESCAN: Duration = Duration::from_secs(60);

pub struct Watches {
    changes: watch::Sender<u64>,
    scanned: Mutex<Option<Scanned>>,
    _watcher: RecommendedWatcher,
}

/// What the last look at the files found.
struct Scanned {
    at: Instant,
    hash: Revision,
    count: u64,
}

impl Watches {
    /// Watches `own` with all below, and the entries of `manifests`.
    pub fn new(own: &[PathBuf], manifests: &[PathBuf]) -> notify::Result<Self> {
        let changes = watch::Sender::new(0);
        let told = changes.clone();
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            if event.map_or(true, |event| event.need_rescan() || changes_something(event.kind)) {
                told.send_modify(|count| *count += 1);
            }
        })?;
        for folder in own {
            watcher.watch(folder, RecursiveMode::Recursive)?;
        }
        for folder in manifests {
            watcher.watch(folder, RecursiveMode::NonRecursive)?;
        }
        Ok(Self { changes, scanned: Mutex::default(), _watcher: watcher })
    }

    /// Grows with every change; `scan` looks at the files.
    pub fn revision(
        &self,
        scan: impl FnOnce() -> Result<Revision, StoreError>,
    ) -> Result<Revision, StoreError> {
        let mut scanned = self.scanned.lock().unwrap_or_else(PoisonError::into_inner);
        let count = *self.changes.borrow();
        if scanned.as_ref().is_none_or(|scanned| scanned.at.elapsed() >= RESCAN) {
            let hash = scan()?;
            if scanned.as_ref().is_some_and(|before| before.hash != hash && before.count == count) {
                self.changes.send_modify(|count| *count += 1);
            }
            *scanned = Some(Scanned { at: Instant::now(), hash, count: *self.changes.borrow() });
        }
        Ok(revision_of(*self.changes.borrow()))
    }

    /// Waits for another revision than `since`.
    pub async fn changed(&self, since: &Revision) {
        let mut changes = self.changes.subscribe();
        if changes.wait_for(|count| revision_of(*count) != *since).await.is_err() {
            std::future::pending().await
        }
    }
}

fn revision_of(changes: u64) -> Revision {
    Revision(changes.to_string())
}

/// Not so our own reading.
fn changes_something(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
        EventKind::Access(_) => false,
        _ => true,
    }
}
