//! What is looked at again without an event, and when: units that cannot be used as they are, files that are gone
//! or being written, folders that cannot be listed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ahash::AHashMap;

use super::tree::Place;
use super::unit::Unit;

/// When a unit in trouble is read again, counted from the time before.
const RETRIES: [Duration; 3] = [Duration::from_millis(200), Duration::from_secs(1), Duration::from_secs(5)];
/// Editors delete and create again; that is one change.
const SETTLE: Duration = Duration::from_millis(100);
/// The longest that a file is left alone because its writer has it open.
const WRITING: Duration = Duration::from_secs(2);
/// How often a folder that could not be listed is tried again.
const RELIST: Duration = Duration::from_secs(1);

/// A unit that cannot be used as it is.
struct Trouble {
    tries: usize,
    /// When to look again; `None` when only an event can help.
    due: Option<Instant>,
}

#[derive(Default)]
pub struct Waits {
    troubles: AHashMap<Arc<Place>, Trouble>,
    /// Units whose files are gone, since when.
    gone: AHashMap<Arc<Place>, Instant>,
    /// Files that are being written, and until when that is waited for.
    writing: HashMap<PathBuf, Instant>,
    relist: Option<Instant>,
}

impl Waits {
    /// When something is due.
    pub fn next_due(&self) -> Option<Instant> {
        let troubles = self.troubles.values().filter_map(|trouble| trouble.due);
        let gone = self.gone.values().map(|since| *since + SETTLE);
        troubles.chain(gone).chain(self.writing.values().copied()).chain(self.relist).min()
    }

    /// The units that are to be looked at by now.
    pub fn due_units(&self, now: Instant) -> Vec<Arc<Place>> {
        let troubles = self.troubles.iter().filter(|(_, it)| it.due.is_some_and(|due| due <= now));
        let gone = self.gone.iter().filter(|(_, since)| **since + SETTLE <= now);
        troubles.map(|(place, _)| place).chain(gone.map(|(place, _)| place)).cloned().collect()
    }

    /// The files whose writers have taken too long.
    pub fn due_files(&self, now: Instant) -> Vec<PathBuf> {
        self.writing.iter().filter(|(_, due)| **due <= now).map(|(path, _)| path.clone()).collect()
    }

    /// Whether what could not be listed is to be tried again.
    pub fn is_relist_due(&self, now: Instant) -> bool {
        self.relist.is_some_and(|due| due <= now)
    }

    /// Plans to list again where `needed`, unless that is planned.
    pub fn relist(&mut self, needed: bool, now: Instant) {
        self.relist = needed.then(|| self.relist.unwrap_or(now + RELIST));
    }

    pub fn is_in_trouble(&self, place: &Arc<Place>) -> bool {
        self.troubles.contains_key(place)
    }

    /// Whether the files of `place` were not there when they were looked for last.
    pub fn is_missed(&self, place: &Arc<Place>) -> bool {
        self.gone.contains_key(place)
    }

    /// Plans to read `place` again; whether this is the first time. A fault that `passes` by itself is tried until
    /// it has.
    pub fn retry(&mut self, place: &Arc<Place>, passes: bool, now: Instant) -> bool {
        let trouble = self.troubles.entry(place.clone()).or_insert(Trouble { tries: 0, due: None });
        let last = RETRIES.last().filter(|_| passes);
        trouble.due = RETRIES.get(trouble.tries).or(last).map(|delay| now + *delay);
        trouble.tries += 1;
        trouble.tries == 1
    }

    /// `place` can be used as it is.
    pub fn solved(&mut self, place: &Arc<Place>) {
        self.troubles.remove(place);
    }

    /// The files of `place` are not there; whether that has been so for long enough to be believed.
    pub fn is_gone(&mut self, place: &Arc<Place>, now: Instant) -> bool {
        if let Some(trouble) = self.troubles.get_mut(place) {
            trouble.due = None;
        }
        *self.gone.entry(place.clone()).or_insert(now) + SETTLE <= now
    }

    /// A file of `place` is there.
    pub fn is_there(&mut self, place: &Arc<Place>) {
        self.gone.remove(place);
    }

    /// Whether `place` is there cannot be told, and is looked at when it can.
    pub fn out_of_reach(&mut self, place: &Arc<Place>) {
        self.gone.remove(place);
        if let Some(trouble) = self.troubles.get_mut(place) {
            trouble.due = None;
        }
    }

    /// `place` is no more.
    pub fn forget(&mut self, place: &Arc<Place>) {
        self.gone.remove(place);
        self.troubles.remove(place);
    }

    pub fn write_begins(&mut self, path: PathBuf, now: Instant) {
        self.writing.entry(path).or_insert(now + WRITING);
    }

    pub fn write_ends(&mut self, path: &Path) {
        self.writing.remove(path);
    }

    pub fn is_being_written(&self, unit: &Unit) -> bool {
        unit.files().any(|file| self.writing.contains_key(file))
    }
}
