//! The directory source: Kubernetes manifests and PEM pairs in folders, followed as they change.
//!
//! A task on the control runtime. An event makes it look at that one path at once; what follows shortly after
//! is gathered, so that a burst costs few revisions. Every 30 seconds everything is looked at without being
//! read, for file systems and mishaps that send no events. A file that cannot be used leaves what it last
//! defined in place, and so does a folder that cannot be looked at, a root that is gone among them: it is looked for
//! until it is back.

mod claims;
pub(crate) mod content;
mod documents;
mod findings;
mod folders;
mod read;
mod roots;
#[cfg(test)]
mod tests;
mod tree;
mod unit;
mod waits;
mod watch;

use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::Sender;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, sleep_until};

use super::Batch;
use tree::Tree;
use unit::Unit;
use watch::{Inbox, Touch, Touched, Watcher};

/// How often everything is looked at.
const RESCAN: Duration = Duration::from_secs(30);
/// The pause after a batch, in which further changes are gathered: at first, and at most while they keep
/// coming.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(50));

/// Folders of manifests and PEM pairs. A root may also be one file.
pub struct Directory {
    pub roots: Vec<PathBuf>,
    /// The namespace of the Secrets that PEM pairs stand for.
    pub pem_namespace: String,
}

impl Directory {
    /// Reads everything once, without watching.
    pub fn read(self) -> Batch {
        let mut tree = Tree::new(self.roots, &self.pem_namespace);
        tree.scan(Instant::now());
        tree.take_batch().unwrap_or_default()
    }

    /// Sends everything, in pieces of which the last says so, then what changes, until the receiver is dropped.
    pub async fn run(self, batches: Sender<Batch>) {
        // Events carry absolute paths.
        let roots = self.roots.iter().map(|root| absolute(root)).collect();
        let mut tree = Tree::new(roots, &self.pem_namespace);
        let outlet = batches.clone();
        tree = blocking(tree, move |tree| {
            tree.scan_in_pieces(Instant::now(), |tree| {
                if let Some(batch) = tree.take_batch() {
                    // Fails where nobody listens any more, which shows below.
                    let _ = outlet.blocking_send(batch);
                }
            });
        })
        .await;
        if let Some(batch) = tree.take_batch()
            && batches.send(batch).await.is_err()
        {
            return;
        }
        // Only now: each file that is opened under a watch is an event, and there may be thousands. What changed
        // meanwhile shows at the second look, which reads nothing else.
        let inbox = Arc::new(Inbox::new(tree.roots()));
        let watcher = Watcher::new(inbox.clone());
        tree = blocking(tree, |tree| {
            tree.watch(watcher);
            tree.scan(Instant::now());
        })
        .await;
        let mut rescan = Instant::now() + RESCAN;
        let mut pause = PAUSE.0;
        let mut gather_until = Instant::now();
        loop {
            if let Some(batch) = tree.take_batch() {
                if batches.send(batch).await.is_err() {
                    return;
                }
                gather_until = Instant::now() + pause;
            }
            tokio::select! {
                () = inbox.changed() => {}
                () = due(tree.next_due()) => {}
                () = due(Some(rescan)) => {}
                () = batches.closed() => return,
            }
            // Only now, so that a single change costs no timer.
            sleep_until(gather_until.into()).await;
            let touched = inbox.take();
            // More than one change in a pause is a burst. The file that a careful writer moves into place from is none.
            pause = match touched.paths.keys().filter(|path| Unit::of(path).is_some()).count() {
                0 | 1 => PAUSE.0,
                _ => (pause * 2).min(PAUSE.1),
            };
            if touched.lost {
                // A storm of events: looking at everything is not done more often than this.
                sleep(PAUSE.1).await;
            }
            let all = touched.lost || Instant::now() >= rescan;
            if all && !tree.has_watcher() {
                tree.watch(Watcher::new(inbox.clone()));
            }
            tree = match all || tree.is_much(&touched, Instant::now()) {
                true => blocking(tree, move |tree| follow(tree, touched, all)).await,
                false => {
                    follow(&mut tree, touched, false);
                    tree
                }
            };
            if all {
                rescan = Instant::now() + RESCAN;
            }
        }
    }
}

/// The key beside a certificate; `None` of other files.
pub(super) fn key_of(certificate: &Path) -> Option<PathBuf> {
    Unit::of(certificate)?.key
}

/// Looks at what was touched, what is due and, with `all`, at everything.
fn follow(tree: &mut Tree, touched: Touched, all: bool) {
    let now = Instant::now();
    for (path, touch) in touched.paths {
        match touch {
            Touch::Done => tree.touch(&path, now),
            Touch::Gone => tree.vanish(&path, now),
            Touch::Writing => tree.write_begins(path, now),
        }
    }
    tree.tick(now);
    if all {
        tree.scan(now);
    }
}

/// The path from `/` on. Links stay what they are: what they lead to may change.
fn absolute(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    // Without a slash at the end.
    path.components().collect()
}

async fn due(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when.into()).await,
        None => pending().await,
    }
}

/// Runs `work` where it may block.
async fn blocking(mut tree: Tree, work: impl FnOnce(&mut Tree) + Send + 'static) -> Tree {
    let task = spawn_blocking(move || {
        work(&mut tree);
        tree
    });
    match task.await {
        Ok(tree) => tree,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is shutting down.
            Err(_) => pending().await,
        },
    }
}
