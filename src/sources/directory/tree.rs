//! What the folders hold: which unit defines which objects, in which state its files were when they were
//! read, and what is wrong with it. Blocking; driven by [`Directory`](super::Directory), which turns events
//! and timers into calls and sends what [`Tree::take_batch`] returns.
//!
//! Invariant: `served` is what the receiver of the batches has, and a unit that is in trouble or out of reach keeps
//! what it last defined.

mod taking;
mod telling;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use ahash::AHashMap;

use super::claims::Claims;
use super::content::{self, SETTINGS_FILES, file_error};
use super::findings::Told;
use super::folders::Folders;
use super::read::{self, Stamps, found};
use super::roots::Roots;
use super::unit::{Unit, is_hidden, is_volume};
use super::waits::Waits;
use super::watch::{Touched, WatchError, Watcher};
use crate::diagnostics::{Diagnostic, ObjectRef};
use crate::sources::Health;
use crate::sources::origins::Origin;
use crate::store::Event;
use crate::store::objects::{Kind, ObjectName, Unknown};

/// Files that are read before what they hold is handed on.
const PIECE: usize = 500;
/// Paths that are looked at where others wait for it; what is more belongs on a thread that may block.
const FEW: usize = 16;
/// The largest file, in bytes, that is parsed where others wait for it.
const SMALL: u64 = 256 * 1024;

type ObjectId = (Kind, ObjectName);

/// A unit and its place in the order that decides who defines an object: first by folder as given, then by
/// path.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub root: usize,
    pub unit: Unit,
}

/// What is known of a unit that was read.
#[derive(Default)]
struct Loaded {
    stamps: Stamps,
    /// Digest of the files when they were last read without trouble.
    digest: Option<u64>,
    objects: Box<[(ObjectId, u64)]>,
    unknown: Box<[Unknown]>,
    findings: Box<[Diagnostic]>,
}

/// Why a unit is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// It may have changed: read if its files look different.
    IfChanged,
    /// It was touched: read, decode if the bytes differ.
    Touched,
    /// An object that another unit defined before it is now up to this one.
    Again,
}

#[derive(Default)]
pub struct Tree {
    roots: Arc<Roots>,
    namespace: Arc<str>,
    hasher: ahash::RandomState,
    folders: Folders,
    units: AHashMap<Arc<Place>, Loaded>,
    objects: Claims<ObjectId, Place>,
    unknown: Claims<Unknown, Place>,
    served: AHashMap<ObjectId, u64>,
    waits: Waits,
    synced: bool,
    /// Whether a batch said that it is synced.
    announced: bool,
    /// The health that was told last.
    health: Health,

    events: Vec<Event>,
    origins: Vec<Origin>,
    /// Whose findings may have changed.
    dirty: BTreeSet<Arc<Place>>,
    /// Units that objects fell to.
    again: Vec<Arc<Place>>,
    told: Told,
}

impl Tree {
    /// Nothing is read yet, and nothing watched.
    pub fn new(roots: Vec<PathBuf>, namespace: &str) -> Self {
        Self { roots: Arc::new(Roots::new(roots)), namespace: namespace.into(), ..Self::default() }
    }

    pub fn roots(&self) -> Arc<Roots> {
        self.roots.clone()
    }

    /// Has `watcher` watch all folders, those that come later too. Without one all changes are seen late.
    pub fn watch(&mut self, watcher: Result<Watcher, WatchError>) {
        match watcher {
            Ok(watcher) => self.folders.watch_all(watcher),
            Err(error) => {
                for root in self.roots.clone().paths() {
                    self.folders.not_watched(root, &error);
                }
            }
        }
    }

    pub fn has_watcher(&self) -> bool {
        self.folders.has_watcher()
    }

    /// Looks at everything; reads what is new or looks different.
    pub fn scan(&mut self, now: Instant) {
        self.scan_in_pieces(now, |_| {});
    }

    /// As [`scan`](Self::scan), calling `piece` after every so many files: what was found until then may be taken.
    pub fn scan_in_pieces(&mut self, now: Instant, mut piece: impl FnMut(&mut Self)) {
        self.folders.retry_watches();
        // All before any is read: a folder of one may have to be read by way of another.
        let places: Vec<_> =
            (0..self.roots.paths().len()).flat_map(|root| self.list_root(root, false)).collect();
        for places in places.chunks(PIECE) {
            self.look_at(places, Look::IfChanged, now);
            piece(self);
        }
        self.synced = true;
        self.follow_freed(now);
        self.plan_relist(now);
    }

    /// The units that are in a root, and those that were. There are none to look at in a root that is out of reach:
    /// what it defined stays until it is there again.
    fn list_root(&mut self, root: usize, touched: bool) -> Vec<Arc<Place>> {
        let roots = self.roots.clone();
        let top = roots.path(root);
        let was_out_of_reach = self.folders.why_unreadable(top).is_some();
        self.folders.hold(top, touched);
        let mut places = match fs::metadata(top) {
            Ok(metadata) if metadata.is_dir() => self.folders.scan(root, top, top, touched),
            Ok(_) => {
                self.folders.drop(top);
                self.file_root(root, top).into_iter().collect()
            }
            Err(error) => {
                self.folders.drop(top);
                self.folders.unreadable(top, &error);
                Vec::new()
            }
        };
        match self.folders.why_unreadable(top) {
            Some(_) if was_out_of_reach => return Vec::new(),
            Some(problem) => {
                tracing::warn!(path = %top.display(), "{problem}");
                return Vec::new();
            }
            None if was_out_of_reach => tracing::info!(path = %top.display(), "it can be looked at again"),
            None => {}
        }
        let folders = &self.folders;
        let was = |place: &&Arc<Place>| place.root == root && !folders.has(place);
        places.extend(self.units.keys().filter(was).cloned());
        places
    }

    fn file_root(&mut self, root: usize, path: &Path) -> Option<Arc<Place>> {
        let unit = Unit::of(path);
        if unit.is_none() {
            let message = "the name is not that of a manifest (.yaml, .yml, .json) or a PEM pair";
            self.folders.problem(path, file_error("NotAManifest", message.into()));
        }
        unit.map(|unit| Arc::new(Place { root, unit }))
    }

    /// `path` changed and its writer is done with it.
    pub fn touch(&mut self, path: &Path, now: Instant) {
        self.waits.write_ends(path);
        let roots = self.roots.clone();
        let over: Vec<_> = roots.over(path).collect();
        for root in &over {
            let places = self.list_root(*root, true);
            let is_folder = self.folders.contains(roots.path(*root));
            self.look_at(&places, if is_folder { Look::IfChanged } else { Look::Touched }, now);
        }
        if let Some(root) = roots.around(path).filter(|_| over.is_empty()) {
            self.touch_within(root, roots.path(root), path, now);
        }
        self.follow_freed(now);
        self.plan_relist(now);
    }

    fn touch_within(&mut self, root: usize, top: &Path, path: &Path, now: Instant) {
        if is_volume(path) {
            // A mounted volume was swapped: everything in it leads elsewhere now.
            if let Some(folder) = path.parent() {
                let places = self.folders.scan(root, top, folder, true);
                self.look_at(&places, Look::IfChanged, now);
            }
            return;
        }
        if is_hidden(path) {
            return;
        }
        let place = Unit::of(path).map(|unit| Arc::new(Place { root, unit }));
        if let Some(place) = place.as_ref().filter(|place| self.is_read(place)) {
            // Reading it tells what is there now, as a rule.
            self.look_at(std::slice::from_ref(place), Look::Touched, now);
            if self.is_read(place) || !path.is_dir() {
                return;
            }
        }
        match found(fs::metadata(path)) {
            Ok(Some(metadata)) if metadata.is_dir() => {
                let places = self.folders.scan(root, top, path, true);
                return self.look_at(&places, Look::IfChanged, now);
            }
            Err(error) if self.folders.contains(path) => return self.folders.unreadable(path, &error),
            Err(_) => {}
            Ok(_) if self.folders.contains(path) || self.folders.has_problem(path) => {
                let places = self.folders.drop(path);
                self.look_at(&places, Look::IfChanged, now);
            }
            Ok(_) => {}
        }
        self.look_at(place.as_slice(), Look::Touched, now);
    }

    /// Whether `place` has files that could be read last time.
    fn is_read(&self, place: &Arc<Place>) -> bool {
        self.units.contains_key(place) && !self.waits.is_in_trouble(place) && !self.waits.is_missed(place)
    }

    /// `path` is not there any more under this name, unless there is another by now.
    pub fn vanish(&mut self, path: &Path, now: Instant) {
        // Of a file that is not read it is enough to know that nobody writes to it.
        let matters = Unit::of(path).is_some()
            || is_volume(path)
            || self.folders.contains(path)
            || self.folders.has_problem(path)
            || self.roots.over(path).next().is_some();
        match matters {
            true => self.touch(path, now),
            false => self.waits.write_ends(path),
        }
    }

    /// `path` is open for writing: it is left alone until it is closed, or until it has taken too long.
    pub fn write_begins(&mut self, path: PathBuf, now: Instant) {
        // A link is created complete, and nobody closes it.
        let complete =
            path.symlink_metadata().is_ok_and(|metadata| !metadata.is_file() || metadata.nlink() > 1);
        match complete {
            true => self.touch(&path, now),
            false => self.waits.write_begins(path, now),
        }
    }

    /// When [`tick`](Self::tick) has something to do.
    pub fn next_due(&self) -> Option<Instant> {
        self.waits.next_due()
    }

    /// Looks again at what is due.
    pub fn tick(&mut self, now: Instant) {
        for path in self.waits.due_files(now) {
            self.touch(&path, now);
        }
        if self.waits.is_relist_due(now) {
            self.waits.relist(false, now);
            for path in self.folders.all_unreadable().cloned().collect::<Vec<_>>() {
                self.relist(&path, now);
            }
        }
        let due = self.waits.due_units(now);
        self.look_at(&due, Look::Touched, now);
        self.follow_freed(now);
        self.plan_relist(now);
    }

    /// Looks at the folders that have to be read by another way now.
    fn follow_freed(&mut self, now: Instant) {
        while let Some(path) = self.folders.next_freed() {
            self.relist(&path, now);
        }
    }

    fn plan_relist(&mut self, now: Instant) {
        self.waits.relist(self.folders.all_unreadable().next().is_some(), now);
    }

    /// Looks again at a root or folder that was out of reach.
    fn relist(&mut self, path: &Path, now: Instant) {
        let roots = self.roots.clone();
        let places = match roots.paths().iter().position(|root| root == path) {
            Some(root) => self.list_root(root, false),
            None => match roots.around(path) {
                Some(root) => self.folders.scan(root, roots.path(root), path, true),
                None => return,
            },
        };
        self.look_at(&places, Look::IfChanged, now);
    }

    /// Whether it may take long to look at what was touched and what is due.
    pub fn is_much(&self, touched: &Touched, now: Instant) -> bool {
        let due = self.waits.due_units(now);
        let is_large = |path: &Path| {
            self.folders.contains(path)
                || fs::metadata(path).is_ok_and(|metadata| metadata.is_dir() || metadata.len() > SMALL)
        };
        touched.paths.len() + due.len() > FEW
            || self.waits.is_relist_due(now)
            || touched.paths.keys().any(|path| is_large(path))
            || due.iter().any(|place| is_large(&place.unit.path))
    }

    fn look_at(&mut self, places: &[Arc<Place>], look: Look, now: Instant) {
        for place in places {
            self.look(place, look, now);
        }
        // Objects that lost who defined them, as long as taking them up brings up more.
        while let Some(place) = self.again.pop() {
            self.look(&place, Look::Again, now);
        }
    }

    fn look(&mut self, place: &Arc<Place>, look: Look, now: Instant) {
        let unit = &place.unit;
        if look == Look::IfChanged && self.waits.is_being_written(unit) {
            return;
        }
        if self.folders.is_elsewhere(&unit.path) {
            return self.missing(place, now);
        }
        // A manifest that is new or was touched is read without being looked at: there are thousands of them at the
        // start.
        let known = self.units.get(place).map(|known| known.stamps).filter(|_| look == Look::IfChanged);
        if known.is_some() || unit.key.is_some() {
            match read::stamps(unit) {
                Ok([None, None]) => return self.missing(place, now),
                Ok(stamps) if known == Some(stamps) => return self.waits.is_there(place),
                Ok(_) => {}
                Err(error) => return self.not_read(place, &error, now),
            }
        }
        self.folders.add(place);
        let (contents, stamps) = match read::read(unit) {
            Ok(read) => read,
            // A folder with the name of a manifest is read as one.
            Err(error) if error.is_absence() || unit.key.is_none() && error.is_folder() => {
                return self.missing(place, now);
            }
            Err(error) => return self.not_read(place, &error, now),
        };
        self.waits.is_there(place);
        let [first, second] = &contents;
        let digest = self.hasher.hash_one((first.as_slice(), second.as_slice()));
        if look != Look::Again
            && let Some(known) = self.units.get_mut(place)
            && known.digest == Some(digest)
        {
            known.stamps = stamps;
            return;
        }
        let mut content = content::decode(unit, &contents, &self.namespace, &self.hasher);
        if self.is_settings_file(&unit.path) {
            content.admit_settings();
        }
        self.take(place, content, stamps, digest, now);
    }

    /// Whether the settings of a gateway may be in this file: one right in a root.
    fn is_settings_file(&self, path: &Path) -> bool {
        let named =
            path.file_name().is_some_and(|name| SETTINGS_FILES.iter().any(|settings| name == *settings));
        named && self.roots.paths().iter().any(|root| path.parent() == Some(root))
    }
}

fn object_ref((kind, name): &ObjectId) -> ObjectRef {
    ObjectRef::new(*kind, name)
}
