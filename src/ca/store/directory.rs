//! The store on one machine: manifests as JSON files under a state directory, which `kubectl apply -f` would take.
//!
//! ```text
//! DIR/secrets/NAMESPACE/NAME.json      0600, folders 0700
//! DIR/configmaps/NAMESPACE/NAME.json
//! ```
//!
//! A file is written beside its place, synced and then linked (create) or renamed (replace), so a reader sees an
//! old or a new object, never half of one. A file that somebody else broke is as one with nothing in it where the CA
//! can make its content anew, and keeps no other from being read. Accounts and namespaces are read from the folders of
//! [`manifests`]. A service calls [`Directory::follow`]: then the file system tells of changes, and nothing is looked at
//! while nothing changes.

mod manifests;
mod watches;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256, digest};
use zeroize::Zeroizing;

use self::manifests::Manifests;
use self::watches::Watches;
use super::{
    Accounts, ConfigMap, IngressHosts, Namespace, Revision, Secret, Store, StoreError, Version, documents,
};
use crate::ca::certificate::hex;
use crate::ca::{accounts, hosts};
use crate::store::objects::ObjectName;

/// Largest file that is read, in bytes: what the API server takes for one object, and a little more.
const MAX_FILE_BYTES: u64 = 2 * 1024 * 1024;

/// A draft so old is left from a process that died: writing one takes no more than seconds.
const DRAFT_IS_LEFT: Duration = Duration::from_secs(3600);

/// Objects in files.
#[derive(Clone)]
pub struct Directory {
    state: PathBuf,
    manifests: Arc<Manifests>,
    watches: Option<Arc<Watches>>,
}

impl Directory {
    /// `state` holds what the CA writes; accounts and namespaces come from the folders `manifests`.
    /// Nothing is touched before the first operation.
    pub fn new(state: impl Into<PathBuf>, manifests: Vec<PathBuf>) -> Self {
        Self { state: state.into(), manifests: Arc::new(Manifests::new(manifests)), watches: None }
    }

    /// Has the file system tell of changes from now on. Where it cannot, every revision is a look at all files.
    pub fn follow(mut self) -> Self {
        let own = self.make_own_folders();
        match Watches::new(&own, self.manifests.folders()) {
            Ok(watches) => self.watches = Some(Arc::new(watches)),
            Err(error) => tracing::warn!(%error, "folders cannot be watched, they are read all the time"),
        }
        self
    }

    /// The folders that hold what the CA writes, for whoever follows them; made where they are missing, and cleared of
    /// drafts that were left, which may hold keys that are in use nowhere else any more.
    pub fn make_own_folders(&self) -> [PathBuf; 2] {
        let own = [Kind::Secret, Kind::ConfigMap].map(|kind| self.state.join(kind.folder()));
        for folder in &own {
            if let Err(error) = create_folder(folder) {
                tracing::warn!(folder = %folder.display(), %error, "the folder cannot be made");
            }
            let namespaces = list(folder).unwrap_or_default();
            let files = namespaces.iter().flat_map(|namespace| list(namespace).unwrap_or_default());
            files.filter(|path| is_left_draft(path)).for_each(|path| drop(fs::remove_file(path)));
        }
        own
    }

    fn path(&self, kind: Kind, name: &ObjectName) -> Result<PathBuf, StoreError> {
        let (namespace, name) = (file_name(&name.namespace)?, file_name(&name.name)?);
        Ok(self.state.join(kind.folder()).join(namespace).join(format!("{name}.json")))
    }

    /// All objects of a kind. Each has the name of its place, whatever it says itself. What cannot be read is what
    /// `unreadable` makes of its name, or left out.
    fn read_all<T>(
        &self,
        kind: Kind,
        parse: impl Fn(&[u8], ObjectName) -> Result<T, String>,
        unreadable: impl Fn(ObjectName, Version) -> Option<T>,
    ) -> Result<Vec<T>, StoreError> {
        let mut all = Vec::new();
        for namespace in list(&self.state.join(kind.folder()))? {
            for path in list(&namespace)?.into_iter().filter(|path| is_object_file(path)) {
                let Some(name) = name_of(&path) else { continue };
                let (version, parsed) = match read(&path) {
                    Ok(None) => continue,
                    Ok(Some(bytes)) => {
                        let parsed = parse(&bytes, name.clone()).map_err(|reason| malformed(&path, reason));
                        (version_of(&bytes), parsed)
                    }
                    // No content has this version: a write finds out what is wrong.
                    Err(error) => (Version(String::new()), Err(error)),
                };
                match parsed {
                    Ok(object) => all.push(object),
                    Err(error) => {
                        if let Some(object) = unreadable(name, version) {
                            tracing::warn!(%error, "the file is taken for one with nothing in it");
                            all.push(object);
                        }
                    }
                }
            }
        }
        Ok(all)
    }

    /// Writes on a thread of its own: syncing takes long, and many files synced at once take hardly longer.
    async fn write_aside(
        &self,
        kind: Kind,
        name: &ObjectName,
        version: Option<&Version>,
        content: Zeroizing<String>,
    ) -> Result<(), StoreError> {
        let (this, name, version) = (self.clone(), name.clone(), version.cloned());
        let write = move || this.write(kind, &name, version.as_ref(), content.as_bytes());
        let panicked = |_| Err(StoreError::Unavailable("writing was cut off".to_owned()));
        tokio::task::spawn_blocking(write).await.unwrap_or_else(panicked)
    }

    fn write(
        &self,
        kind: Kind,
        name: &ObjectName,
        version: Option<&Version>,
        content: &[u8],
    ) -> Result<(), StoreError> {
        let path = self.path(kind, name)?;
        let folder = path.parent().unwrap_or(&self.state);
        create_folder(folder).map_err(|error| failed(folder, &error))?;
        let draft = Draft::write(folder, content).map_err(|error| failed(folder, &error))?;
        match version {
            None => match fs::hard_link(&draft.path, &path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    return Err(StoreError::AlreadyExists(name.clone()));
                }
                other => other.map_err(|error| failed(&path, &error))?,
            },
            Some(version) => {
                // Compare and rename are one step for everyone who takes the lock.
                let _lock = self.lock()?;
                if read(&path)?.is_none_or(|current| version_of(&current) != *version) {
                    return Err(StoreError::Conflict(name.clone()));
                }
                fs::rename(&draft.path, &path).map_err(|error| failed(&path, &error))?;
            }
        }
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| failed(folder, &error))
    }

    fn lock(&self) -> Result<File, StoreError> {
        let path = self.state.join(".lock");
        let open = || OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
        open().and_then(|file| file.lock().map(|()| file)).map_err(|error| failed(&path, &error))
    }

    /// A hash over names, inodes, sizes and times of all files. What we write ourselves gets a new inode each time.
    fn scan(&self) -> Result<Revision, StoreError> {
        let mut hash = Context::new(&SHA256);
        for kind in [Kind::Secret, Kind::ConfigMap] {
            for namespace in list(&self.state.join(kind.folder()))? {
                list(&namespace)?
                    .iter()
                    .filter(|path| is_object_file(path))
                    .for_each(|path| stamp(path, &mut hash));
            }
        }
        for folder in self.manifests.folders() {
            list(folder)?
                .iter()
                .filter(|path| manifests::is_manifest(path))
                .for_each(|path| stamp(path, &mut hash));
        }
        Ok(Revision(hex(hash.finish().as_ref())))
    }
}

impl Store for Directory {
    async fn revision(&self) -> Result<Revision, StoreError> {
        match &self.watches {
            Some(watches) => watches.revision(|| self.scan()),
            None => self.scan(),
        }
    }

    async fn changed(&self, since: &Revision) {
        match &self.watches {
            Some(watches) => watches.changed(since).await,
            None => std::future::pending().await,
        }
    }

    async fn secret(&self, name: &ObjectName) -> Result<Option<Secret>, StoreError> {
        let path = self.path(Kind::Secret, name)?;
        let Some(bytes) = read(&path)? else { return Ok(None) };
        parse_secret(&bytes, name.clone()).map(Some).map_err(|reason| malformed(&path, reason))
    }

    async fn secrets(&self, kind: &str) -> Result<Vec<Secret>, StoreError> {
        let of_account = |name: &ObjectName| accounts::account_name(name).is_some();
        let unreadable = |name, version| {
            let ours = kind == accounts::SECRET_TYPE && of_account(&name);
            ours.then(|| Secret { version: Some(version), ..Secret::new(name, kind) })
        };
        let mut all = self.read_all(Kind::Secret, parse_secret, unreadable)?;
        all.retain(|secret| secret.kind == kind);
        Ok(all)
    }

    async fn write_secret(&self, secret: &Secret) -> Result<(), StoreError> {
        let content = documents::encode_secret(secret);
        self.write_aside(Kind::Secret, &secret.name, secret.version.as_ref(), content).await
    }

    async fn delete_secret(&self, secret: &Secret) -> Result<(), StoreError> {
        let path = self.path(Kind::Secret, &secret.name)?;
        let _lock = self.lock()?;
        match read(&path)? {
            None => Ok(()),
            Some(current) if secret.version.as_ref() != Some(&version_of(&current)) => {
                Err(StoreError::Conflict(secret.name.clone()))
            }
            Some(_) => fs::remove_file(&path).map_err(|error| failed(&path, &error)),
        }
    }

    async fn config_maps(&self, name: &str) -> Result<Vec<ConfigMap>, StoreError> {
        let unreadable = |found: ObjectName, version| {
            let (labels, data) = (BTreeMap::new(), BTreeMap::new());
            (*found.name == *name).then_some(ConfigMap { name: found, labels, data, version: Some(version) })
        };
        let mut all = self.read_all(Kind::ConfigMap, parse_config_map, unreadable)?;
        all.retain(|map| &*map.name.name == name);
        Ok(all)
    }

    async fn write_config_map(&self, map: &ConfigMap) -> Result<(), StoreError> {
        let content = documents::encode_config_map(map);
        self.write_aside(Kind::ConfigMap, &map.name, map.version.as_ref(), content).await
    }

    async fn accounts(&self) -> Result<Accounts, StoreError> {
        let (documents, unread) = self.manifests.read()?;
        let complete = unread.is_none();
        Ok(Accounts { list: documents.accounts.into_iter().collect(), complete })
    }

    /// All or an error: the one that is missing may have claimed a host first.
    async fn ingresses(&self) -> Result<Vec<IngressHosts>, StoreError> {
        let (mut documents, unread) = self.manifests.read()?;
        if let Some(error) = unread {
            return Err(error);
        }
        for ingress in &mut documents.ingresses {
            ingress.requests.retain(|request| !documents.secrets.contains(&request.secret));
        }
        Ok(documents.ingresses)
    }

    async fn issued_secrets(&self) -> Result<Vec<Secret>, StoreError> {
        let mut all = self.read_all(Kind::Secret, parse_secret, |_, _| None)?;
        all.retain(hosts::is_ours);
        Ok(all)
    }

    async fn namespaces(&self) -> Result<Vec<Namespace>, StoreError> {
        let (documents, _) = self.manifests.read()?;
        let mut all: BTreeMap<String, Namespace> = BTreeMap::new();
        // A namespace exists on one machine as soon as something is in it: an account, or a Secret such as the root.
        let folders = list(&self.state.join(Kind::Secret.folder()))?;
        let of_secrets = folders.iter().filter_map(|folder| Some(folder.file_name()?.to_str()?.to_owned()));
        let of_accounts = documents.accounts.iter().map(|account| account.name.namespace.to_string());
        for name in of_secrets.chain(of_accounts) {
            all.insert(name.clone(), Namespace { name, labels: BTreeMap::new(), terminating: false });
        }
        all.extend(documents.namespaces.into_iter().map(|namespace| (namespace.name.clone(), namespace)));
        Ok(all.into_values().collect())
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Secret,
    ConfigMap,
}

impl Kind {
    fn folder(self) -> &'static str {
        match self {
            Self::Secret => "secrets",
            Self::ConfigMap => "configmaps",
        }
    }
}

/// A complete file that is not yet in its place; removed again when it goes out of scope.
struct Draft {
    path: PathBuf,
}

impl Draft {
    fn write(folder: &Path, content: &[u8]) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let draft = Self { path: folder.join(format!(".draft-{}-{number}", std::process::id())) };
        // A draft of the same name can only be left from a process that died.
        let _ = fs::remove_file(&draft.path);
        let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&draft.path)?;
        file.write_all(content)?;
        file.sync_all()?;
        Ok(draft)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// A name that is safe as one part of a path: what Kubernetes allows for names.
fn file_name(name: &str) -> Result<&str, StoreError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let fits = !name.is_empty() && !name.starts_with('.') && name.len() <= 240 && name.bytes().all(allowed);
    let reason = "not a name of letters, digits, '-', '_' and '.'";
    let error = || StoreError::Malformed { object: format!("name {name:?}"), reason: reason.to_owned() };
    fits.then_some(name).ok_or_else(error)
}

/// The name of the object whose place this is.
fn name_of(path: &Path) -> Option<ObjectName> {
    let namespace = path.parent()?.file_name()?.to_str()?;
    Some(ObjectName::new(namespace, path.file_stem()?.to_str()?))
}

fn is_left_draft(path: &Path) -> bool {
    let is_draft = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".draft-"));
    let written = || fs::symlink_metadata(path).and_then(|found| found.modified()).ok();
    let age = || written().and_then(|written| written.elapsed().ok());
    is_draft && age().is_some_and(|age| age >= DRAFT_IS_LEFT)
}

fn is_object_file(path: &Path) -> bool {
    let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    !hidden && path.extension().is_some_and(|extension| extension == "json")
}

fn create_folder(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn list(folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        other => other.map_err(|error| failed(folder, &error))?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry.map_err(|error| failed(folder, &error))?.path());
    }
    paths.sort();
    Ok(paths)
}

/// Adds what changes with a file to `hash`; one that vanishes meanwhile adds nothing, which is a change as well.
fn stamp(path: &Path, hash: &mut Context) {
    let Ok(found) = fs::metadata(path) else { return };
    hash.update(path.as_os_str().as_encoded_bytes());
    for number in [found.ino(), found.size()] {
        hash.update(&number.to_le_bytes());
    }
    for number in [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()] {
        hash.update(&number.to_le_bytes());
    }
}

fn read(path: &Path) -> Result<Option<Zeroizing<Vec<u8>>>, StoreError> {
    let size = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|error| failed(path, &error))?.len(),
    };
    if size > MAX_FILE_BYTES {
        return Err(malformed(path, format!("it has {size} bytes, more than the {MAX_FILE_BYTES} allowed")));
    }
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Zeroizing::new).map(Some).map_err(|error| failed(path, &error)),
    }
}

fn parse_secret(content: &[u8], name: ObjectName) -> Result<Secret, String> {
    let secret = documents::secret(&documents::parse(content, "Secret")?, version_of(content))?;
    Ok(Secret { name, ..secret })
}

fn parse_config_map(content: &[u8], name: ObjectName) -> Result<ConfigMap, String> {
    let map = documents::config_map(&documents::parse(content, "ConfigMap")?, version_of(content))?;
    Ok(ConfigMap { name, ..map })
}

fn version_of(content: &[u8]) -> Version {
    Version(hex(digest(&SHA256, content).as_ref()))
}

fn failed(path: &Path, error: &io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::PermissionDenied => StoreError::Forbidden(path.display().to_string()),
        _ => StoreError::Unavailable(format!("{}: {error}", path.display())),
    }
}

fn malformed(path: &Path, reason: String) -> StoreError {
    StoreError::Malformed { object: path.display().to_string(), reason }
}

#[cfg(test)]
mod tests;
