//! Watches what settings are read from, and says what each edit means for the running gateway.
//!
//! The app runs one [`Reloader`]. Dynamic settings of a good edit apply at once, even when restart-requiring ones
//! changed with them; those stay pending. A bad edit changes nothing: the last good settings stay in force.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

use super::load::{Inputs, LoadError, Loaded, Notice};
use super::{Change, Class, Settings};
use crate::store::objects::ConfigMap;

/// What came of an edit.
#[derive(Debug)]
pub enum Reload {
    Applied(Applied),
    /// The edit is bad; everything stays as it was.
    Rejected(LoadError),
}

/// A good edit.
#[derive(Debug)]
pub struct Applied {
    /// What the running generation serves by now: the dynamic settings are new, the others as it started with.
    pub settings: Arc<Settings>,
    /// What the edit changed. Empty when it only repaired a bad one or changed the notices.
    pub changes: Vec<Change>,
    /// All restart-requiring settings that differ from what the running generation started with.
    pub pending: Vec<Change>,
    pub notices: Vec<Notice>,
}

/// Compares what is written now with what the gateway runs on.
#[derive(Debug)]
pub struct Reloader {
    inputs: Inputs,
    /// What the running generation started with.
    started: Settings,
    /// The last good settings, as written.
    good: Loaded,
    /// The error of the last edit, if it was a bad one.
    error: Option<String>,
}

impl Reloader {
    /// Starts from what `inputs` gave when the gateway was started.
    pub fn new(inputs: Inputs, started: Loaded) -> Self {
        Self { inputs, started: started.settings.clone(), good: started, error: None }
    }

    /// Reads everything once more; `None` where nothing is new.
    pub fn reload(&mut self) -> Option<Reload> {
        match self.inputs.load() {
            Ok(loaded) if self.error.is_none() && loaded == self.good => None,
            Ok(loaded) => Some(Reload::Applied(self.accept(loaded))),
            Err(error) => {
                let message = error.to_string();
                let known = self.error.replace(message.clone());
                (known.as_ref() != Some(&message)).then_some(Reload::Rejected(error))
            }
        }
    }

    fn accept(&mut self, loaded: Loaded) -> Applied {
        self.error = None;
        let changes = self.good.settings.diff(&loaded.settings);
        let mut pending = self.started.diff(&loaded.settings);
        pending.retain(|change| matches!(change.class, Class::Restart(_)));
        let settings = Arc::new(self.started.with_dynamic(&loaded.settings));
        let notices = loaded.notices.clone();
        self.good = loaded;
        Applied { settings, changes, pending, notices }
    }

    /// Reloads whenever the settings file or `config_map` changes, until nobody listens to `reloads` any more.
    /// `config_map` starts with the one that the inputs have: without it, its settings would be taken back.
    pub async fn run(
        mut self,
        mut config_map: watch::Receiver<Option<ConfigMap>>,
        reloads: mpsc::Sender<Reload>,
    ) {
        let (notify, mut events) = mpsc::channel(1);
        // Kept for as long as this runs: dropped, it stops watching.
        let _watcher = self.inputs.file.as_deref().and_then(|file| watch_folder(file, notify));
        let mut reread = interval(REREAD);
        reread.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                Some(()) = events.recv() => settle(&mut events).await,
                Ok(()) = config_map.changed() => {}
                _ = reread.tick() => {}
                () = reloads.closed() => return,
            }
            self.inputs.config_map = config_map.borrow_and_update().clone();
            if let Some(reload) = self.reload()
                && reloads.send(reload).await.is_err()
            {
                return;
            }
        }
    }
}

/// Network file systems send no events, and a link into another folder changes unseen.
const REREAD: Duration = Duration::from_secs(30);
/// An edit is over when nothing has happened for so long…
const QUIET: Duration = Duration::from_millis(150);
/// …and is read after so long in any case.
const PATIENCE: Duration = Duration::from_secs(2);

/// Waits for the end of a burst of events.
async fn settle(events: &mut mpsc::Receiver<()>) {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        let quiet = Instant::now() + QUIET;
        if !matches!(timeout_at(quiet.min(deadline), events.recv()).await, Ok(Some(()))) {
            return;
        }
    }
}

/// Watches the folder that `file` lies in, because the file itself is replaced rather than written: by editors
/// with a rename, by the kubelet with a new target for the link `..data`.
fn watch_folder(file: &Path, notify: mpsc::Sender<()>) -> Option<RecommendedWatcher> {
    let folder = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    let started = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // Reading the file is an event too; taking it for a change would never end.
        let is_change = event.map_or(true, |event| match event.kind {
            EventKind::Access(access) => access == AccessKind::Close(AccessMode::Write),
            _ => true,
        });
        if is_change {
            // Full means that a wake-up is already on its way.
            let _ = notify.try_send(());
        }
    })
    .and_then(|mut watcher| watcher.watch(&folder, RecursiveMode::NonRecursive).map(|()| watcher));
    started
        .inspect_err(|error| {
            tracing::warn!(
                folder = %folder.display(),
                %error,
                "cannot watch the settings folder; reading the file every {} s instead",
                REREAD.as_secs()
            );
        })
        .ok()
}

#[cfg(test)]
mod tests;
