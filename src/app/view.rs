//! What the admin port, `status` and Events are told: findings of all kinds and how the parts of the gateway are doing,
//! put together anew whenever something of it has changed.

use std::sync::Arc;

use super::{Control, config_map};
use crate::admin::view::View;
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
            next.last_crash.clone_from(&status.last_crash);
            next.supervisor = status.supervisor;
            next.generations = status.generations.clone();
            *view = Arc::new(next);
        });
        self.handover.status = status;
    }

    pub(super) fn publish_view(&mut self) {
        let mut others = self.edits.findings(config_map::name(&self.settings), &self.handover.wanted);
        others.extend(self.ca.as_ref().and_then(|ca| ca.problem().borrow().clone()).map(ca_is_down));
        others.extend(self.outbox.iter().flat_map(Outbox::findings));
        self.findings.update(&self.compiled.report, &self.sources, others);
        let diagnostics = self.findings.all().clone();
        if let Some(outbox) = &self.outbox {
            outbox.diagnosed(&diagnostics);
        }
        let view = Arc::new(View {
            ready: self.workers.running() && !self.draining,
            draining: self.draining,
            pending_restart: self.edits.pending.clone(),
            changes: self.changes,
            last_restart_error: self.handover.status.last_restart_error.clone(),
            last_crash: self.handover.status.last_crash.clone(),
            supervisor: self.handover.status.supervisor,
            generations: self.handover.status.generations.clone(),
            settings: self.edits.status(),
            started: self.started,
            pod: self.pod.pod(),
            diagnostics,
            leader: self.outbox.as_ref().map(Outbox::is_leader),
            sources: self.sources.status(self.settings.source.as_str()),
        });
        self.handover.tell_waiting(view.unready());
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
