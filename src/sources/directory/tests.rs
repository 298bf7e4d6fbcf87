mod last_good;
mod properties;
mod reading;
mod ready_policies;
mod roots;
mod trouble;
mod ways;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::mpsc::{self, Receiver};

use super::*;
use crate::diagnostics::{Diagnostic, ObjectRef, Severity};
use crate::names::HostPattern;
use crate::sources::Health;
use crate::sources::origins::Origins;
use crate::store::objects::{Kind, ObjectName, SecretOrigin};
use crate::store::{Event, Store};

/// Longer than anything here takes; a test that needs it has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// A folder, its source at work, and what the source has said so far.
struct Show {
    folder: TempDir,
    batches: Receiver<Batch>,
    store: Store,
    findings: BTreeMap<PathBuf, Vec<Diagnostic>>,
    origins: Origins,
    health: Health,
    /// Every event since the last look, as "apply Secret web/tls".
    log: Vec<String>,
}

impl Show {
    async fn start(prepare: impl FnOnce(&Path)) -> Self {
        Self::start_at("", prepare).await
    }

    /// With `root`, a path in the folder, as the root.
    async fn start_at(root: &str, prepare: impl FnOnce(&Path)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        prepare(folder.path());
        let (sender, batches) = mpsc::channel(4);
        let source = Directory { roots: vec![folder.path().join(root)], pem_namespace: "pem".into() };
        tokio::spawn(source.run(sender));
        let mut show = Self {
            folder,
            batches,
            store: Store::new(),
            findings: BTreeMap::new(),
            origins: Origins::default(),
            health: Health::Well,
            log: Vec::new(),
        };
        while !show.next().await {}
        show
    }

    /// Applies the next batch; whether it is synced.
    async fn next(&mut self) -> bool {
        let batch = tokio::time::timeout(PATIENCE, self.batches.recv()).await.expect("a batch").unwrap();
        for event in batch.events {
            self.log.push(match &event {
                Event::Apply(object) => format!("apply {} {}", object.kind(), object.metadata().name),
                Event::Delete(kind, name) => format!("delete {kind} {name}"),
                Event::Staple(_) | Event::StapleGone(_) => unreachable!("not from a folder"),
            });
            self.store.apply(event);
        }
        batch.origins.into_iter().for_each(|origin| self.origins.apply(origin));
        if let Some(health) = batch.health {
            self.health = health;
        }
        for file in batch.findings {
            self.findings.insert(file.file.to_path_buf(), file.diagnostics);
        }
        batch.synced
    }

    async fn until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while !condition(self) {
            assert!(tokio::time::Instant::now() < deadline, "{what}: {:?} {:?}", self.log, self.findings);
            self.next().await;
        }
    }

    /// Waits until `name` (a Secret) has a certificate with this serial.
    async fn until_serial(&mut self, name: &str, serial: &str) {
        self.until(serial, |show| show.serial(name) == serial).await;
    }

    fn serial(&self, name: &str) -> String {
        let pair = self.store.secret(&ObjectName::new("pem", name)).and_then(|secret| secret.pair.clone());
        pair.map(|pair| pair.unwrap().serial.to_string()).unwrap_or_default()
    }

    /// The file that defines the ConfigMap `default/name`.
    fn origin(&self, name: &str) -> Option<PathBuf> {
        let object = ObjectRef::new(Kind::ConfigMap, &ObjectName::new("default", name));
        let finding = Diagnostic::new(Severity::Info, object, "", "Any", "");
        self.origins.locate(finding).file.map(|file| file.to_path_buf())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn data(&self, name: &str) -> Option<&str> {
        let map = self.store.config_map(&ObjectName::new("default", name))?;
        map.data.get("value").map(String::as_str)
    }

    fn reasons(&self) -> Vec<&str> {
        self.findings.values().flatten().map(|diagnostic| diagnostic.reason).collect()
    }

    /// Nothing more comes; asks for a sentinel object instead of waiting for silence.
    async fn settle(&mut self, sentinel: &str) {
        rename_into(&self.path(&format!("{sentinel}.yaml")), &config_map(sentinel, "sentinel"));
        self.until(sentinel, |show| show.data(sentinel).is_some()).await;
    }
}

fn config_map(name: &str, value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  value: {value:?}\n")
}

fn rename_into(path: &Path, text: &str) {
    let temporary = path.with_extension("part");
    fs::write(&temporary, text).unwrap();
    fs::rename(temporary, path).unwrap();
}

struct Pem {
    certificate: String,
    key: String,
}

/// A self-signed pair for `example.test` with a serial of one byte.
fn pem(serial: u8) -> Pem {
    let mut parameters = rcgen::CertificateParams::new(vec!["example.test".into()]).unwrap();
    parameters.serial_number = Some(vec![serial].into());
    let key = rcgen::KeyPair::generate().unwrap();
    Pem { certificate: parameters.self_signed(&key).unwrap().pem(), key: key.serialize_pem() }
}

fn write_pair(folder: &Path, pem: &Pem) {
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("tls.crt"), &pem.certificate).unwrap();
    fs::write(folder.join("tls.key"), &pem.key).unwrap();
}

/// Swaps what a mounted volume shows, the way kubelet does it.
fn swap_volume(folder: &Path, version: u8, pem: &Pem) {
    let name = format!("..2026_{version}");
    write_pair(&folder.join(&name), pem);
    let old = fs::read_link(folder.join("..data")).ok();
    symlink(&name, folder.join("..data_tmp")).unwrap();
    fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    for file in ["tls.crt", "tls.key"] {
        if !folder.join(file).exists() {
            symlink(Path::new("..data").join(file), folder.join(file)).unwrap();
        }
    }
    if let Some(old) = old {
        fs::remove_dir_all(folder.join(old)).unwrap();
    }
}

#[tokio::test]
async fn the_first_batch_has_everything() {
    let mut show = Show::start(|folder| {
        fs::create_dir_all(folder.join("deep/er")).unwrap();
        fs::write(folder.join("deep/er/a.yml"), config_map("a", "1")).unwrap();
        fs::write(folder.join("b.json"), r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"}}"#)
            .unwrap();
        fs::write(folder.join(".hidden.yaml"), "{").unwrap();
        fs::create_dir(folder.join("..2026")).unwrap();
        fs::write(folder.join("..2026/c.yaml"), "{").unwrap();
        fs::write(folder.join("notes.txt"), "{").unwrap();
        write_pair(&folder.join("shop"), &pem(7));
    })
    .await;
    show.log.sort();
    assert_eq!(show.log, ["apply ConfigMap default/a", "apply ConfigMap default/b", "apply Secret pem/shop"]);
    assert!(show.findings.is_empty());
    let secret = show.store.secret(&ObjectName::new("pem", "shop")).unwrap();
    assert_eq!(secret.origin, SecretOrigin::PemPair);
    assert_eq!(show.store.hosts(), [HostPattern::parse("example.test").unwrap()].into());
}

#[tokio::test]
async fn a_swapped_volume_is_followed_again_and_again() {
    let mut show = Show::start(|folder| swap_volume(&folder.join("shop"), 1, &pem(1))).await;
    for version in 2..6 {
        swap_volume(&show.path("shop"), version, &pem(version));
        show.until_serial("shop", &format!("{version:02x}")).await;
    }
    assert!(show.reasons().is_empty());
}

#[tokio::test]
async fn a_root_may_be_a_mounted_volume() {
    let mut show = Show::start(|folder| swap_volume(folder, 1, &pem(1))).await;
    for version in 2..5 {
        swap_volume(show.folder.path(), version, &pem(version));
        let serial = format!("{version:02x}");
        show.until("the swap", |show| {
            let host = HostPattern::parse("example.test").unwrap();
            let mut secrets = show.store.pem_pairs_of(&host);
            secrets.any(|it| matches!(&it.pair, Some(Ok(pair)) if *pair.serial == *serial))
        })
        .await;
    }
}

#[tokio::test]
async fn only_what_changed_is_sent() {
    let mut show = Show::start(|folder| {
        for number in 0..50 {
            let name = format!("m{number}");
            fs::write(folder.join(format!("{name}.yaml")), config_map(&name, "1")).unwrap();
        }
        fs::write(folder.join("two.yaml"), config_map("x", "1") + "---\n" + &config_map("z", "1")).unwrap();
    })
    .await;
    show.log.clear();
    rename_into(&show.path("m7.yaml"), &config_map("m7", "2"));
    show.until("the change", |show| show.data("m7") == Some("2")).await;
    rename_into(&show.path("two.yaml"), &(config_map("x", "1") + "---\n" + &config_map("z", "2")));
    show.until("the change", |show| show.data("z") == Some("2")).await;
    rename_into(&show.path("m8.yaml"), &("# a comment\n".to_owned() + &config_map("m8", "1")));
    show.settle("end").await;
    let expected = ["apply ConfigMap default/m7", "apply ConfigMap default/z", "apply ConfigMap default/end"];
    assert_eq!(show.log, expected);
}

#[tokio::test]
async fn a_file_that_is_written_slowly_keeps_what_it_defined() {
    use std::io::Write;
    let mut show = Show::start(|folder| {
        let text = config_map("a", "1") + "---\n" + &config_map("b", "1");
        fs::write(folder.join("a.yaml"), text).unwrap();
    })
    .await;
    let mut file = fs::File::create(show.path("a.yaml")).unwrap();
    show.settle("truncated").await;
    // A part that is valid YAML by itself: only the close tells that it is complete.
    file.write_all(config_map("a", "2").as_bytes()).unwrap();
    show.settle("half").await;
    assert_eq!((show.data("a"), show.data("b")), (Some("1"), Some("1")));
    file.write_all(b"---\n").unwrap();
    file.write_all(config_map("b", "2").as_bytes()).unwrap();
    drop(file);
    show.until("the change", |show| show.data("a") == Some("2") && show.data("b") == Some("2")).await;
    assert!(!show.log.iter().any(|line| line.starts_with("delete")), "{:?}", show.log);
}

#[tokio::test]
async fn a_file_that_breaks_or_empties_keeps_what_it_defined_and_says_so() {
    let mut show =
        Show::start(|folder| fs::write(folder.join("a.yaml"), config_map("a", "1")).unwrap()).await;
    rename_into(&show.path("a.yaml"), "apiVersion: v1\nkind: [\n");
    show.until("a finding", |show| show.reasons() == ["InvalidYaml"]).await;
    rename_into(&show.path("a.yaml"), "");
    show.until("a finding", |show| show.reasons() == ["EmptyFile"]).await;
    assert_eq!(show.data("a"), Some("1"));
    rename_into(&show.path("a.yaml"), &config_map("a", "2"));
    show.until("the repair", |show| show.data("a") == Some("2") && show.reasons().is_empty()).await;
}

#[tokio::test]
async fn a_deleted_file_takes_its_objects_along() {
    let mut show = Show::start(|folder| {
        fs::write(folder.join("a.yaml"), config_map("a", "1")).unwrap();
        write_pair(&folder.join("shop"), &pem(1));
        fs::write(folder.join("bad.yaml"), "{").unwrap();
    })
    .await;
    fs::remove_file(show.path("a.yaml")).unwrap();
    fs::remove_file(show.path("bad.yaml")).unwrap();
    fs::remove_dir_all(show.path("shop")).unwrap();
    show.until("all to go", |show| {
        show.data("a").is_none() && show.serial("shop").is_empty() && show.reasons().is_empty()
    })
    .await;
    write_pair(&show.path("shop"), &pem(2));
    show.until_serial("shop", "02").await;
}

#[tokio::test]
async fn deleting_and_creating_again_is_one_change() {
    let mut show =
        Show::start(|folder| fs::write(folder.join("a.yaml"), config_map("a", "1")).unwrap()).await;
    show.log.clear();
    fs::remove_file(show.path("a.yaml")).unwrap();
    fs::write(show.path("a.yaml"), config_map("a", "2")).unwrap();
    show.until("the change", |show| show.data("a") == Some("2")).await;
    assert_eq!(show.log, ["apply ConfigMap default/a"]);
}

#[tokio::test]
async fn folders_that_appear_are_followed() {
    let mut show = Show::start(|_| {}).await;
    fs::create_dir_all(show.path("one/two")).unwrap();
    fs::write(show.path("one/two/a.yaml"), config_map("a", "1")).unwrap();
    show.until("the file", |show| show.data("a") == Some("1")).await;
    rename_into(&show.path("one/two/a.yaml"), &config_map("a", "2"));
    show.until("the change", |show| show.data("a") == Some("2")).await;
    fs::rename(show.path("one"), show.path("other")).unwrap();
    rename_into(&show.path("other/two/a.yaml"), &config_map("a", "3"));
    show.until("the change after the move", |show| show.data("a") == Some("3")).await;
    rename_into(&show.path("other/two/a.yaml"), &config_map("a", "4"));
    show.until("the watch after the move", |show| show.data("a") == Some("4")).await;
}

#[tokio::test]
async fn a_link_to_another_folder_is_followed_when_it_is_set_anew() {
    let mut show = Show::start(|folder| {
        for version in ["1", "2"] {
            fs::create_dir_all(folder.join(format!(".releases/{version}"))).unwrap();
            let file = folder.join(format!(".releases/{version}/a.yaml"));
            fs::write(file, config_map("a", version)).unwrap();
        }
        symlink(".releases/1", folder.join("current")).unwrap();
    })
    .await;
    assert_eq!(show.data("a"), Some("1"));
    symlink(".releases/2", show.path(".next")).unwrap();
    fs::rename(show.path(".next"), show.path("current")).unwrap();
    show.until("the other folder", |show| show.data("a") == Some("2")).await;
    rename_into(&show.path("current/a.yaml"), &config_map("a", "3"));
    show.until("a change in it", |show| show.data("a") == Some("3")).await;
}

#[tokio::test]
async fn a_new_link_to_a_folder_is_followed() {
    let mut show = Show::start(|folder| {
        fs::create_dir(folder.join(".elsewhere")).unwrap();
        fs::write(folder.join(".elsewhere/a.yaml"), config_map("a", "1")).unwrap();
    })
    .await;
    assert_eq!(show.data("a"), None);
    symlink(".elsewhere", show.path("link")).unwrap();
    show.until("the file behind it", |show| show.data("a") == Some("1")).await;
    rename_into(&show.path("link/a.yaml"), &config_map("a", "2"));
    show.until("a change in it", |show| show.data("a") == Some("2")).await;
}

#[tokio::test]
async fn a_folder_with_the_name_of_a_manifest_takes_its_place() {
    let mut show =
        Show::start(|folder| fs::write(folder.join("a.yaml"), config_map("a", "1")).unwrap()).await;
    fs::create_dir(show.path(".new")).unwrap();
    fs::write(show.path(".new/b.yaml"), config_map("b", "1")).unwrap();
    fs::remove_file(show.path("a.yaml")).unwrap();
    fs::rename(show.path(".new"), show.path("a.yaml")).unwrap();
    show.until("what is in the folder", |show| show.data("b") == Some("1")).await;
    show.until("what was in the file to go", |show| show.data("a").is_none()).await;
    rename_into(&show.path("a.yaml/b.yaml"), &config_map("b", "2"));
    show.until("a change in it", |show| show.data("b") == Some("2")).await;
}

#[tokio::test]
async fn the_halves_of_a_pair_are_never_mixed_nor_reported_between() {
    let mut show = Show::start(|folder| write_pair(&folder.join("shop"), &pem(1))).await;
    for serial in 2..5 {
        let new = pem(serial);
        rename_into(&show.path("shop/tls.crt"), &new.certificate);
        show.settle(&format!("half-{serial}")).await;
        assert_eq!(show.serial("shop"), format!("{:02x}", serial - 1));
        rename_into(&show.path("shop/tls.key"), &new.key);
        show.until_serial("shop", &format!("{serial:02x}")).await;
    }
}

#[tokio::test]
async fn a_pair_that_stays_wrong_is_reported_and_the_old_one_served() {
    let mut show = Show::start(|folder| write_pair(&folder.join("shop"), &pem(1))).await;
    rename_into(&show.path("shop/tls.key"), &pem(2).key);
    show.until("a finding", |show| show.reasons() == ["KeyMismatch"]).await;
    assert_eq!(show.serial("shop"), "01");
    fs::remove_file(show.path("shop/tls.key")).unwrap();
    show.until("a finding", |show| show.reasons() == ["KeyMissing"]).await;
    assert_eq!(show.serial("shop"), "01");
    write_pair(&show.path("shop"), &pem(3));
    show.until("the repair", |show| show.serial("shop") == "03" && show.reasons().is_empty()).await;
}

#[tokio::test]
async fn the_first_of_two_definitions_counts_and_the_second_steps_in() {
    let mut show = Show::start(|folder| {
        fs::write(folder.join("a.yaml"), config_map("same", "first")).unwrap();
        fs::write(folder.join("b.yaml"), config_map("same", "second")).unwrap();
    })
    .await;
    assert_eq!(show.data("same"), Some("first"));
    assert_eq!(show.findings.keys().cloned().collect::<Vec<_>>(), [show.path("b.yaml")]);
    assert_eq!(show.reasons(), ["Duplicate"]);
    assert_eq!(show.origin("same"), Some(show.path("a.yaml")));
    fs::remove_file(show.path("a.yaml")).unwrap();
    show.until("the second", |show| show.data("same") == Some("second") && show.reasons().is_empty()).await;
    assert_eq!(show.origin("same"), Some(show.path("b.yaml")));
    rename_into(&show.path("a.yaml"), &config_map("same", "third"));
    show.until("the first", |show| show.data("same") == Some("third") && show.reasons() == ["Duplicate"])
        .await;
    assert_eq!(show.origin("same"), Some(show.path("a.yaml")));
    assert!(!show.log.iter().any(|line| line.starts_with("delete")), "{:?}", show.log);
}

#[tokio::test]
async fn all_further_definitions_name_the_one_that_counts() {
    let files = ["a.yaml", "b.yaml", "c.yaml"];
    let mut show = Show::start(|folder| {
        files.iter().for_each(|file| fs::write(folder.join(file), config_map("same", file)).unwrap());
    })
    .await;
    let named = |show: &Show, first: &str| {
        let message = format!("{} defines it too and comes first", show.path(first).display());
        show.findings.values().flatten().filter(|finding| finding.message == message).count()
    };
    assert_eq!(named(&show, "a.yaml"), 2);
    fs::remove_file(show.path("a.yaml")).unwrap();
    show.until("the third to name the second", |show| named(show, "b.yaml") == 1).await;
    assert_eq!(show.reasons(), ["Duplicate"]);
    rename_into(&show.path("a.yaml"), &config_map("same", "again"));
    show.until("both to name the first", |show| named(show, "a.yaml") == 2).await;
}

#[tokio::test]
async fn a_kind_that_is_not_read_is_reported_once() {
    let pod = |name: &str| format!("apiVersion: v1\nkind: LimitRange\nmetadata:\n  name: {name}\n");
    let mut show = Show::start(|folder| {
        fs::write(folder.join("a.yaml"), pod("a") + "---\n" + &pod("b")).unwrap();
        fs::write(folder.join("b.yaml"), pod("c")).unwrap();
    })
    .await;
    assert_eq!(show.reasons(), ["UnknownKind"]);
    fs::remove_file(show.path("a.yaml")).unwrap();
    let (gone, left) = (show.path("a.yaml"), show.path("b.yaml"));
    show.until("the other file", |show| {
        show.findings.get(&left).is_some_and(|it| it.len() == 1) && show.findings[&gone].is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_burst_ends_with_all_of_it() {
    let mut show = Show::start(|_| {}).await;
    for number in 0..500 {
        let name = format!("m{number}");
        fs::write(show.path(&format!("{name}.yaml")), config_map(&name, "1")).unwrap();
    }
    show.until("all files", |show| (0..500).all(|number| show.data(&format!("m{number}")).is_some())).await;
    assert!(show.reasons().is_empty());
}

#[test]
fn a_pair_read_while_volumes_are_swapped_is_never_mixed() {
    let folder = tempfile::tempdir().unwrap();
    let pems = [pem(1), pem(2)];
    swap_volume(folder.path(), 0, &pems[0]);
    let unit = unit::Unit::of(&folder.path().join("tls.key")).unwrap();
    std::thread::scope(|scope| {
        let swaps = scope.spawn(|| {
            for (version, pem) in (1..200).zip(pems.iter().cycle().skip(1)) {
                swap_volume(folder.path(), version, pem);
            }
        });
        while !swaps.is_finished() {
            if let Ok(([certificate, key], _)) = read::read(&unit) {
                let whole =
                    |pem: &Pem| *certificate == pem.certificate.as_bytes() && *key == pem.key.as_bytes();
                assert!(pems.iter().any(whole));
            }
        }
    });
    assert!(read::read(&unit).is_ok());
}
