//! Files and folders that cannot be looked at for a while: what they defined stays, and they are looked at again. The
//! clock is the test's own.

use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};

use notify::{ErrorKind, EventHandler, RecursiveMode, WatcherKind};

use super::*;
use crate::sources::directory::tree::Tree;
use crate::sources::directory::watch::{WatchError, Watcher};

/// A folder and what was found in it.
struct Shelf {
    folder: TempDir,
    tree: Tree,
    store: Store,
    findings: BTreeMap<PathBuf, Vec<Diagnostic>>,
    now: Instant,
}

impl Shelf {
    fn new(prepare: impl FnOnce(&Path)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        prepare(folder.path());
        let tree = Tree::new(vec![folder.path().into()], "pem");
        let (store, findings) = (Store::new(), BTreeMap::new());
        let mut shelf = Self { folder, tree, store, findings, now: Instant::now() };
        shelf.scan();
        shelf
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn scan(&mut self) {
        self.tree.scan(self.now);
        self.take();
    }

    fn touch(&mut self, name: &str) {
        self.tree.touch(&self.folder.path().join(name), self.now);
        self.take();
    }

    /// Lets time pass until something is due, and looks at it; whether there was something.
    fn tick(&mut self) -> bool {
        let due = self.tree.next_due();
        self.now = self.now.max(due.unwrap_or(self.now));
        self.tree.tick(self.now);
        self.take();
        due.is_some()
    }

    fn take(&mut self) {
        let Some(batch) = self.tree.take_batch() else { return };
        batch.events.into_iter().for_each(|event| self.store.apply(event));
        for file in batch.findings {
            self.findings.insert(file.file.to_path_buf(), file.diagnostics);
        }
    }

    fn reasons(&self) -> Vec<&str> {
        self.findings.values().flatten().map(|diagnostic| diagnostic.reason).collect()
    }

    fn data(&self, name: &str) -> Option<&str> {
        let map = self.store.config_map(&ObjectName::new("default", name))?;
        map.data.get("value").map(String::as_str)
    }

    fn has_pair(&self, name: &str) -> bool {
        self.store.secret(&ObjectName::new("pem", name)).is_some()
    }
}

/// `path` becomes something that is there and cannot be opened.
fn bar(path: &Path) {
    let _ = fs::remove_file(path);
    drop(UnixListener::bind(path).unwrap());
}

/// `path` becomes something of which nobody can tell whether it is there.
fn obscure(path: &Path) {
    let _ = fs::remove_file(path);
    symlink("n".repeat(300), path).unwrap();
}

#[test]
fn half_a_pair_that_comes_back_leaves_nothing_that_is_due_forever() {
    let mut shelf = Shelf::new(|folder| write_pair(&folder.join("shop"), &pem(1)));
    fs::remove_file(shelf.path("shop/tls.crt")).unwrap();
    fs::remove_file(shelf.path("shop/tls.key")).unwrap();
    shelf.touch("shop/tls.crt");
    fs::write(shelf.path("shop/tls.crt"), pem(2).certificate).unwrap();
    shelf.touch("shop/tls.crt");
    for _ in 0..10 {
        shelf.tick();
        assert!(shelf.tree.next_due().is_none_or(|due| due > shelf.now));
    }
    assert_eq!(shelf.reasons(), ["KeyMissing"]);
    assert!(shelf.has_pair("shop"));
}

#[test]
fn what_cannot_be_opened_is_tried_until_it_can() {
    let mut shelf = Shelf::new(|folder| fs::write(folder.join("a.yaml"), config_map("a", "1")).unwrap());
    bar(&shelf.path("a.yaml"));
    shelf.touch("a.yaml");
    for _ in 0..20 {
        let before = shelf.now;
        assert!(shelf.tick());
        assert!(shelf.now - before <= Duration::from_secs(5));
        assert_eq!((shelf.data("a"), shelf.reasons()), (Some("1"), vec!["Unreadable"]));
    }
    fs::remove_file(shelf.path("a.yaml")).unwrap();
    fs::write(shelf.path("a.yaml"), config_map("a", "2")).unwrap();
    shelf.tick();
    assert_eq!((shelf.data("a"), shelf.reasons()), (Some("2"), vec![]));
    assert!(!shelf.tick());
}

#[test]
fn what_cannot_be_looked_at_is_not_taken_for_gone() {
    let mut shelf = Shelf::new(|folder| {
        fs::write(folder.join("a.yaml"), config_map("a", "1")).unwrap();
        write_pair(&folder.join("shop"), &pem(1));
        fs::create_dir(folder.join(".data")).unwrap();
        fs::write(folder.join(".data/b.yaml"), config_map("b", "1")).unwrap();
        symlink(".data", folder.join("link")).unwrap();
    });
    let names = ["a.yaml", "shop/tls.crt", "shop/tls.key", "link"];
    names.iter().for_each(|name| obscure(&shelf.path(name)));
    names.iter().for_each(|name| shelf.touch(name));
    shelf.scan();
    for _ in 0..10 {
        shelf.tick();
    }
    assert_eq!(shelf.reasons(), ["Unreadable"; 3]);
    assert_eq!((shelf.data("a"), shelf.data("b"), shelf.has_pair("shop")), (Some("1"), Some("1"), true));

    names.iter().for_each(|name| fs::remove_file(shelf.path(name)).unwrap());
    rename_into(&shelf.path("a.yaml"), &config_map("a", "2"));
    write_pair(&shelf.path("shop"), &pem(2));
    fs::write(shelf.path(".data/b.yaml"), config_map("b", "2")).unwrap();
    symlink(".data", shelf.path("link")).unwrap();
    for _ in 0..3 {
        shelf.tick();
    }
    assert_eq!(shelf.reasons(), [""; 0]);
    assert_eq!((shelf.data("a"), shelf.data("b")), (Some("2"), Some("2")));
    assert!(!shelf.tick());
}

#[test]
fn what_is_wrong_with_a_folder_ends_with_it() {
    let deep = "d/".repeat(17);
    let mut shelf = Shelf::new(|folder| {
        fs::create_dir_all(folder.join(&deep)).unwrap();
        symlink("self", folder.join("self")).unwrap();
        symlink("other", folder.join("other")).unwrap();
    });
    assert_eq!(shelf.reasons(), ["TooDeep", "Unreadable", "Unreadable"]);
    fs::remove_dir(shelf.path(&deep)).unwrap();
    fs::remove_file(shelf.path("self")).unwrap();
    for gone in [deep.trim_end_matches('/'), "self"] {
        shelf.tree.vanish(&shelf.path(gone), shelf.now);
    }
    shelf.take();
    assert_eq!(shelf.reasons(), ["Unreadable"]);
    // Without an event.
    fs::remove_file(shelf.path("other")).unwrap();
    shelf.scan();
    assert_eq!(shelf.reasons(), [""; 0]);
}

#[test]
fn large_files_and_folders_are_looked_at_where_nobody_waits() {
    let mut shelf = Shelf::new(|folder| {
        fs::create_dir(folder.join("folder")).unwrap();
        fs::write(folder.join("small.yaml"), "# small\n").unwrap();
        fs::write(folder.join("large.yaml"), "# large\n".repeat(40_000)).unwrap();
    });
    let is_much = |shelf: &Shelf, names: &[&str]| {
        let paths = names.iter().map(|name| (shelf.path(name), watch::Touch::Done)).collect();
        shelf.tree.is_much(&Touched { paths, lost: false }, shelf.now)
    };
    assert!(!is_much(&shelf, &["small.yaml", "gone.yaml"]));
    assert!(is_much(&shelf, &["small.yaml", "large.yaml"]));
    assert!(is_much(&shelf, &["folder"]));
    fs::remove_dir(shelf.path("folder")).unwrap();
    assert!(is_much(&shelf, &["folder"]));
    obscure(&shelf.path("link"));
    shelf.scan();
    shelf.now = shelf.tree.next_due().unwrap();
    assert!(is_much(&shelf, &[]));
}

/// Watches nothing while there is no room.
struct Scarce(Arc<AtomicBool>);

impl notify::Watcher for Scarce {
    fn new<F: EventHandler>(_: F, _: notify::Config) -> notify::Result<Self> {
        Ok(Self(Arc::default()))
    }

    fn watch(&mut self, _: &Path, _: RecursiveMode) -> notify::Result<()> {
        match self.0.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err(notify::Error::new(ErrorKind::MaxFilesWatch)),
        }
    }

    fn unwatch(&mut self, _: &Path) -> notify::Result<()> {
        Ok(())
    }

    fn kind() -> WatcherKind {
        WatcherKind::NullWatcher
    }
}

#[test]
fn folders_that_cannot_be_watched_are_told_and_tried_again() {
    let mut shelf = Shelf::new(|folder| {
        (0..50).for_each(|number| fs::create_dir(folder.join(number.to_string())).unwrap());
    });
    shelf.tree.watch(Err(WatchError::TooMany));
    shelf.scan();
    assert!(!shelf.tree.has_watcher());
    assert_eq!(shelf.findings[shelf.folder.path()][0].reason, "NotWatched");

    let room = Arc::new(AtomicBool::new(false));
    shelf.tree.watch(Ok(Watcher::from(Box::new(Scarce(room.clone())))));
    for _ in 0..2 {
        shelf.scan();
        assert!(shelf.tree.has_watcher());
        let reasons = shelf.reasons();
        assert!((2..50).contains(&reasons.len()), "{reasons:?}");
        assert!(reasons.iter().all(|reason| *reason == "NotWatched"));
    }
    let finding = shelf.findings.values().flatten().next().unwrap();
    assert!(
        finding.severity == Severity::Warning && finding.message.contains("max_user_watches"),
        "{finding}"
    );
    room.store(true, Ordering::Relaxed);
    shelf.scan();
    assert_eq!(shelf.reasons(), [""; 0]);
}
