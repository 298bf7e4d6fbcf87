//! Writes to disk what watches found, behind their back: they leave notes, one task writes them down.
//!
//! Notes that come within a second are written together, and of several about the same only the last. A disk
//! that is full or slow costs the survival of a restart and nothing else: traffic and watches don't wait for it
//! unless megabytes are waiting.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{spawn_blocking, spawn_local};
use tokio::time::{Instant, timeout_at};

use super::kept::{Kept, Loaded, Text};
use crate::clock::now;
use crate::store::objects::ObjectName;

/// What follows within this time is written together.
const PAUSE: Duration = Duration::from_secs(1);
/// Bytes that may wait for it.
const WAITING: usize = 4 << 20;
/// Notes that may wait for a disk that is slow.
const NOTES: usize = 256;

/// Whether objects are kept on disk, and what for.
#[derive(Clone, Debug)]
pub struct Keep {
    /// Where.
    pub folder: PathBuf,
    /// Whether what is kept may be served where the API server does not answer. Not where another generation
    /// serves, which knows better.
    pub restore: bool,
}

/// Something to write down.
enum Note {
    /// What an object is by now; nothing where it has gone.
    Object(ObjectName, Option<Text>),
    /// These are all objects there are.
    Only(HashSet<ObjectName>),
    /// With all notes before, the shelf is what the API server has at this version.
    Confirmed(String),
}

type Notes = mpsc::Sender<(Arc<str>, Note)>;

/// Keeps the objects of all targets.
#[derive(Clone)]
pub(super) struct Keeper {
    kept: Kept,
    restore: bool,
    notes: Notes,
}

/// Keeps the objects of one target.
#[derive(Clone)]
pub(super) struct TargetKeeper {
    keeper: Keeper,
    shelf: Arc<str>,
}

impl Keeper {
    /// Starts to write, on the local runtime. It ends, with everything written, when no copy is left.
    pub fn start(keep: &Keep, server: &str) -> Self {
        let kept = Kept::new(keep.folder.clone(), server.to_owned());
        let (notes, written) = mpsc::channel(NOTES);
        spawn_local(write_down(kept.clone(), written));
        Self { kept, restore: keep.restore, notes }
    }

    /// For the target with this shelf.
    pub fn of(&self, shelf: String) -> TargetKeeper {
        TargetKeeper { keeper: self.clone(), shelf: shelf.into() }
    }
}

impl TargetKeeper {
    /// Notes what objects are by now.
    pub async fn objects(&self, objects: Vec<(ObjectName, Option<Text>)>) {
        for (name, text) in objects {
            self.note(Note::Object(name, text)).await;
        }
    }

    /// Notes that there are these objects and no others.
    pub async fn only(&self, names: HashSet<ObjectName>) {
        self.note(Note::Only(names)).await;
    }

    /// Notes that all is as the API server has it at `version`.
    pub async fn confirmed(&self, version: &str) {
        self.note(Note::Confirmed(version.to_owned())).await;
    }

    /// Whether there is something that may be served.
    pub fn can_restore(&self) -> bool {
        self.keeper.restore && self.keeper.kept.label(&self.keeper.kept.shelf(&self.shelf)).is_some()
    }

    /// What is kept, or of it the one object of this name. `None` where that must not be served.
    pub async fn restore(&self, object: Option<ObjectName>) -> Option<Loaded> {
        if !self.keeper.restore {
            return None;
        }
        let (kept, shelf) = (self.keeper.kept.clone(), self.keeper.kept.shelf(&self.shelf));
        let load = move || match object {
            Some(name) => kept.load_one(&shelf, &name),
            None => kept.load(&shelf),
        };
        spawn_blocking(load).await.ok().flatten()
    }

    async fn note(&self, note: Note) {
        // The task ends only when the process does.
        let _ = self.keeper.notes.send((self.shelf.clone(), note)).await;
    }
}

async fn write_down(kept: Kept, mut notes: mpsc::Receiver<(Arc<str>, Note)>) {
    let mut writer = Writer { kept, prepared: HashSet::new(), incomplete: HashSet::new() };
    while let Some(first) = notes.recv().await {
        let until = Instant::now() + PAUSE;
        let mut waiting = size(&first.1);
        let mut batch = vec![first];
        while waiting < WAITING
            && let Ok(Some(next)) = timeout_at(until, notes.recv()).await
        {
            waiting += size(&next.1);
            batch.push(next);
        }
        let written = spawn_blocking(move || {
            writer.write(batch);
            writer
        });
        match written.await {
            Ok(back) => writer = back,
            Err(_) => return,
        }
    }
}

fn size(note: &Note) -> usize {
    match note {
        Note::Object(_, Some(text)) => text.len(),
        _ => 0,
    }
}

struct Writer {
    kept: Kept,
    /// Shelves that were looked at in the life of this process.
    prepared: HashSet<Arc<str>>,
    /// Shelves that lack something that could not be written. What is there stays, as of when it was complete.
    incomplete: HashSet<Arc<str>>,
}

impl Writer {
    fn write(&mut self, batch: Vec<(Arc<str>, Note)>) {
        let mut last = HashMap::new();
        for (at, (shelf, note)) in batch.iter().enumerate() {
            match note {
                Note::Object(name, _) => drop(last.insert((shelf.clone(), Some(name.clone())), at)),
                Note::Confirmed(_) => drop(last.insert((shelf.clone(), None), at)),
                Note::Only(_) => {}
            }
        }
        for (at, (shelf, note)) in batch.into_iter().enumerate() {
            let superseded = match &note {
                Note::Object(name, _) => last.get(&(shelf.clone(), Some(name.clone()))) != Some(&at),
                Note::Confirmed(_) => last.get(&(shelf.clone(), None)) != Some(&at),
                Note::Only(_) => false,
            };
            if superseded {
                continue;
            }
            if let Err(error) = self.write_one(&shelf, note)
                && self.incomplete.insert(shelf.clone())
            {
                tracing::warn!(
                    what = %shelf,
                    %error,
                    "not everything is kept: a start while the API server is away would miss it"
                );
            }
        }
    }

    fn write_one(&mut self, name: &Arc<str>, note: Note) -> std::io::Result<()> {
        let shelf = self.kept.shelf(name);
        if !self.prepared.contains(name) {
            self.kept.prepare(&shelf)?;
            self.prepared.insert(name.clone());
        }
        match note {
            Note::Object(name, Some(text)) => shelf.put(&name, &text),
            Note::Object(name, None) => shelf.remove(&name),
            Note::Only(names) => shelf.retain(&names),
            Note::Confirmed(_) if self.incomplete.contains(name) => Ok(()),
            Note::Confirmed(version) => self.kept.confirm(&shelf, &version, now()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn writer(folder: &tempfile::TempDir) -> Writer {
        let kept = Kept::new(folder.path().join("objects"), "api.test".into());
        Writer { kept, prepared: HashSet::new(), incomplete: HashSet::new() }
    }

    fn object(name: &str, text: Option<&str>) -> (Arc<str>, Note) {
        let text = text.map(|text| Text::new(text.as_bytes().to_vec()));
        let (namespace, name) = name.split_once('/').unwrap();
        ("services".into(), Note::Object(ObjectName::new(namespace, name), text))
    }

    fn confirmed(version: &str) -> (Arc<str>, Note) {
        ("services".into(), Note::Confirmed(version.into()))
    }

    /// The texts that are kept, and the version they are confirmed at.
    fn content(writer: &Writer) -> (Vec<String>, String) {
        let loaded = writer.kept.load(&writer.kept.shelf("services")).expect("a label");
        let texts = loaded.objects.iter().map(|text| String::from_utf8(text.to_vec()).unwrap());
        let mut texts: Vec<_> = texts.collect();
        texts.sort();
        (texts, loaded.label.version)
    }

    #[test]
    fn of_several_notes_about_an_object_the_last_counts() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(&folder);
        let only = HashSet::from([ObjectName::new("shop", "a")]);
        writer.write(vec![
            object("shop/a", Some("1")),
            object("shop/b", Some("2")),
            ("services".into(), Note::Only(only)),
            object("shop/a", Some("3")),
            object("shop/c", Some("4")),
            object("shop/d", Some("5")),
            object("shop/d", None),
            confirmed("7"),
        ]);
        assert_eq!(content(&writer), (vec!["3".into(), "4".into()], "7".into()));
    }

    #[test]
    fn what_could_not_be_written_is_not_confirmed() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(&folder);
        writer.write(vec![object("shop/a", Some("1")), confirmed("7")]);
        // In the place of a folder.
        fs::write(folder.path().join("objects/services/blog"), "").unwrap();
        writer.write(vec![object("blog/b", Some("2")), object("shop/a", Some("3")), confirmed("8")]);
        assert_eq!(content(&writer), (vec!["3".into()], "7".into()), "as of when it was complete");
    }
}
