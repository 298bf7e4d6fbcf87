//! Where objects come from. Each source is a task on the control runtime that sends [`Batch`]es; whoever
//! owns the store applies them. Nothing ever flows back into a source.

pub mod directory;
pub mod ocsp;
pub mod origins;

use std::path::PathBuf;
use std::sync::Arc;

use crate::diagnostics::Diagnostic;
use crate::store::Event;
use origins::Origin;

/// One consistent revision: everything in it is applied before the next compile.
#[derive(Debug, Default)]
pub struct Batch {
    /// Only what differs from what the source sent before.
    pub events: Vec<Event>,
    /// Objects that are defined by another file than before, with a source that reads files.
    pub origins: Vec<Origin>,
    /// What is now wrong with these files; takes the place of what was said about them before.
    pub findings: Vec<FileFindings>,
    /// The source has listed everything once. True in its first batch and from then on.
    pub synced: bool,
}

/// All findings of one file; empty when a fault was repaired or the file is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFindings {
    pub file: Arc<PathBuf>,
    pub diagnostics: Vec<Diagnostic>,
}
