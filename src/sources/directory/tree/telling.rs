//! What is sent: all that has changed since the last time.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::super::content::file_error;
use super::super::findings::Capped;
use super::super::unit::Unit;
use super::{Place, Tree, object_ref};
use crate::diagnostics::{DUPLICATE, Diagnostic, Severity};
use crate::sources::{Batch, FileFindings, Health};
use crate::store::objects::quoted;

impl Tree {
    /// What changed since the last call; `None` where nothing did.
    pub fn take_batch(&mut self) -> Option<Batch> {
        let first = self.synced && !std::mem::replace(&mut self.announced, self.synced);
        let batch = Batch {
            events: std::mem::take(&mut self.events),
            origins: std::mem::take(&mut self.origins),
            findings: self.take_findings(),
            health: self.take_health(),
            synced: self.synced,
            ..Batch::default()
        };
        let Batch { events, origins, findings, health, .. } = &batch;
        let news = !events.is_empty() || !origins.is_empty() || !findings.is_empty() || health.is_some();
        (first || news).then_some(batch)
    }

    /// The findings of all files that may have changed, where they did.
    fn take_findings(&mut self) -> Vec<FileFindings> {
        let mut files: BTreeMap<PathBuf, Vec<Diagnostic>> = BTreeMap::new();
        for path in self.folders.take_dirty() {
            // A root may be one file, of which there are findings of both kinds.
            if let Some(unit) = Unit::of(&path) {
                self.dirty
                    .extend(self.roots.over(&path).map(|root| Arc::new(Place { root, unit: unit.clone() })));
            }
            files.insert(path.clone(), self.folders.findings_about(&path));
        }
        for place in std::mem::take(&mut self.dirty) {
            for file in place.unit.files() {
                files.entry(file.to_owned()).or_insert_with(|| self.folders.findings_about(file));
            }
            for finding in self.findings_of(&place) {
                let file = place.unit.file_of(&finding.field).to_owned();
                files.entry(file).or_default().push(finding);
            }
        }
        files.into_iter().filter_map(|(path, diagnostics)| self.told.tell(path, diagnostics)).collect()
    }

    fn findings_of(&self, place: &Arc<Place>) -> Vec<Diagnostic> {
        let Some(known) = self.units.get(place) else { return Vec::new() };
        let mut findings = Capped::default();
        for (id, _) in &known.objects {
            let Some(first) = self.objects.first(id).filter(|first| *first != place) else { continue };
            let message = match place.unit.key {
                Some(_) => format!(
                    "{} has the same name as a Secret and comes first: rename one",
                    first.unit.path.display()
                ),
                None => format!("{} defines it too and comes first", first.unit.path.display()),
            };
            findings.push(Diagnostic::new(Severity::Error, object_ref(id), "", DUPLICATE, message));
        }
        for unknown in known.unknown.iter().filter(|it| self.unknown.first(it) == Some(place)) {
            let (kind, api_version) = (quoted(&unknown.kind), quoted(&unknown.api_version));
            let message = format!("objects of kind {kind} ({api_version}) are not read; this is said once");
            findings.push(Diagnostic { severity: Severity::Info, ..file_error("UnknownKind", message) });
        }
        let mut all = known.findings.to_vec();
        all.extend(findings.into_list());
        all
    }

    /// How it is, where that has changed.
    fn take_health(&mut self) -> Option<Health> {
        let ill = self.roots.paths().iter().find_map(|root| {
            let problem = self.folders.why_unreadable(root)?;
            Some(Health::Ill(format!("{}: {problem}", root.display())))
        });
        let health = ill.unwrap_or_default();
        (health != self.health).then(|| {
            self.health = health.clone();
            health
        })
    }
}
