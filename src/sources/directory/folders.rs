//! The folders under the roots: which are watched, which units lie in them. Looks at names and never at what
//! files hold. Once there is a watcher, a folder is watched before it is listed, so that nothing falls in between.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::content::file_error;
use super::tree::Place;
use super::unit::{Unit, is_hidden};
use super::watch::Watcher;
use crate::diagnostics::Diagnostic;

/// Folders below a root that are entered.
const DEEPEST: usize = 16;

/// Device and inode.
type Identity = (u64, u64);

struct Folder {
    identity: Identity,
    units: BTreeSet<Arc<Place>>,
}

#[derive(Default)]
pub struct Folders {
    watcher: Option<Watcher>,
    known: BTreeMap<PathBuf, Folder>,
    paths: HashMap<Identity, PathBuf>,
    problems: BTreeMap<PathBuf, Diagnostic>,
    /// Paths whose problem may have come or gone.
    dirty: BTreeSet<PathBuf>,
}

impl Folders {
    /// Has `watcher` watch all folders, those that come later too.
    pub fn watch_all(&mut self, watcher: Option<Watcher>) {
        self.watcher = watcher;
        for folder in self.known.keys().cloned().collect::<Vec<_>>() {
            self.watch(&folder);
        }
    }

    pub fn contains(&self, path: &Path) -> bool {
        self.known.contains_key(path)
    }

    /// Lists `folder` and those below; returns the units in them and those that were there before. With
    /// `touched` the watch is set anew: the folder may be another one with the same name and inode.
    pub fn scan(&mut self, root: usize, top: &Path, folder: &Path, touched: bool) -> Vec<Arc<Place>> {
        let mut found = Vec::new();
        let start = folder;
        let mut pending = vec![folder.to_owned()];
        while let Some(folder) = pending.pop() {
            let Some(identity) = self.admit(top, &folder) else {
                found.extend(self.drop(&folder));
                continue;
            };
            // It was renamed. The old watch must go first: it is the same as the new one.
            if let Some(old) = self.paths.get(&identity).filter(|path| **path != folder).cloned() {
                found.extend(self.drop(&old));
            }
            self.enter(&folder, identity, touched && folder == start);
            match list(&folder) {
                Ok(listing) => {
                    self.solved(&folder);
                    found.extend(self.update(root, &folder, listing.units));
                    let gone = self.children(&folder).filter(|path| !listing.folders.contains(*path));
                    for path in gone.cloned().collect::<Vec<_>>() {
                        found.extend(self.drop(&path));
                    }
                    pending.extend(listing.folders.into_iter().rev());
                }
                Err(error) => {
                    self.problem(
                        &folder,
                        file_error("Unreadable", format!("the folder cannot be read: {error}")),
                    );
                }
            }
        }
        found
    }

    /// Forgets `folder` and those below; returns the units that were there.
    pub fn drop(&mut self, folder: &Path) -> Vec<Arc<Place>> {
        let gone: Vec<_> = self.below(folder).cloned().collect();
        let problems: Vec<_> =
            self.problems.keys().filter(|path| path.starts_with(folder) && !path.exists()).cloned().collect();
        problems.iter().filter(|path| *path != folder).for_each(|path| self.solved(path));
        let mut found = Vec::new();
        for path in gone {
            if let Some(watcher) = &mut self.watcher {
                watcher.remove(&path);
            }
            if let Some(folder) = self.known.remove(&path) {
                self.paths.remove(&folder.identity);
                found.extend(folder.units);
            }
        }
        found
    }

    /// Notes that `place` exists.
    pub fn add(&mut self, place: &Arc<Place>) {
        if let Some(folder) = place.unit.path.parent().and_then(|folder| self.known.get_mut(folder)) {
            folder.units.insert(place.clone());
        }
    }

    /// Notes that `place` is no more.
    pub fn remove(&mut self, place: &Arc<Place>) {
        if let Some(folder) = place.unit.path.parent().and_then(|folder| self.known.get_mut(folder)) {
            folder.units.remove(place);
        }
    }

    /// What is wrong with a path now.
    pub fn problem_with(&self, path: &Path) -> Option<&Diagnostic> {
        self.problems.get(path)
    }

    /// The paths whose problem may have changed since the last call.
    pub fn take_dirty(&mut self) -> BTreeSet<PathBuf> {
        std::mem::take(&mut self.dirty)
    }

    pub fn problem(&mut self, path: &Path, diagnostic: Diagnostic) {
        self.dirty.insert(path.to_owned());
        self.problems.insert(path.to_owned(), diagnostic);
    }

    pub fn solved(&mut self, path: &Path) {
        if self.problems.remove(path).is_some() {
            self.dirty.insert(path.to_owned());
        }
    }

    /// Which folder `folder` is now; `None` where it is not to be read.
    fn admit(&mut self, top: &Path, folder: &Path) -> Option<Identity> {
        let identity = match fs::metadata(folder) {
            Ok(metadata) if metadata.is_dir() => (metadata.dev(), metadata.ino()),
            Ok(_) => return None,
            Err(error) => {
                if folder == top {
                    self.problem(folder, file_error("Unreadable", format!("it cannot be read: {error}")));
                }
                return None;
            }
        };
        if folder.strip_prefix(top).is_ok_and(|rest| rest.components().count() > DEEPEST) {
            let message = format!("folders are read {DEEPEST} levels deep, this one is deeper");
            self.problem(folder, file_error("TooDeep", message));
            return None;
        }
        // The same folder by another way, a link: reading it once is enough, and a loop ends here.
        let elsewhere =
            self.paths.get(&identity).is_some_and(|path| path != folder && is_still(path, identity));
        (!elsewhere).then_some(identity)
    }

    /// Notes the folder and sets the watch.
    fn enter(&mut self, folder: &Path, identity: Identity, touched: bool) {
        let before = self.known.get(folder).map(|known| known.identity);
        if before == Some(identity) && !touched {
            return;
        }
        if let Some(before) = before {
            self.paths.remove(&before);
        }
        self.paths.insert(identity, folder.to_owned());
        let known = self.known.entry(folder.to_owned());
        known.or_insert_with(|| Folder { identity, units: BTreeSet::new() }).identity = identity;
        self.watch(folder);
    }

    fn watch(&mut self, folder: &Path) {
        let Some(watcher) = &mut self.watcher else { return };
        if let Err(error) = watcher.add(folder) {
            // Served all the same; changes are seen by the slow re-read.
            tracing::warn!(folder = %folder.display(), %error, "the folder cannot be watched, changes are seen late");
        }
    }

    /// Takes over which units are in `folder`; returns them and those that no longer are.
    fn update(&mut self, root: usize, folder: &Path, units: BTreeSet<Unit>) -> Vec<Arc<Place>> {
        let units = units.into_iter().map(|unit| Arc::new(Place { root, unit })).collect();
        let Some(known) = self.known.get_mut(folder) else { return Vec::new() };
        let before = std::mem::replace(&mut known.units, units);
        known.units.union(&before).cloned().collect()
    }

    fn below<'a>(&'a self, folder: &'a Path) -> impl Iterator<Item = &'a PathBuf> {
        let from = self.known.range(folder.to_owned()..).map(|(path, _)| path);
        from.take_while(move |path| path.starts_with(folder))
    }

    fn children<'a>(&'a self, folder: &'a Path) -> impl Iterator<Item = &'a PathBuf> {
        self.below(folder).filter(move |path| path.parent() == Some(folder))
    }
}

fn is_still(path: &Path, identity: Identity) -> bool {
    fs::metadata(path).is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == identity)
}

#[derive(Default)]
struct Listing {
    units: BTreeSet<Unit>,
    folders: BTreeSet<PathBuf>,
}

fn list(folder: &Path) -> io::Result<Listing> {
    let mut listing = Listing::default();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if is_hidden(&path) {
            continue;
        }
        let kind = entry.file_type()?;
        let is_folder = kind.is_dir() || kind.is_symlink() && path.is_dir();
        if is_folder {
            listing.folders.insert(path);
        } else if let Some(unit) = Unit::of(&path) {
            listing.units.insert(unit);
        }
    }
    Ok(listing)
}
