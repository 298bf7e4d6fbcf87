//! Objects as the API server sent them last, kept in the state directory: for a start while it is away.
//!
//! One file per object, `objects/<shelf>/<namespace>/<name>`, holding its JSON without what only servers need.
//! A file is replaced by rename, so that it is whole whenever the process dies, and a bad one costs no other.
//! Private keys are among them: folders have mode 0700 and files 0600. Everything here blocks on the disk;
//! `keeper` calls it from a thread where that is no matter. Nothing on disk is trusted more than an answer of
//! the API server would be: the same decoders read it.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde::{Deserialize, Serialize as SerializeDerive};
use zeroize::Zeroizing;

use crate::store::objects::{Node, ObjectName};

/// An object as it lies on disk. Wiped when dropped.
pub(super) type Text = Zeroizing<Vec<u8>>;

/// Larger files are no objects: etcd takes 1.5 MiB.
const LARGEST: u64 = 4 << 20;
/// The file that tells of which server a shelf is, and when it was last known to be complete.
const LABEL: &str = ".label";
/// The folder of objects that have no namespace.
const NO_NAMESPACE: &str = "_";

/// All that is kept.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    root: PathBuf,
    /// Which API server it is from.
    server: String,
}

/// What is kept of one target.
#[derive(Debug)]
pub(super) struct Shelf {
    path: PathBuf,
}

/// When a shelf was last known to be complete.
#[derive(Debug, PartialEq, Eq, SerializeDerive, Deserialize)]
pub(super) struct Label {
    server: String,
    /// The API server's version of the data.
    pub version: String,
    /// In seconds since the Unix epoch.
    pub confirmed: i64,
}

/// The content of a shelf.
pub(super) struct Loaded {
    pub label: Label,
    pub objects: Vec<Text>,
    /// Files that could not be read.
    pub unreadable: usize,
}

/// Deletes what is kept in `folder`, private keys among it, where that is not wanted any more.
pub fn forget(folder: &Path) {
    if let Err(error) = fs::remove_dir_all(folder)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(folder = %folder.display(), %error, "objects that were kept cannot be deleted");
    }
}

/// What is kept of an object.
pub(super) fn text_of(object: &Node<'_>) -> Text {
    // A tree of plain values, which serialises.
    Zeroizing::new(serde_json::to_vec(&Reduced(object)).unwrap_or_default())
}

impl Kept {
    /// What `server` said, in `root`, which is made when something is kept.
    pub fn new(root: PathBuf, server: String) -> Self {
        Self { root, server }
    }

    pub fn shelf(&self, name: &str) -> Shelf {
        Shelf { path: self.root.join(name) }
    }

    /// The label of a shelf, if it is one of this server.
    pub fn label(&self, shelf: &Shelf) -> Option<Label> {
        let text = read(&shelf.path.join(LABEL)).ok()?;
        let label: Label = serde_json::from_slice(&text).ok()?;
        (label.server == self.server).then_some(label)
    }

    /// Makes the shelf ready to be written to. What another server said goes.
    pub fn prepare(&self, shelf: &Shelf) -> io::Result<()> {
        if self.label(shelf).is_none() {
            match fs::remove_dir_all(&shelf.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        make_folder(&shelf.path)?;
        // It may have been there before, with other rights.
        fs::set_permissions(&self.root, Permissions::from_mode(0o700))
    }

    /// Notes that the shelf is what the server has at `version`.
    pub fn confirm(&self, shelf: &Shelf, version: &str, now: i64) -> io::Result<()> {
        let label = Label { server: self.server.clone(), version: version.to_owned(), confirmed: now };
        shelf.write_file(&shelf.path.join(LABEL), &serde_json::to_vec(&label)?)
    }

    /// All objects of the shelf; `None` where it was never complete, or is of another server.
    pub fn load(&self, shelf: &Shelf) -> Option<Loaded> {
        let mut loaded = Loaded { label: self.label(shelf)?, objects: Vec::new(), unreadable: 0 };
        for path in shelf.files() {
            match read(&path) {
                Ok(text) => loaded.objects.push(text),
                Err(_) => loaded.unreadable += 1,
            }
        }
        Some(loaded)
    }

    /// One object of the shelf; `None` in `objects` where it is not there.
    pub fn load_one(&self, shelf: &Shelf, name: &ObjectName) -> Option<Loaded> {
        let label = self.label(shelf)?;
        let (objects, unreadable) = match read(&shelf.path_of(name)) {
            Ok(text) => (vec![text], 0),
            Err(error) if error.kind() == io::ErrorKind::NotFound => (Vec::new(), 0),
            Err(_) => (Vec::new(), 1),
        };
        Some(Loaded { label, objects, unreadable })
    }
}

impl Shelf {
    /// Keeps `text`; what is there already is not written again.
    pub fn put(&self, name: &ObjectName, text: &[u8]) -> io::Result<()> {
        let path = self.path_of(name);
        if read(&path).is_ok_and(|known| *known == text) {
            return Ok(());
        }
        if let Some(folder) = path.parent() {
            make_folder(folder)?;
        }
        self.write_file(&path, text)
    }

    pub fn remove(&self, name: &ObjectName) -> io::Result<()> {
        remove(&self.path_of(name))
    }

    /// Deletes everything but these.
    pub fn retain(&self, names: &HashSet<ObjectName>) -> io::Result<()> {
        let wanted: HashSet<_> = names.iter().map(|name| self.path_of(name)).collect();
        self.files().filter(|path| !wanted.contains(path)).try_for_each(|path| remove(&path))
    }

    /// Names were checked when the object was decoded: none has a slash, a dot in front or more than 253 bytes.
    fn path_of(&self, name: &ObjectName) -> PathBuf {
        let namespace = if name.namespace.is_empty() { NO_NAMESPACE } else { &name.namespace };
        self.path.join(namespace).join(&*name.name)
    }

    fn files(&self) -> impl Iterator<Item = PathBuf> + use<> {
        let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten().map(|it| it.path());
        let is_hidden =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let folders = entries(&self.path).filter(move |path| !is_hidden(path));
        folders.flat_map(move |folder| entries(&folder).collect::<Vec<_>>())
    }

    fn write_file(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        // One thread of a process writes at a time, and two generations are two processes.
        let staged = self.path.join(format!(".{}", std::process::id()));
        remove(&staged)?;
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&staged)
            .and_then(|mut file| file.write_all(bytes))
            .and_then(|()| fs::rename(&staged, path));
        if written.is_err() {
            let _ = remove(&staged);
        }
        written
    }
}

fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn read(path: &Path) -> io::Result<Text> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    if size > LARGEST {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    // With room for all of it, so that no copy stays behind where the buffer grew.
    let mut text = Zeroizing::new(Vec::with_capacity(usize::try_from(size).unwrap_or_default() + 1));
    file.take(LARGEST).read_to_end(&mut text)?;
    Ok(text)
}

/// An object without the metadata that nobody here reads, which is most of it.
struct Reduced<'a>(&'a Node<'a>);

impl Serialize for Reduced<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Node::Map(entries) = self.0 else { return self.0.serialize(serializer) };
        let mut map = serializer.serialize_map(None)?;
        for (key, value) in entries {
            match (&**key, value) {
                ("metadata", Node::Map(entries)) => {
                    map.serialize_entry("metadata", &Metadata(entries))?;
                }
                _ => map.serialize_entry(key, value)?,
            }
        }
        map.end()
    }
}

type Entries<'a> = [(std::borrow::Cow<'a, str>, Node<'a>)];

struct Metadata<'a>(&'a Entries<'a>);

impl Serialize for Metadata<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const READ: [&str; 7] =
            ["name", "namespace", "uid", "resourceVersion", "creationTimestamp", "labels", "annotations"];
        let read = self.0.iter().filter(|(key, _)| READ.contains(&&**key));
        let mut map = serializer.serialize_map(None)?;
        for (key, value) in read {
            match (&**key, value) {
                ("annotations", Node::Map(entries)) => {
                    map.serialize_entry("annotations", &Annotations(entries))?
                }
                _ => map.serialize_entry(key, value)?,
            }
        }
        map.end()
    }
}

/// Without the copy of the whole object that kubectl leaves there.
struct Annotations<'a>(&'a Entries<'a>);

impl Serialize for Annotations<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ours = |key: &str| key != "kubectl.kubernetes.io/last-applied-configuration";
        serializer.collect_map(self.0.iter().filter(|(key, _)| ours(key)).map(|(key, value)| (key, value)))
    }
}

#[cfg(test)]
mod tests;
