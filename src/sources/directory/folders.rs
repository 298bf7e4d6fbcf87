//! The folders under the roots: which are watched, which units lie in them. Looks at names and never at what
//! files hold. Once there is a watcher, a folder is watched before it is listed, so that nothing falls in between.
//!
//! A folder that can be reached by several ways is read by one of them, the same whichever was there first: one
//! without links, else the first in order. The others are kept in mind for when that one is gone.
//!
//! Only what is not there is dropped. A folder that cannot be looked at keeps what was in it, and is a finding.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io;
use std::ops::Bound;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::content::file_error;
use super::read::{UNREADABLE, found};
use super::roots::holders;
use super::tree::Place;
use super::unit::{Unit, is_hidden};
use super::watch::{WatchError, Watcher};
use crate::diagnostics::{Diagnostic, Severity};

/// Folders below a root that are entered.
const DEEPEST: usize = 16;
/// Folders without a watch that are findings. Where the limit of watches is met there may be thousands.
const MOST_TOLD: usize = 20;

/// Device and inode.
type Identity = (u64, u64);

struct Folder {
    identity: Identity,
    root: usize,
    /// A link leads to it, or to a folder around it.
    linked: bool,
    units: BTreeSet<Arc<Place>>,
}

/// Why a folder has no watch.
struct Unwatched {
    why: String,
    /// It is among the findings.
    told: bool,
}

/// Why a folder is not entered.
enum Refusal {
    /// It is not there, or is no folder.
    NotHere,
    /// It is read by another way.
    Elsewhere(Identity),
    Problem(Diagnostic),
}

#[derive(Default)]
pub struct Folders {
    watcher: Option<Watcher>,
    known: BTreeMap<PathBuf, Folder>,
    paths: HashMap<Identity, PathBuf>,
    /// Further ways to folders that are read.
    ways: BTreeMap<PathBuf, Identity>,
    /// Those of them to folders that are not read any more.
    freed: BTreeSet<PathBuf>,
    /// The folders that are watched because a root, or a link on the way to it, has its name there.
    holders: BTreeMap<PathBuf, Identity>,
    unwatched: BTreeMap<PathBuf, Unwatched>,
    problems: BTreeMap<PathBuf, Diagnostic>,
    /// Paths whose findings may have changed.
    dirty: BTreeSet<PathBuf>,
}

impl Folders {
    /// Has `watcher` watch all folders, those that come later too.
    pub fn watch_all(&mut self, watcher: Watcher) {
        self.watcher = Some(watcher);
        self.dirty.extend(std::mem::take(&mut self.unwatched).into_keys());
        for folder in self.known.keys().cloned().collect::<Vec<_>>() {
            self.watch(&folder);
        }
    }

    pub fn has_watcher(&self) -> bool {
        self.watcher.is_some()
    }

    /// Sets the watches that could not be set before, where that has become possible.
    pub fn retry_watches(&mut self) {
        for folder in self.unwatched.keys().cloned().collect::<Vec<_>>() {
            self.watch(&folder);
        }
    }

    /// Watches the folders that a root's name is in, with `touched` anew.
    pub fn hold(&mut self, root: &Path, touched: bool) {
        if self.watcher.is_none() {
            return;
        }
        for holder in holders(root) {
            // Where it is not there, the root is not either, and is looked for.
            let Ok(metadata) = fs::metadata(&holder) else {
                self.holders.remove(&holder);
                continue;
            };
            let identity = identity(&metadata);
            if self.holders.insert(holder.clone(), identity) != Some(identity) || touched {
                self.watch(&holder);
            }
        }
    }

    pub fn contains(&self, path: &Path) -> bool {
        self.known.contains_key(path)
    }

    /// Lists `folder` and those below; returns the units in them and those that were there before. With
    /// `touched` the watches are set anew: each may be another folder with the same name and inode.
    pub fn scan(&mut self, root: usize, top: &Path, folder: &Path, touched: bool) -> Vec<Arc<Place>> {
        let mut units = Vec::new();
        let mut pending = vec![folder.to_owned()];
        while let Some(folder) = pending.pop() {
            let (identity, linked) = match self.admit(root, top, &folder) {
                Ok(admitted) => admitted,
                Err(Refusal::NotHere) => {
                    units.extend(self.drop(&folder));
                    continue;
                }
                Err(Refusal::Elsewhere(identity)) => {
                    units.extend(self.drop(&folder));
                    self.ways.insert(folder, identity);
                    continue;
                }
                Err(Refusal::Problem(problem)) => {
                    self.problem(&folder, problem);
                    continue;
                }
            };
            // It was renamed, or this way comes before. The old watch must go first: it is the same as the new one.
            if let Some(old) = self.paths.get(&identity).filter(|path| **path != folder).cloned() {
                units.extend(self.drop(&old));
                if is_still(&old, identity) {
                    self.ways.insert(old, identity);
                }
            }
            self.enter(&folder, Folder { identity, root, linked, units: BTreeSet::new() }, touched);
            match found(self.list(&folder)) {
                Ok(Some(listing)) => {
                    self.solved(&folder);
                    units.extend(self.update(root, &folder, listing.units));
                    for gone in self.children_besides(&folder, &listing.folders) {
                        units.extend(self.drop(&gone));
                    }
                    pending.extend(listing.folders.into_iter().rev());
                }
                Ok(None) => units.extend(self.drop(&folder)),
                Err(error) => self.unreadable(&folder, &error),
            }
        }
        units
    }

    /// Forgets `folder` and those below, and what was wrong with them; returns the units that were there.
    pub fn drop(&mut self, folder: &Path) -> Vec<Arc<Place>> {
        for path in below(&self.problems, folder).cloned().collect::<Vec<_>>() {
            self.solved(&path);
        }
        for path in below(&self.unwatched, folder).cloned().collect::<Vec<_>>() {
            self.watched(&path);
        }
        for path in below(&self.ways, folder).cloned().collect::<Vec<_>>() {
            self.ways.remove(&path);
        }
        let mut units = Vec::new();
        for path in below(&self.known, folder).cloned().collect::<Vec<_>>() {
            if let Some(watcher) = &mut self.watcher {
                watcher.remove(&path);
            }
            if let Some(folder) = self.known.remove(&path) {
                self.leave(folder.identity);
                units.extend(folder.units);
            }
        }
        units
    }

    /// A folder is not read any more by the way it was.
    fn leave(&mut self, identity: Identity) {
        self.paths.remove(&identity);
        let freed = self.ways.iter().filter(|(_, other)| **other == identity);
        self.freed.extend(freed.map(|(path, _)| path.clone()));
    }

    /// A way to a folder by which it may have to be read from now on: the one before is gone.
    pub fn next_freed(&mut self) -> Option<PathBuf> {
        loop {
            let path = self.freed.pop_first()?;
            if !path.parent().is_some_and(|parent| self.is_elsewhere(parent)) {
                return Some(path);
            }
        }
    }

    /// Whether the folder that `path` is in is read by another way.
    pub fn is_elsewhere(&self, path: &Path) -> bool {
        !self.ways.is_empty() && path.ancestors().any(|folder| self.ways.contains_key(folder))
    }

    /// Whether `place` was there when its folder was listed last, or has been added since.
    pub fn has(&self, place: &Arc<Place>) -> bool {
        let folder = place.unit.path.parent().and_then(|folder| self.known.get(folder));
        folder.is_some_and(|folder| folder.units.contains(place))
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

    /// What there is to say about a path itself.
    pub fn findings_about(&self, path: &Path) -> Vec<Diagnostic> {
        if let Some(problem) = self.problems.get(path) {
            return vec![problem.clone()];
        }
        let unwatched = self.unwatched.get(path).filter(|unwatched| unwatched.told);
        let finding = unwatched.map(|Unwatched { why, .. }| {
            let message = format!("the folder cannot be watched, changes are seen within 30 s: {why}");
            Diagnostic { severity: Severity::Warning, ..file_error("NotWatched", message) }
        });
        finding.into_iter().collect()
    }

    /// The paths whose findings may have changed since the last call.
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

    /// A folder or root could not be looked at: what is known of it stays.
    pub fn unreadable(&mut self, path: &Path, error: &io::Error) {
        self.problem(path, unreadable(error));
    }

    /// The paths that could not be looked at.
    pub fn all_unreadable(&self) -> impl Iterator<Item = &PathBuf> {
        self.problems.iter().filter(|(_, problem)| problem.reason == UNREADABLE).map(|(path, _)| path)
    }

    /// What kept `path` from being looked at.
    pub fn why_unreadable(&self, path: &Path) -> Option<&str> {
        let problem = self.problems.get(path).filter(|problem| problem.reason == UNREADABLE)?;
        Some(&problem.message)
    }

    pub fn has_problem(&self, path: &Path) -> bool {
        self.problems.contains_key(path)
    }

    /// Changes in `folder` come without events.
    pub fn not_watched(&mut self, folder: &Path, error: &WatchError) {
        let told = self.unwatched.values().filter(|unwatched| unwatched.told).count() < MOST_TOLD;
        let why = error.to_string();
        match self.unwatched.get_mut(folder) {
            Some(unwatched) => {
                unwatched.told |= told;
                unwatched.why = why;
            }
            None => {
                if told {
                    tracing::warn!(folder = %folder.display(), %error, "the folder cannot be watched, changes are seen late");
                }
                self.unwatched.insert(folder.to_owned(), Unwatched { why, told });
            }
        }
        self.dirty.insert(folder.to_owned());
    }

    fn watched(&mut self, folder: &Path) {
        if self.unwatched.remove(folder).is_some() {
            self.dirty.insert(folder.to_owned());
        }
    }

    /// Which folder `folder` is now, and whether it is reached over a link.
    fn admit(&self, root: usize, top: &Path, folder: &Path) -> Result<(Identity, bool), Refusal> {
        let identity = match found(fs::metadata(folder)) {
            Ok(Some(metadata)) if metadata.is_dir() => identity(&metadata),
            Ok(_) => return Err(Refusal::NotHere),
            Err(error) => return Err(Refusal::Problem(unreadable(&error))),
        };
        if folder.strip_prefix(top).is_ok_and(|rest| rest.components().count() > DEEPEST) {
            let message = format!("folders are read {DEEPEST} levels deep, this one is deeper");
            return Err(Refusal::Problem(file_error("TooDeep", message)));
        }
        let around = folder.parent().and_then(|parent| self.known.get(parent));
        let linked = folder != top && (folder.is_symlink() || around.is_some_and(|around| around.linked));
        // The same folder by another way: reading it once is enough, and a loop ends here.
        let other = self.paths.get(&identity).filter(|path| *path != folder && is_still(path, identity));
        let other = other.and_then(|path| self.known.get_key_value(path));
        match other {
            Some((path, other)) if (other.linked, other.root, &**path) < (linked, root, folder) => {
                Err(Refusal::Elsewhere(identity))
            }
            _ => Ok((identity, linked)),
        }
    }

    /// Notes the folder and sets the watch.
    fn enter(&mut self, path: &Path, folder: Folder, touched: bool) {
        let identity = folder.identity;
        let before = self.known.remove(path);
        let known = before.as_ref().map(|before| before.identity);
        let units = before.map(|before| before.units).unwrap_or_default();
        self.known.insert(path.to_owned(), Folder { units, ..folder });
        if known == Some(identity) && !touched {
            return;
        }
        self.ways.remove(path);
        if let Some(before) = known.filter(|before| *before != identity) {
            self.leave(before);
        }
        self.paths.insert(identity, path.to_owned());
        self.watch(path);
    }

    fn watch(&mut self, folder: &Path) {
        let Some(watcher) = &mut self.watcher else { return };
        match watcher.add(folder) {
            Ok(()) => self.watched(folder),
            // That it is gone shows elsewhere.
            Err(WatchError::NotFound) => self.watched(folder),
            Err(error) => self.not_watched(folder, &error),
        }
    }

    fn list(&self, folder: &Path) -> io::Result<Listing> {
        let mut listing = Listing::default();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let path = entry.path();
            if is_hidden(&path) {
                continue;
            }
            let unit = Unit::of(&path);
            let kind = entry.file_type()?;
            let is_folder = kind.is_dir()
                || kind.is_symlink()
                    && match found(fs::metadata(&path)) {
                        Ok(target) => target.is_some_and(|target| target.is_dir()),
                        // Nobody knows what it leads to now: it is taken for what it was, or looks like.
                        Err(_) => self.contains(&path) || unit.is_none(),
                    };
            if is_folder {
                listing.folders.insert(path);
            } else if let Some(unit) = unit {
                listing.units.insert(unit);
            }
        }
        Ok(listing)
    }

    /// Takes over which units are in `folder`; returns them and those that no longer are.
    fn update(&mut self, root: usize, folder: &Path, units: BTreeSet<Unit>) -> Vec<Arc<Place>> {
        let units = units.into_iter().map(|unit| Arc::new(Place { root, unit })).collect();
        let Some(known) = self.known.get_mut(folder) else { return Vec::new() };
        let before = std::mem::replace(&mut known.units, units);
        known.units.union(&before).cloned().collect()
    }

    /// What was in `folder` and is not among `listed`, the folders that are.
    fn children_besides(&self, folder: &Path, listed: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
        let known = below(&self.known, folder).chain(below(&self.problems, folder));
        let known = known.chain(below(&self.ways, folder));
        known.filter(|path| path.parent() == Some(folder) && !listed.contains(*path)).cloned().collect()
    }
}

/// The paths at and below `folder`.
fn below<'a, V>(map: &'a BTreeMap<PathBuf, V>, folder: &'a Path) -> impl Iterator<Item = &'a PathBuf> {
    let from = map.range::<Path, _>((Bound::Included(folder), Bound::Unbounded)).map(|(path, _)| path);
    from.take_while(move |path| path.starts_with(folder))
}

fn identity(metadata: &fs::Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

fn unreadable(error: &io::Error) -> Diagnostic {
    file_error(UNREADABLE, format!("it cannot be looked at, so what was read there before stays: {error}"))
}

fn is_still(path: &Path, identity: Identity) -> bool {
    fs::metadata(path).is_ok_and(|metadata| self::identity(&metadata) == identity)
}

#[derive(Default)]
struct Listing {
    units: BTreeSet<Unit>,
    folders: BTreeSet<PathBuf>,
}
