//! File-system events, gathered for the directory source: each folder is watched by itself, not the files in
//! it, since a watch on a file ends when it is replaced.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use notify::event::{AccessKind, AccessMode, CreateKind, ModifyKind, RenameMode};
use notify::{ErrorKind, Event, EventKind, RecursiveMode};
use tokio::sync::Notify;

use super::roots::Roots;
use super::unit::Unit;

/// What happened to a path last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// It is as its writer left it: renamed, closed, removed.
    Done,
    /// It is not there any more under this name.
    Gone,
    /// Somebody is writing to it, and will close it.
    Writing,
}

/// Events not yet looked at, one a path, so that a burst takes no more room than the folders have entries.
pub struct Inbox {
    roots: Arc<Roots>,
    touched: Mutex<Touched>,
    notify: Notify,
}

#[derive(Default)]
pub struct Touched {
    pub paths: HashMap<PathBuf, Touch>,
    /// Events were lost: everything must be looked at.
    pub lost: bool,
}

impl Inbox {
    /// For what happens to `roots` and in them: folders around them are watched as well.
    pub fn new(roots: Arc<Roots>) -> Self {
        Self { roots, touched: Mutex::default(), notify: Notify::new() }
    }

    /// Waits until there is something to take.
    pub async fn changed(&self) {
        self.notify.notified().await;
    }

    pub fn take(&self) -> Touched {
        std::mem::take(&mut self.touched.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn put(&self, event: notify::Result<Event>) {
        let news = match event {
            Ok(event) if !event.need_rescan() => {
                let Some(touch) = touch_of(event.kind) else { return };
                let concern = |path: &PathBuf| self.roots.concern(path) && is_of_interest(path, event.kind);
                let paths = event.paths.into_iter().filter(concern);
                let paths: Vec<_> = paths.map(|path| (path, touch)).collect();
                if paths.is_empty() {
                    return;
                }
                Some(paths)
            }
            // Events were lost, or nobody knows.
            Ok(_) | Err(_) => None,
        };
        let mut touched = self.touched.lock().unwrap_or_else(PoisonError::into_inner);
        match news {
            Some(paths) => touched.paths.extend(paths),
            None => touched.lost = true,
        }
        drop(touched);
        self.notify.notify_one();
    }
}

/// `None` for what changes nothing, such as our own reading.
fn touch_of(kind: EventKind) -> Option<Touch> {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => Some(Touch::Done),
        EventKind::Access(_) => None,
        EventKind::Create(CreateKind::File) | EventKind::Modify(ModifyKind::Data(_)) => Some(Touch::Writing),
        EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(RenameMode::From)) => Some(Touch::Gone),
        // Both names have had an event of their own before this one.
        EventKind::Modify(ModifyKind::Name(RenameMode::Both)) => None,
        _ => Some(Touch::Done),
    }
}

/// Of files under names that are not read only links matter, which may lead to folders: writers put their temporary files
/// beside what they replace.
fn is_of_interest(path: &Path, kind: EventKind) -> bool {
    match kind {
        EventKind::Access(_) | EventKind::Modify(ModifyKind::Data(_)) => Unit::of(path).is_some(),
        EventKind::Create(CreateKind::File) => Unit::of(path).is_some() || path.is_symlink(),
        _ => true,
    }
}

/// Why something is not watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    #[error("it is not there")]
    NotFound,
    #[error("the limit of watches is met (sysctl fs.inotify.max_user_watches)")]
    TooMany,
    #[error("{0}")]
    Other(String),
}

impl From<notify::Error> for WatchError {
    fn from(error: notify::Error) -> Self {
        match error.kind {
            ErrorKind::PathNotFound => Self::NotFound,
            ErrorKind::MaxFilesWatch => Self::TooMany,
            ErrorKind::Io(error) if error.kind() == io::ErrorKind::NotFound => Self::NotFound,
            ErrorKind::Io(error) => Self::Other(error.to_string()),
            other => Self::Other(notify::Error::new(other).to_string()),
        }
    }
}

/// The watches.
pub struct Watcher(Box<dyn notify::Watcher + Send>);

impl Watcher {
    /// Starts the thread that fills `inbox`.
    ///
    /// # Errors
    /// The user has too many of these already (sysctl `fs.inotify.max_user_instances`), or the process has too many
    /// files open.
    pub fn new(inbox: Arc<Inbox>) -> Result<Self, WatchError> {
        Ok(Self::from(Box::new(notify::recommended_watcher(move |event| inbox.put(event))?)))
    }

    pub fn from(watcher: Box<dyn notify::Watcher + Send>) -> Self {
        Self(watcher)
    }

    /// Watches the entries of `folder`, whatever that path was before.
    pub fn add(&mut self, folder: &Path) -> Result<(), WatchError> {
        self.remove(folder);
        Ok(self.0.watch(folder, RecursiveMode::NonRecursive)?)
    }

    pub fn remove(&mut self, folder: &Path) {
        // Fails where the folder is gone, and its watch with it.
        let _ = self.0.unwatch(folder);
    }
}
