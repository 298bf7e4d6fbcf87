//! Which file each object was read from, so that whatever is found out about it later can say where to repair
//! it. Kept beside the store by whoever applies batches; only the directory source has files.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::diagnostics::{Diagnostic, ObjectRef};

/// An object and the file that defines it from now on; `None` when none does any more.
pub type Origin = (ObjectRef, Option<Arc<PathBuf>>);

/// The files of all objects.
#[derive(Debug, Default)]
pub struct Origins(HashMap<ObjectRef, Arc<PathBuf>>);

impl Origins {
    pub fn apply(&mut self, (object, file): Origin) {
        match file {
            Some(file) => drop(self.0.insert(object, file)),
            None => drop(self.0.remove(&object)),
        }
    }

    /// The diagnostic with its object's file, where it names none itself.
    pub fn locate(&self, mut diagnostic: Diagnostic) -> Diagnostic {
        if diagnostic.file.is_none()
            && let Some(object) = &diagnostic.object
        {
            diagnostic.file = self.0.get(object).cloned();
        }
        diagnostic
    }
}
