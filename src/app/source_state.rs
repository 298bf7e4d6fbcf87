//! What sources tell the control loop beside objects: what is wrong with files and objects, where each object was read,
//! how the watches are doing, and whether everything has been listed once. The admin port and Events show it; nothing
//! of it is compiled.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::admin::view::SourceStatus;
use crate::diagnostics::{Diagnostic, ObjectRef, Severity};
use crate::sources::origins::Origins;
use crate::sources::{Batch, FileFindings, Health, ObjectFindings, WatchState};

/// What has been told last, of all sources together.
pub(super) struct SourceState {
    /// What is wrong with files, by file.
    files: BTreeMap<Arc<PathBuf>, Vec<Diagnostic>>,
    /// What is wrong with objects that don't come from files.
    objects: BTreeMap<ObjectRef, Vec<Diagnostic>>,
    origins: Origins,
    /// How the watches of the source are doing, by name.
    watches: BTreeMap<Arc<str>, WatchState>,
    /// Everything has been listed once.
    pub synced: bool,
    /// How a source without watches is doing.
    health: Health,
    /// Since when `synced` and `health` are as they are, in seconds since the Unix epoch.
    since: i64,
    /// Counts up with whatever changes [`findings`](Self::findings) or [`locate`](Self::locate).
    version: u64,
}

impl SourceState {
    /// Nothing has been told yet. `now` is in seconds since the Unix epoch, here and below.
    pub fn new(now: i64) -> Self {
        Self {
            files: BTreeMap::new(),
            objects: BTreeMap::new(),
            origins: Origins::default(),
            watches: BTreeMap::new(),
            synced: false,
            health: Health::Well,
            since: now,
            version: 0,
        }
    }

    /// Takes over what a batch tells of these.
    pub fn take(&mut self, batch: &mut Batch, now: i64) {
        let nothing = batch.origins.is_empty()
            && batch.findings.is_empty()
            && batch.object_findings.is_empty()
            && batch.ended.is_empty()
            && batch.states.is_empty();
        self.version += u64::from(!nothing);
        batch.origins.drain(..).for_each(|origin| self.origins.apply(origin));
        for FileFindings { file, diagnostics } in batch.findings.drain(..) {
            match diagnostics.is_empty() {
                true => drop(self.files.remove(&file)),
                false => drop(self.files.insert(file, diagnostics)),
            }
        }
        for ObjectFindings { about, diagnostics } in batch.object_findings.drain(..) {
            match diagnostics.is_empty() {
                true => drop(self.objects.remove(&about)),
                false => drop(self.objects.insert(about, diagnostics)),
            }
        }
        batch.ended.iter().for_each(|name| drop(self.watches.remove(name)));
        self.watches.extend(batch.states.drain(..).map(|state| (state.name.clone(), state)));
        if batch.synced && !self.synced {
            (self.synced, self.since) = (true, now);
        }
        if let Some(health) = batch.health.take() {
            (self.health, self.since) = (health, now);
        }
    }

    /// The same number as before says that there is nothing new to [`findings`](Self::findings) and
    /// [`locate`](Self::locate).
    pub fn version(&self) -> u64 {
        self.version
    }

    /// What is wrong with files, objects and watches.
    pub fn findings(&self) -> impl Iterator<Item = Diagnostic> {
        let decoding = self.files.values().chain(self.objects.values()).flatten().cloned();
        decoding.chain(self.watches.values().filter_map(not_watched))
    }

    /// The diagnostic with the file of its object, where that was read from one.
    pub fn locate(&self, diagnostic: Diagnostic) -> Diagnostic {
        self.origins.locate(diagnostic)
    }

    /// How each watch is doing; the source as a whole, by its name, where it has none.
    pub fn status(&self, source: &str) -> Vec<SourceStatus> {
        if self.watches.is_empty() {
            return vec![SourceStatus {
                name: source.into(),
                synced: self.synced,
                since: self.since,
                last_error: match &self.health {
                    Health::Well => None,
                    Health::Ill(why) => Some(why.clone()),
                },
                stale_since: None,
            }];
        }
        let status = |watch: &WatchState| SourceStatus {
            name: watch.name.clone(),
            synced: watch.synced,
            since: watch.since,
            last_error: watch.last_error.clone(),
            stale_since: watch.stale_since,
        };
        self.watches.values().map(status).collect()
    }
}

/// The reasons of findings about watches that cannot do what they should.
pub(super) const REASONS_OF_WATCHES: [&str; 2] = [STALE, NOT_WATCHED];
const STALE: &str = "StaleObjects";
const NOT_WATCHED: &str = "NotWatched";

/// A watch that brings nothing is worth a word: what is served may be old.
fn not_watched(watch: &WatchState) -> Option<Diagnostic> {
    let name = &watch.name;
    let stale = watch.stale_since.and_then(|since| OffsetDateTime::from_unix_timestamp(since).ok());
    let (severity, reason, message) = match (&watch.last_error, stale) {
        (Some(error), Some(since)) => {
            let since = since.format(&Rfc3339).unwrap_or_default();
            let message = format!("{name} are served as they were kept on disk at {since}: {error}.");
            (Severity::Warning, STALE, message)
        }
        (Some(error), None) => {
            let severity = if watch.synced { Severity::Warning } else { Severity::Error };
            (severity, NOT_WATCHED, format!("Changes to {name} do not arrive: {error}."))
        }
        (None, _) if watch.absent => {
            let message = format!("The API server has no {name}; they are followed once it has.");
            (Severity::Info, "KindNotFound", message)
        }
        (None, _) => return None,
    };
    Some(Diagnostic { severity, file: None, object: None, field: String::new(), reason, message })
}
