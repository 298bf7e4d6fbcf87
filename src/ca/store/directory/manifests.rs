//! What the folders of manifests say. A file that cannot be read stays what it was when it last could be: a fault in one
//! file takes nothing away and holds nothing up.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::{StoreError, list, malformed, read};
use crate::ca::store::documents::Documents;

pub struct Manifests {
    folders: Vec<PathBuf>,
    known: Mutex<BTreeMap<PathBuf, Known>>,
}

/// What is known of a file.
#[derive(Default)]
struct Known {
    /// Its last good version.
    good: Option<Arc<Documents>>,
    /// What is wrong with the present one: said when it begins, and not whenever it is read.
    fault: Option<StoreError>,
}

impl Manifests {
    pub fn new(folders: Vec<PathBuf>) -> Self {
        Self { folders, known: Mutex::default() }
    }

    pub fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    /// What all files say, and why that is not everything where a file was never readable.
    pub fn read(&self) -> Result<(Documents, Option<StoreError>), StoreError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *known);
        let (mut all, mut unread) = (Documents::default(), None);
        for folder in &self.folders {
            for path in list(folder)?.into_iter().filter(|path| is_manifest(path)) {
                let mut file = before.remove(&path).unwrap_or_default();
                match documents(&path) {
                    Ok(None) => continue,
                    Ok(Some(documents)) => file = Known { good: Some(Arc::new(documents)), fault: None },
                    Err(fault) => {
                        if file.fault.as_ref() != Some(&fault) {
                            tracing::warn!(%fault, "the manifest counts as it was when it could be read last");
                        }
                        file.fault = Some(fault);
                    }
                }
                match &file.good {
                    Some(documents) => all.extend(documents),
                    None => unread = file.fault.clone(),
                }
                known.insert(path, file);
            }
        }
        Ok((all, unread))
    }
}

fn documents(path: &Path) -> Result<Option<Documents>, StoreError> {
    let Some(bytes) = read(path)? else { return Ok(None) };
    let mut documents = Documents::default();
    documents.add(&bytes).map_err(|reason| malformed(path, reason))?;
    Ok(Some(documents))
}

pub fn is_manifest(path: &Path) -> bool {
    let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    let known =
        |extension: &std::ffi::OsStr| extension == "yaml" || extension == "yml" || extension == "json";
    !hidden && path.is_file() && path.extension().is_some_and(known)
}
