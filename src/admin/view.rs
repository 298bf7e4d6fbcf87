//! What the control plane tells the admin port beside the snapshot: readiness, sources, findings, restarts.
//!
//! The app makes a new [`View`] whenever something of it changes and publishes it through a watch channel; the
//! admin port only reads. Nothing in a view is secret: it is shown to whoever can reach the port.

use std::sync::Arc;

use serde::Serialize;

use crate::diagnostics::{Diagnostic, Severity};
use crate::names::object::ObjectName;
use crate::settings::{Change, ChangeCounts, Class};
use crate::supervisor::messages::{Crash, GenerationStatus};

/// The state of the control plane at one moment.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Every source has listed once and the first snapshot is live.
    pub ready: bool,
    /// The process is on its way out: it finishes what it has and should get nothing new.
    pub draining: bool,
    /// When the process started, in seconds since the Unix epoch.
    pub started: i64,
    /// The pod this runs in (namespace and name), which metrics carry as labels.
    pub pod: Option<ObjectName>,
    /// Whether this replica writes status and Events; `None` outside a cluster.
    pub leader: Option<bool>,
    pub settings: SettingsStatus,
    /// Changed settings that need a new worker generation.
    pub pending_restart: Vec<PendingRestart>,
    /// How much has changed so far, across generations.
    pub changes: ChangeCounts,
    /// Why the last new worker generation was given up, or the crash that nothing has taken the place of yet.
    pub last_restart_error: Option<String>,
    /// The last crash of a worker generation, repaired or not.
    pub last_crash: Option<Crash>,
    /// Process id of the supervisor; 0 until it has said so.
    pub supervisor: u32,
    /// All worker generations, this one among them, oldest first.
    pub generations: Arc<[GenerationStatus]>,
    /// All findings, the worst first.
    pub diagnostics: Arc<[Diagnostic]>,
    pub sources: Vec<SourceStatus>,
}

/// How the last edit of the settings went.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SettingsStatus {
    /// When settings were last taken over, in seconds since the Unix epoch.
    #[serde(serialize_with = "super::api::rfc3339")]
    pub loaded: i64,
    /// Why the last edit was refused; the settings before it are in force.
    pub error: Option<String>,
}

/// A changed setting that the running worker generation cannot take over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PendingRestart {
    pub key: &'static str,
    pub reason: &'static str,
}

impl From<&Change> for PendingRestart {
    fn from(change: &Change) -> Self {
        let reason = match change.class {
            Class::Restart(reason) => reason,
            Class::Dynamic => "",
        };
        Self { key: change.key, reason }
    }
}

/// One place that objects come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceStatus {
    pub name: Arc<str>,
    /// It has listed everything at least once.
    pub synced: bool,
    /// Since when it is as it is, in seconds since the Unix epoch.
    #[serde(serialize_with = "super::api::rfc3339")]
    pub since: i64,
    pub last_error: Option<String>,
    /// Its objects are those kept in the state directory and were up to date then, in seconds since the Unix
    /// epoch; `None` where they come from the source itself.
    #[serde(serialize_with = "super::api::rfc3339_or_null")]
    pub stale_since: Option<i64>,
}

impl View {
    /// Why traffic should not come here, in words for a probe; `None` when it should.
    pub fn unready(&self) -> Option<String> {
        if self.draining {
            return Some("draining".into());
        }
        if self.ready {
            return None;
        }
        let waiting: Vec<_> = self.sources.iter().filter(|source| !source.synced).map(describe).collect();
        Some(match waiting.is_empty() {
            true => "the first snapshot is not live yet".into(),
            false => format!("waiting for the first list of {}", waiting.join(", ")),
        })
    }

    /// How many findings there are of each severity.
    pub fn counts(&self) -> [(Severity, usize); 3] {
        [Severity::Error, Severity::Warning, Severity::Info].map(|severity| {
            (severity, self.diagnostics.iter().filter(|found| found.severity == severity).count())
        })
    }
}

fn describe(source: &SourceStatus) -> String {
    match &source.last_error {
        Some(error) => format!("{} ({error})", source.name),
        None => source.name.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(name: &'static str, synced: bool, last_error: Option<&str>) -> SourceStatus {
        let last_error = last_error.map(Into::into);
        SourceStatus { name: name.into(), synced, since: 0, last_error, stale_since: None }
    }

    #[test]
    fn the_reason_names_what_is_waited_for() {
        let sources = vec![
            source("directory", true, None),
            source("Secrets", false, Some("forbidden")),
            source("Ingresses", false, None),
        ];
        let mut view = View { sources, ..View::default() };
        assert_eq!(
            view.unready().as_deref(),
            Some("waiting for the first list of Secrets (forbidden), Ingresses")
        );
        view.sources.clear();
        assert_eq!(view.unready().as_deref(), Some("the first snapshot is not live yet"));
        view.ready = true;
        assert_eq!(view.unready(), None);
        view.draining = true;
        assert_eq!(view.unready().as_deref(), Some("draining"));
    }
}
