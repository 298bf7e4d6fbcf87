//! What the folders hold: which unit defines which objects, in which state its files were when they were
//! read, and what is wrong with it. Blocking; driven by [`Directory`](super::Directory), which turns events
//! and timers into calls and sends what [`Tree::take_batch`] returns.
//!
//! Invariant: `served` is what the receiver of the batches has, and a unit that is in trouble keeps what it
//! last defined.

use std::collections::{BTreeSet, HashMap};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ahash::{AHashMap, AHashSet};

use super::claims::Claims;
use super::content::{self, Content, SETTINGS_FILES, file_error};
use super::folders::Folders;
use super::read::{self, ReadError, Stamps};
use super::unit::{Unit, is_hidden};
use super::watch::Watcher;
use crate::diagnostics::{DUPLICATE, Diagnostic, ObjectRef, Severity};
use crate::sources::origins::Origin;
use crate::sources::{Batch, FileFindings};
use crate::store::Event;
use crate::store::objects::{Kind, ObjectName, Unknown, quoted};

/// When a unit in trouble is read again, counted from the time before.
const RETRIES: [Duration; 3] = [Duration::from_millis(200), Duration::from_secs(1), Duration::from_secs(5)];
/// Editors delete and create again; that is one change.
const SETTLE: Duration = Duration::from_millis(100);
/// Files that are read before what they hold is handed on.
const PIECE: usize = 500;
/// The longest that a file is left alone because its writer has it open.
const WRITING: Duration = Duration::from_secs(2);

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

/// A unit that cannot be used as it is.
struct Trouble {
    tries: usize,
    /// When to look again; `None` when only an event can help.
    due: Option<Instant>,
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
    roots: Vec<PathBuf>,
    namespace: Arc<str>,
    hasher: ahash::RandomState,
    folders: Folders,
    units: AHashMap<Arc<Place>, Loaded>,
    objects: Claims<ObjectId, Place>,
    unknown: Claims<Unknown, Place>,
    served: AHashMap<ObjectId, u64>,
    troubles: AHashMap<Arc<Place>, Trouble>,
    /// Units whose files are gone, since when.
    gone: AHashMap<Arc<Place>, Instant>,
    /// Files that are being written, and until when that is waited for.
    writing: HashMap<PathBuf, Instant>,
    synced: bool,
    /// Whether a batch said that it is synced.
    announced: bool,

    events: Vec<Event>,
    origins: Vec<Origin>,
    /// Whose findings may have changed.
    dirty: BTreeSet<Arc<Place>>,
    /// Units that objects fell to.
    again: Vec<Arc<Place>>,
    reported: HashMap<PathBuf, Vec<Diagnostic>>,
}

impl Tree {
    /// Nothing is read yet, and nothing watched.
    pub fn new(roots: Vec<PathBuf>, namespace: &str) -> Self {
        Self { roots: distinct(roots), namespace: namespace.into(), ..Self::default() }
    }

    /// Has `watcher` watch all folders, those that come later too.
    pub fn watch(&mut self, watcher: Option<Watcher>) {
        self.folders.watch_all(watcher);
    }

    /// Looks at everything; reads what is new or looks different.
    pub fn scan(&mut self, now: Instant) {
        self.scan_in_pieces(now, |_| {});
    }

    /// As [`scan`](Self::scan), calling `piece` after every so many files: what was found until then may be taken.
    pub fn scan_in_pieces(&mut self, now: Instant, mut piece: impl FnMut(&mut Self)) {
        for root in 0..self.roots.len() {
            let Some(top) = self.roots.get(root).cloned() else { continue };
            match top.is_file() {
                true => self.scan_file(root, &top, now),
                false => {
                    let places = self.folders.scan(root, &top, &top, false);
                    for places in places.chunks(PIECE) {
                        self.look_at(places, Look::IfChanged, now);
                        piece(self);
                    }
                }
            }
        }
        // What lies nowhere any more, such as a root that was a file.
        let folders = &self.folders;
        let outside = |place: &&Arc<Place>| !place.unit.path.parent().is_some_and(|it| folders.contains(it));
        let outside: Vec<_> = self.units.keys().filter(outside).cloned().collect();
        self.look_at(&outside, Look::IfChanged, now);
        self.synced = true;
    }

    fn scan_file(&mut self, root: usize, path: &Path, now: Instant) {
        match Unit::of(path) {
            Some(unit) => {
                self.folders.solved(path);
                self.look_at(&[Arc::new(Place { root, unit })], Look::IfChanged, now);
            }
            None => {
                let message = "the name is not that of a manifest (.yaml, .yml, .json) or a PEM pair";
                self.folders.problem(path, file_error("NotAManifest", message.into()));
            }
        }
    }

    /// `path` changed and its writer is done with it.
    pub fn touch(&mut self, path: &Path, now: Instant) {
        let Some((root, top)) = self.root_of(path) else { return };
        self.writing.remove(path);
        if is_volume(path) {
            // A mounted volume was swapped: everything in it leads elsewhere now.
            if let Some(folder) = path.parent() {
                let places = self.folders.scan(root, &top, folder, true);
                self.look_at(&places, Look::IfChanged, now);
            }
            return;
        }
        if is_hidden(path) && *path != *top {
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
        if path.is_dir() {
            let places = self.folders.scan(root, &top, path, true);
            return self.look_at(&places, Look::IfChanged, now);
        }
        if self.folders.contains(path) {
            let places = self.folders.drop(path);
            self.look_at(&places, Look::IfChanged, now);
        }
        self.look_at(place.as_slice(), Look::Touched, now);
    }

    /// Whether `place` has files that could be read last time.
    fn is_read(&self, place: &Arc<Place>) -> bool {
        self.units.contains_key(place) && !self.troubles.contains_key(place)
    }

    /// `path` is not there any more under this name, unless there is another by now.
    pub fn vanish(&mut self, path: &Path, now: Instant) {
        // Of a file that is not read it is enough to know that nobody writes to it.
        match Unit::of(path).is_some() || self.folders.contains(path) || is_volume(path) {
            true => self.touch(path, now),
            false => _ = self.writing.remove(path),
        }
    }

    /// `path` is open for writing: it is left alone until it is closed, or until it has taken too long.
    pub fn write_begins(&mut self, path: PathBuf, now: Instant) {
        // A link is created complete, and nobody closes it.
        let complete =
            path.symlink_metadata().is_ok_and(|metadata| !metadata.is_file() || metadata.nlink() > 1);
        match complete {
            true => self.touch(&path, now),
            false => _ = self.writing.entry(path).or_insert(now + WRITING),
        }
    }

    /// When [`tick`](Self::tick) has something to do.
    pub fn next_due(&self) -> Option<Instant> {
        let troubles = self.troubles.values().filter_map(|trouble| trouble.due);
        let gone = self.gone.values().map(|since| *since + SETTLE);
        troubles.chain(gone).chain(self.writing.values().copied()).min()
    }

    /// Reads again what is due.
    pub fn tick(&mut self, now: Instant) {
        let written: Vec<_> =
            self.writing.iter().filter(|(_, due)| **due <= now).map(|(path, _)| path.clone()).collect();
        for path in written {
            self.touch(&path, now);
        }
        let troubles = self.troubles.iter().filter(|(_, it)| it.due.is_some_and(|due| due <= now));
        let gone = self.gone.iter().filter(|(_, since)| **since + SETTLE <= now);
        let due: Vec<_> =
            troubles.map(|(place, _)| place).chain(gone.map(|(place, _)| place)).cloned().collect();
        self.look_at(&due, Look::Touched, now);
    }

    /// What changed since the last call; `None` where nothing did.
    pub fn take_batch(&mut self) -> Option<Batch> {
        let first = self.synced && !std::mem::replace(&mut self.announced, self.synced);
        let batch = Batch {
            events: std::mem::take(&mut self.events),
            origins: std::mem::take(&mut self.origins),
            findings: self.take_findings(),
            synced: self.synced,
            ..Batch::default()
        };
        let Batch { events, origins, findings, .. } = &batch;
        (first || !events.is_empty() || !origins.is_empty() || !findings.is_empty()).then_some(batch)
    }

    fn root_of(&self, path: &Path) -> Option<(usize, PathBuf)> {
        let (at, top) = self.roots.iter().enumerate().find(|(_, top)| path.starts_with(top))?;
        Some((at, top.clone()))
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
        if look == Look::IfChanged && unit.files().any(|file| self.writing.contains_key(file)) {
            return;
        }
        // A manifest that is new or was touched is read without being looked at: there are thousands of them at the
        // start.
        let known = self.units.get(place).map(|known| known.stamps).filter(|_| look == Look::IfChanged);
        if known.is_some() || unit.key.is_some() {
            let stamps = read::stamps(unit);
            if stamps == [None, None] {
                return self.missing(place, now);
            }
            if known == Some(stamps) {
                self.gone.remove(place);
                return;
            }
        }
        self.folders.add(place);
        let (contents, stamps) = match read::read(unit) {
            Ok(read) => {
                self.gone.remove(place);
                read
            }
            Err(ReadError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => {
                return self.missing(place, now);
            }
            Err(error) => {
                let severity = error.severity();
                let finding = Diagnostic { severity, ..file_error(error.reason(), error.to_string()) };
                return self.keep(place, read::stamps(unit), vec![finding], now);
            }
        };
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
}

impl Tree {
    /// Whether the settings of a gateway may be in this file: one right in a root.
    fn is_settings_file(&self, path: &Path) -> bool {
        let named =
            path.file_name().is_some_and(|name| SETTINGS_FILES.iter().any(|settings| name == *settings));
        named && self.roots.iter().any(|root| path.parent() == Some(root))
    }

    /// The files of `place` were read well, or as well as they are.
    fn take(&mut self, place: &Arc<Place>, content: Content, stamps: Stamps, digest: u64, now: Instant) {
        let before = self.units.get(place).map(|known| known.objects.clone()).unwrap_or_default();
        if content.empty && !before.is_empty() {
            let message = "the file is empty: its objects stay as they were; delete the file to remove them";
            return self.keep(place, stamps, vec![file_error("EmptyFile", message.into())], now);
        }
        let first = self.synced && !self.troubles.contains_key(place);
        if content.broken && place.unit.key.is_some() && (first || !before.is_empty()) {
            return self.keep(place, stamps, content.findings, now);
        }
        let defined: Vec<_> = content.objects.iter().map(|defined| (defined.id(), defined.digest)).collect();
        let kept: AHashSet<_> = defined.iter().map(|(id, _)| id).collect();
        // Where a document could not be read, what is missing may be in it.
        let stays = |(id, _): &(ObjectId, u64)| content.broken || content.unusable.contains(id);
        let (mut objects, gone): (Vec<_>, Vec<_>) =
            before.into_vec().into_iter().filter(|(id, _)| !kept.contains(id)).partition(stays);
        objects.extend(defined);
        for defined in content.objects {
            self.define(place, defined);
        }
        for (id, _) in gone {
            self.withdraw(place, &id);
        }
        self.note_unknown(place, &content.unknown);
        let loaded = Loaded {
            stamps,
            digest: (!content.broken).then_some(digest),
            objects: objects.into(),
            unknown: content.unknown.into(),
            findings: content.findings.into(),
        };
        let said = self.reported.contains_key(&place.unit.path);
        if said || !loaded.findings.is_empty() || !loaded.unknown.is_empty() {
            self.dirty.insert(place.clone());
        }
        self.units.insert(place.clone(), loaded);
        match content.broken {
            true => _ = self.retry(place, now),
            false => _ = self.troubles.remove(place),
        }
    }

    fn define(&mut self, place: &Arc<Place>, defined: content::Defined) {
        let id = defined.id();
        let before = self.objects.add(&id, place);
        if self.objects.first(&id) != Some(place) {
            self.dirty.insert(place.clone());
            return;
        }
        // Now it is the other's that is a duplicate.
        if before.as_ref() != Some(place) {
            self.origins.push((object_ref(&id), Some(Arc::new(place.unit.path.clone()))));
            self.dirty.extend(before);
        }
        if self.served.get(&id) != Some(&defined.digest) {
            self.served.insert(id, defined.digest);
            self.events.push(Event::Apply(defined.object));
        }
    }

    fn withdraw(&mut self, place: &Arc<Place>, id: &ObjectId) {
        match self.objects.withdraw(id, place).cloned() {
            Some(other) => {
                self.origins.push((object_ref(id), Some(Arc::new(other.unit.path.clone()))));
                self.again.push(other);
            }
            None => {
                if self.served.remove(id).is_some() {
                    self.origins.push((object_ref(id), None));
                    self.events.push(Event::Delete(id.0, id.1.clone()));
                }
            }
        }
    }

    fn note_unknown(&mut self, place: &Arc<Place>, unknown: &[Unknown]) {
        let before = self.units.get(place).map(|known| known.unknown.clone()).unwrap_or_default();
        for kind in unknown {
            let first = self.unknown.add(kind, place);
            self.dirty.extend(first);
        }
        for kind in before.iter().filter(|kind| !unknown.contains(kind)) {
            let next = self.unknown.withdraw(kind, place).cloned();
            self.dirty.extend(next);
        }
    }

    /// The unit cannot be used now: what it defined stays, and it is read again soon.
    fn keep(&mut self, place: &Arc<Place>, stamps: Stamps, findings: Vec<Diagnostic>, now: Instant) {
        let first = self.retry(place, now);
        let known = self.units.entry(place.clone()).or_default();
        known.stamps = stamps;
        known.digest = None;
        // The halves of a pair are replaced one after the other: what lies between is not worth a word yet.
        if !(first && place.unit.key.is_some() && self.synced) {
            known.findings = findings.into();
            self.dirty.insert(place.clone());
        }
    }

    /// Plans to read again; whether this is the first time.
    fn retry(&mut self, place: &Arc<Place>, now: Instant) -> bool {
        let trouble = self.troubles.entry(place.clone()).or_insert(Trouble { tries: 0, due: None });
        trouble.due = RETRIES.get(trouble.tries).map(|delay| now + *delay);
        trouble.tries += 1;
        trouble.tries == 1
    }

    fn missing(&mut self, place: &Arc<Place>, now: Instant) {
        if !self.units.contains_key(place) {
            self.folders.remove(place);
            return;
        }
        match self.gone.get(place) {
            Some(since) if *since + SETTLE <= now => self.forget(place),
            Some(_) => {}
            None => _ = self.gone.insert(place.clone(), now),
        }
    }

    fn forget(&mut self, place: &Arc<Place>) {
        self.gone.remove(place);
        self.troubles.remove(place);
        self.folders.remove(place);
        self.note_unknown(place, &[]);
        if let Some(known) = self.units.remove(place) {
            for (id, _) in &known.objects {
                self.withdraw(place, id);
            }
        }
        self.dirty.insert(place.clone());
    }

    /// The findings of all that may have changed, where they did.
    fn take_findings(&mut self) -> Vec<FileFindings> {
        let mut found = Vec::new();
        for path in self.folders.take_dirty() {
            let diagnostics = self.folders.problem_with(&path).cloned().into_iter().collect();
            found.push((path, diagnostics));
        }
        for place in std::mem::take(&mut self.dirty) {
            found.push((place.unit.path.clone(), self.findings_of(&place)));
        }
        found.into_iter().filter_map(|(path, diagnostics)| self.report(path, diagnostics)).collect()
    }

    fn findings_of(&self, place: &Arc<Place>) -> Vec<Diagnostic> {
        let Some(known) = self.units.get(place) else { return Vec::new() };
        let mut findings = known.findings.to_vec();
        for (id, _) in &known.objects {
            let Some(first) = self.objects.first(id).filter(|first| *first != place) else { continue };
            let message = format!("{} defines it too and comes first", first.unit.path.display());
            findings.push(Diagnostic::new(Severity::Error, object_ref(id), "", DUPLICATE, message));
        }
        for unknown in known.unknown.iter().filter(|it| self.unknown.first(it) == Some(place)) {
            let (kind, api_version) = (quoted(&unknown.kind), quoted(&unknown.api_version));
            let message = format!("objects of kind {kind} ({api_version}) are not read; this is said once");
            findings.push(Diagnostic { severity: Severity::Info, ..file_error("UnknownKind", message) });
        }
        findings
    }

    fn report(&mut self, path: PathBuf, mut diagnostics: Vec<Diagnostic>) -> Option<FileFindings> {
        let file = Arc::new(path);
        for diagnostic in &mut diagnostics {
            diagnostic.file = Some(file.clone());
        }
        let before = match diagnostics.is_empty() {
            true => self.reported.remove(&*file),
            false => self.reported.insert(file.to_path_buf(), diagnostics.clone()),
        };
        (before.unwrap_or_default() != diagnostics).then_some(FileFindings { file, diagnostics })
    }
}

/// The link that is replaced when a mounted volume changes.
fn is_volume(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "..data")
}

fn object_ref((kind, name): &ObjectId) -> ObjectRef {
    ObjectRef::new(*kind, name)
}

/// Without those that lie in another, which would be read twice.
fn distinct(roots: Vec<PathBuf>) -> Vec<PathBuf> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let all: Vec<_> = roots.iter().map(|root| real(root)).collect();
    let inside = |at: usize, path: &Path| {
        let mut others = all.iter().enumerate();
        others.any(|(other, root)| path.starts_with(root) && (path != root || other < at))
    };
    let mut at = 0..;
    let keep =
        |_: &PathBuf| at.next().and_then(|at| all.get(at).map(|path| !inside(at, path))).unwrap_or(true);
    let mut roots = roots;
    roots.retain(keep);
    roots
}
