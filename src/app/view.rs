//! What the admin port, `status` and Events are told: findings of all kinds and how the parts of the gateway are doing,
//! put together anew whenever something of it has changed.

use std::sync::Arc;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{Control, config_map};
use crate::admin::view::{SettingsStatus, SourceStatus, View};
use crate::diagnostics::{Diagnostic, Severity};
use crate::sources::{WatchState, kubernetes};
use crate::status::Outbox;
use crate::supervisor::messages::Status;

impl Control {
    /// As the supervisor told them. The rest of the view stays as it is: there may be thousands of findings.
    pub(super) fn publish_generations(&mut self, status: Status) {
        if status.generations.len() == 1
            && self.kept_objects().is_none()
            && let Some(state_dir) = &self.settings.state_dir
        {
            // Now that no generation is left that may have kept some.
            kubernetes::forget(&config_map::objects_folder(state_dir));
        }
        self.view.send_modify(|view| {
            let mut next = View::clone(view);
            next.last_restart_error.clone_from(&status.last_restart_error);
            next.supervisor = status.supervisor;
            next.generations = status.generations.clone();
            *view = Arc::new(next);
        });
        self.succession.status = status;
    }

    pub(super) fn publish_view(&mut self) {
        let decoding = self.findings.values().chain(self.object_findings.values()).flatten().cloned();
        let compiled = self.compiled.report.all().cloned().map(|finding| self.origins.locate(finding));
        let watches = self.watches.values().filter_map(not_watched);
        let config_map = config_map::name(&self.settings).into_iter();
        let settings = config_map
            .flat_map(|name| config_map::findings(name, &self.succession.wanted, self.rejected.as_deref()));
        let ca = self.ca.as_ref().and_then(|ca| ca.problem().borrow().clone()).map(ca_is_down);
        let mut diagnostics: Vec<_> =
            decoding.chain(compiled).chain(watches).chain(settings).chain(ca).collect();
        diagnostics.sort();
        // What is wrong with a pair is found where it is read and where it is used.
        diagnostics.dedup();
        let diagnostics: Arc<[Diagnostic]> = diagnostics.into();
        if let Some(outbox) = &self.outbox {
            outbox.diagnosed(&diagnostics);
        }
        let view = Arc::new(View {
            ready: self.workers.running() && !self.draining,
            draining: self.draining,
            pending_restart: self.pending.clone(),
            changes: self.changes,
            last_restart_error: self.succession.status.last_restart_error.clone(),
            supervisor: self.succession.status.supervisor,
            generations: self.succession.status.generations.clone(),
            settings: SettingsStatus { loaded: self.loaded, error: self.rejected.clone() },
            started: self.started,
            diagnostics,
            leader: self.outbox.as_ref().map(Outbox::is_leader),
            sources: self.source_status(),
            ..View::default()
        });
        self.succession.tell_waiting(view.unready());
        self.view.send_replace(view);
    }

    fn source_status(&self) -> Vec<SourceStatus> {
        if self.watches.is_empty() {
            let name = self.settings.source.as_str().into();
            return vec![SourceStatus {
                name,
                synced: self.synced,
                since: self.synced_since,
                last_error: None,
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

fn ca_is_down(problem: String) -> Diagnostic {
    Diagnostic {
        severity: Severity::Error,
        file: None,
        object: None,
        field: String::new(),
        reason: "WorkloadCaDown",
        message: format!("The workload CA is not up: {problem}."),
    }
}

/// A watch that brings nothing is worth a word: what is served may be old.
fn not_watched(watch: &WatchState) -> Option<Diagnostic> {
    let name = &watch.name;
    let stale = watch.stale_since.and_then(|since| OffsetDateTime::from_unix_timestamp(since).ok());
    let (severity, reason, message) = match (&watch.last_error, stale) {
        (Some(error), Some(since)) => {
            let since = since.format(&Rfc3339).unwrap_or_default();
            let message = format!("{name} are served as they were kept on disk at {since}: {error}.");
            (Severity::Warning, "StaleObjects", message)
        }
        (Some(error), None) => {
            let severity = if watch.synced { Severity::Warning } else { Severity::Error };
            (severity, "NotWatched", format!("Changes to {name} do not arrive: {error}."))
        }
        (None, _) if watch.absent => {
            let message = format!("The API server has no {name}; they are followed once it has.");
            (Severity::Info, "KindNotFound", message)
        }
        (None, _) => return None,
    };
    Some(Diagnostic { severity, file: None, object: None, field: String::new(), reason, message })
}
