//! What there is to say about edits of the settings: what waits for a restart and why, why the last edit was refused,
//! and lines in the log for what has changed.

use std::path::PathBuf;
use std::sync::Arc;

use crate::diagnostics::{Diagnostic, ObjectRef, Severity};
use crate::settings::field::display;
use crate::settings::load::Notice;
use crate::settings::{Change, Class};
use crate::store::objects::{Kind, ObjectName};

/// Where the settings of this gateway are edited.
#[derive(Clone, Copy)]
pub(super) struct Edited<'a> {
    /// The ConfigMap, in a cluster.
    pub config_map: Option<&'a ObjectName>,
    /// The settings file.
    pub file: Option<&'a Arc<PathBuf>>,
}

impl Edited<'_> {
    /// Findings about the ConfigMap, where there is one, else about the file.
    pub fn findings(self, pending: &[Change], rejected: Option<&str>) -> Vec<Diagnostic> {
        let finding = |severity, field: &str, reason, message| Diagnostic {
            severity,
            file: self.file.filter(|_| self.config_map.is_none()).cloned(),
            object: self.config_map.map(|name| ObjectRef::new(Kind::ConfigMap, name)),
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
        let refused = rejected.map(|error| {
            let message = format!("the edit is refused and the last good settings stay: {error}");
            finding(Severity::Error, "", "SettingsRejected", message)
        });
        pending.iter().filter_map(waits).chain(refused).collect()
    }
}

/// Logs what applies from now on. What waits for a new generation is a finding, and logged as one.
pub(super) fn log_changes(changes: &[Change]) {
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

    fn findings(edited: Edited<'_>) -> Vec<String> {
        let before = Settings::default();
        let after = Settings { https_port: 9443, hsts: false, ..Settings::default() };
        let found = edited.findings(&before.diff(&after), Some("hsts: \"maybe\" is not true or false"));
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn findings_say_what_waits_and_what_was_refused() {
        let name = ObjectName::new("ingress", "settings");
        let file = Arc::new(PathBuf::from("settings.yaml"));
        assert_eq!(
            findings(Edited { config_map: Some(&name), file: Some(&file) }),
            [
                "ConfigMap ingress/settings: https-port: the change from \"8443\" to \"9443\" waits for a new \
                 worker generation: listeners are opened before workers start (RestartPending)",
                "ConfigMap ingress/settings: the edit is refused and the last good settings stay: hsts: \
                 \"maybe\" is not true or false (SettingsRejected)",
            ]
        );
        let about_the_file = findings(Edited { config_map: None, file: Some(&file) });
        assert!(about_the_file[0].starts_with("settings.yaml: https-port: "), "{about_the_file:?}");
        assert!(about_the_file[1].starts_with("settings.yaml: the edit is refused"), "{about_the_file:?}");
        assert!(Edited { config_map: Some(&name), file: None }.findings(&[], None).is_empty());
    }
}
