//! Edits of the settings: what applies at once is applied, and there is something to say about the rest: what waits for
//! a restart and why, why the last edit was refused.

use std::path::PathBuf;
use std::sync::Arc;

use super::Control;
use crate::admin::view::{PendingRestart, SettingsStatus};
use crate::clock::now;
use crate::diagnostics::{Diagnostic, ObjectRef, Severity};
use crate::settings::field::display;
use crate::settings::load::Notice;
use crate::settings::reload::{Applied, Reload};
use crate::settings::{Change, Class};
use crate::sources::mesh_files::MeshPaths;
use crate::store::objects::{Kind, ObjectName};

/// What is known of edits of the settings.
pub(super) struct Edits {
    /// The settings file, where there is one.
    pub file: Option<Arc<PathBuf>>,
    /// When settings were last taken over, in seconds since the Unix epoch.
    loaded: i64,
    /// What waits for another generation.
    pub pending: Vec<PendingRestart>,
    /// Why the last edit was refused.
    pub rejected: Option<String>,
}

impl Edits {
    pub fn new(now: i64) -> Self {
        Self { file: None, loaded: now, pending: Vec::new(), rejected: None }
    }

    /// An edit has been taken over, but for what is `pending`.
    pub fn taken(&mut self, pending: &[Change], now: i64) {
        self.loaded = now;
        self.pending = pending.iter().map(PendingRestart::from).collect();
        self.rejected = None;
    }

    /// How settings are doing, as the admin port shows it.
    pub fn status(&self) -> SettingsStatus {
        SettingsStatus { loaded: self.loaded, error: self.rejected.clone() }
    }

    /// Findings about `config_map`, where there is one, else about the file. `pending` are the changes that another
    /// generation is wanted for.
    pub fn findings(&self, config_map: Option<&ObjectName>, pending: &[Change]) -> Vec<Diagnostic> {
        let finding = |severity, field: &str, reason, message| Diagnostic {
            severity,
            file: self.file.as_ref().filter(|_| config_map.is_none()).cloned(),
            object: config_map.map(|name| ObjectRef::new(Kind::ConfigMap, name)),
            field: field.to_owned(),
            reason,
            message,
        };
        let waits = |change: &Change| {
            let why = match change.class {
                Class::Restart(reason) => reason,
                Class::Dynamic => return None,
            };
            let (old, new) = (display(&change.old), display(&change.new));
            let message =
                format!("the change from {old:?} to {new:?} waits for a new worker generation: {why}");
            Some(finding(Severity::Warning, change.key, "RestartPending", message))
        };
        let refused = self.rejected.as_ref().map(|error| {
            let message = format!("the edit is refused and the last good settings stay: {error}");
            finding(Severity::Error, "", "SettingsRejected", message)
        });
        pending.iter().filter_map(waits).chain(refused).collect()
    }
}

impl Control {
    pub(super) fn reload(&mut self, reload: Reload) {
        match reload {
            Reload::Applied(Applied { settings, changes, pending, notices }) => {
                log_changes(&changes);
                log_notices(&notices);
                self.changes.add(&changes);
                // Before anything is said that a new generation may be started for.
                self.note_published();
                self.edits.taken(&pending, now());
                self.logging.set(&settings);
                self.handover.tell_settings(&settings);
                self.handover.tell_pending(&pending, settings.restart);
                self.tickets.set_lifetime(settings.ssl_session_timeout);
                self.stapler.set(&settings);
                self.mesh_paths.send_replace(MeshPaths::of(&settings));
                self.settings_sender.send_replace(settings.clone());
                self.settings = settings;
                self.compile();
            }
            Reload::Rejected(error) => {
                self.edits.rejected = Some(error.to_string());
                self.changes.rejected += 1;
                self.note_published();
                self.publish_view();
            }
        }
    }
}

/// Logs what applies from now on. What waits for a new generation is a finding, and logged as one.
fn log_changes(changes: &[Change]) {
    for change in changes.iter().filter(|change| change.class == Class::Dynamic) {
        let (old, new) = (display(&change.old), display(&change.new));
        tracing::info!(key = change.key, old, new, "setting changed");
    }
}

pub(super) fn log_notices(notices: &[Notice]) {
    for notice in notices {
        tracing::warn!(key = notice.key, origin = %notice.origin, "{}", notice.message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    fn findings(edits: &Edits, config_map: Option<&ObjectName>) -> Vec<String> {
        let before = Settings::default();
        let after = Settings { https_port: 9443, hsts: false, ..Settings::default() };
        edits.findings(config_map, &before.diff(&after)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn findings_say_what_waits_and_what_was_refused() {
        let name = ObjectName::new("ingress", "settings");
        let edits = Edits {
            file: Some(Arc::new(PathBuf::from("settings.yaml"))),
            rejected: Some("hsts: \"maybe\" is not true or false".to_owned()),
            ..Edits::new(0)
        };
        assert_eq!(
            findings(&edits, Some(&name)),
            [
                "ConfigMap ingress/settings: https-port: the change from \"8443\" to \"9443\" waits for a new \
                 worker generation: listeners are opened before workers start (RestartPending)",
                "ConfigMap ingress/settings: the edit is refused and the last good settings stay: hsts: \
                 \"maybe\" is not true or false (SettingsRejected)",
            ]
        );
        let about_the_file = findings(&edits, None);
        assert!(about_the_file[0].starts_with("settings.yaml: https-port: "), "{about_the_file:?}");
        assert!(about_the_file[1].starts_with("settings.yaml: the edit is refused"), "{about_the_file:?}");
        assert!(Edits::new(0).findings(Some(&name), &[]).is_empty());
    }
}
