//! Which file each object was read from, so that whatever is found out about it later can say where to repair
//! it. Kept beside the store by whoever applies batches; only the directory source has files.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::directory;
use crate::diagnostics::{Diagnostic, ObjectRef};
use crate::store::objects::PairFields;
use crate::tls::keys::Part;

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

    /// The diagnostic with its object's file, where it names none itself. Of a PEM pair it is the one that the field
    /// is in.
    pub fn locate(&self, mut diagnostic: Diagnostic) -> Diagnostic {
        if diagnostic.file.is_none()
            && let Some(object) = &diagnostic.object
            && let Some(file) = self.0.get(object)
        {
            let key =
                directory::key_of(file).filter(|_| diagnostic.field == PairFields::default().of(Part::Key));
            diagnostic.file = Some(key.map_or_else(|| file.clone(), Arc::new));
        }
        diagnostic
    }
}
