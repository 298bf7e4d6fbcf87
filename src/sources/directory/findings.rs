//! Findings of files: kept within bounds, and told where they are others than before.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::content::file_error;
use crate::diagnostics::{Diagnostic, Severity};
use crate::sources::FileFindings;

/// Findings kept of one file: a hostile one can be wrong in a million places, and the first ones tell the story.
pub const MOST: usize = 200;

/// The first findings of a file, and how many more there are.
#[derive(Default)]
pub struct Capped {
    list: Vec<Diagnostic>,
    more: usize,
    /// The worst of those that are left out.
    worst: Option<Severity>,
}

impl Capped {
    pub fn push(&mut self, finding: Diagnostic) {
        if self.list.len() < MOST {
            return self.list.push(finding);
        }
        self.more += 1;
        self.worst = self.worst.max(Some(finding.severity));
    }

    pub fn into_list(mut self) -> Vec<Diagnostic> {
        if let Some(severity) = self.worst {
            let message = format!("and {} more findings in this file", self.more);
            self.list.push(Diagnostic { severity, ..file_error("MoreFindings", message) });
        }
        self.list
    }
}

impl Extend<Diagnostic> for Capped {
    fn extend<T: IntoIterator<Item = Diagnostic>>(&mut self, findings: T) {
        findings.into_iter().for_each(|finding| self.push(finding));
    }
}

/// What was told about each file last.
#[derive(Default)]
pub struct Told(HashMap<PathBuf, Vec<Diagnostic>>);

impl Told {
    pub fn contains(&self, path: &Path) -> bool {
        self.0.contains_key(path)
    }

    /// What is to be told: `None` where nothing has changed.
    pub fn tell(&mut self, path: PathBuf, mut diagnostics: Vec<Diagnostic>) -> Option<FileFindings> {
        let file = Arc::new(path);
        for diagnostic in &mut diagnostics {
            diagnostic.file = Some(file.clone());
        }
        let before = match diagnostics.is_empty() {
            true => self.0.remove(&*file),
            false => self.0.insert(file.to_path_buf(), diagnostics.clone()),
        };
        (before.unwrap_or_default() != diagnostics).then_some(FileFindings { file, diagnostics })
    }
}
