use std::time::SystemTime;

use super::*;
use crate::tls::ocsp::certificate::fingerprint;
use crate::tls::ocsp::testing::{Answer, Ca, Issued};

const NOW: u64 = 1_800_000_000;

struct Shelf {
    dir: tempfile::TempDir,
    cache: Cache,
    ca: Ca,
    leaf: Issued,
    id: [u8; 32],
    staple: Staple,
}

impl Shelf {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(dir.path().join("ocsp"));
        let ca = Ca::new("issuer");
        let leaf = ca.leaf().issue();
        let id = fingerprint(&leaf.der);
        let der = Answer::good(&leaf.der, &ca.der, NOW).sign(&ca.signer());
        let staple = verify(&der, &leaf.der, &ca.der, NOW).unwrap();
        Self { dir, cache, ca, leaf, id, staple }
    }

    fn load(&self, now: u64) -> Option<Staple> {
        self.cache.load(&self.id, &self.leaf.der, &self.ca.der, now)
    }

    fn file(&self) -> PathBuf {
        self.cache.path(&self.id)
    }

    /// Puts `bytes` where the staple would be.
    fn plant(&self, bytes: &[u8]) {
        fs::create_dir_all(&self.cache.dir).unwrap();
        fs::write(self.file(), bytes).unwrap();
    }
}

#[test]
fn what_is_saved_is_loaded_and_nothing_else_lies_around() {
    let shelf = Shelf::new();
    assert_eq!(shelf.load(NOW), None);
    shelf.cache.save(&shelf.id, &shelf.staple).unwrap();
    shelf.cache.save(&shelf.id, &shelf.staple).unwrap();
    assert_eq!(shelf.load(NOW + 60), Some(shelf.staple.clone()));
    assert_eq!(fs::read_dir(&shelf.cache.dir).unwrap().count(), 1);
    shelf.cache.forget(&shelf.id);
    assert_eq!(shelf.load(NOW + 60), None);
}

#[test]
fn a_stale_staple_is_deleted() {
    let shelf = Shelf::new();
    shelf.cache.save(&shelf.id, &shelf.staple).unwrap();
    assert_eq!(shelf.load(NOW + 3600), None);
    assert!(!shelf.file().exists());
}

#[test]
fn corrupt_and_foreign_contents_are_ignored() {
    let shelf = Shelf::new();
    let good = shelf.staple.der.clone();
    let mut tampered = good.to_vec();
    *tampered.last_mut().unwrap() ^= 1;
    let other = shelf.ca.leaf().issue();
    let about_another = Answer::good(&other.der, &shelf.ca.der, NOW).sign(&shelf.ca.signer());
    let oversized = vec![0x30; MAX_RESPONSE + 1];
    for bytes in [b"".as_slice(), b"junk", &good[..good.len() / 2], &tampered, &about_another, &oversized] {
        shelf.plant(bytes);
        assert_eq!(shelf.load(NOW), None);
    }
    // A later save replaces whatever is there.
    shelf.cache.save(&shelf.id, &shelf.staple).unwrap();
    assert_eq!(shelf.load(NOW), Some(shelf.staple.clone()));
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error_and_no_more() {
    let shelf = Shelf::new();
    fs::write(shelf.dir.path().join("ocsp"), "a file where the folder should be").unwrap();
    assert!(shelf.cache.save(&shelf.id, &shelf.staple).is_err());
    assert_eq!(shelf.load(NOW), None);
    shelf.cache.sweep(NOW);
}

#[test]
fn a_failed_rename_leaves_no_temporary_file() {
    let shelf = Shelf::new();
    fs::create_dir_all(shelf.file().join("in the way")).unwrap();
    assert!(shelf.cache.save(&shelf.id, &shelf.staple).is_err());
    assert_eq!(fs::read_dir(&shelf.cache.dir).unwrap().count(), 1);
}

#[test]
fn sweeping_takes_the_expired_and_the_orphaned_and_leaves_the_rest() {
    let shelf = Shelf::new();
    shelf.cache.save(&shelf.id, &shelf.staple).unwrap();
    let dir = &shelf.cache.dir;
    let put = |name: String, age: Duration| {
        let file = File::create(dir.join(&name)).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
        name
    };
    let orphan = put(format!("{}.1-1.tmp", hex(&shelf.id)), 2 * ORPHAN_AGE);
    let at_work = put(format!("{}.1-2.tmp", hex(&shelf.id)), Duration::ZERO);
    let foreign = put("notes.tmp".to_owned(), 2 * ORPHAN_AGE);
    let corrupt = put(format!("{}.der", "0".repeat(64)), Duration::ZERO);

    shelf.cache.sweep(NOW + 60);
    assert!(shelf.file().exists());
    shelf.cache.sweep(NOW + 3600);
    assert!(!shelf.file().exists());
    assert!(!dir.join(orphan).exists());
    for kept in [at_work, foreign, corrupt] {
        assert!(dir.join(&kept).exists(), "{kept}");
    }
}
