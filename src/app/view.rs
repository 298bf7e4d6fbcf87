//! What the admin port, `status` and Events are told: findings of all kinds and how the parts of the gateway are doing,
//! put together anew whenever something of it has changed.

use std::sync::Arc;

use super::{Control, config_map};
use crate::admin::view::{SettingsStatus, View};
use crate::diagnostics::{Diagnostic, Severity};
use crate::sources::kubernetes;
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
        let compiled = self.compiled.report.all().cloned().map(|finding| self.sources.locate(finding));
        let config_map = config_map::name(&self.settings).into_iter();
        let settings = config_map
            .flat_map(|name| config_map::findings(name, &self.succession.wanted, self.rejected.as_deref()));
        let ca = self.ca.as_ref().and_then(|ca| ca.problem().borrow().clone()).map(ca_is_down);
        let written = self.outbox.iter().flat_map(Outbox::findings);
        let mut diagnostics: Vec<_> =
            self.sources.findings().chain(compiled).chain(settings).chain(ca).chain(written).collect();
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
            sources: self.sources.status(self.settings.source.as_str()),
            ..View::default()
        });
        self.succession.tell_waiting(view.unready());
        self.view.send_replace(view);
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
