mod ready_policies;

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
use crate::sources::origins::Origins;
use crate::store::objects::{Kind, Object, ObjectName, SecretOrigin};
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
    /// Every event since the last look, as "apply Secret web/tls".
    log: Vec<String>,
}

impl Show {
    async fn start(prepare: impl FnOnce(&Path)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        prepare(folder.path());
        let (sender, batches) = mpsc::channel(4);
        let source = Directory { roots: vec![folder.path().into()], pem_namespace: "pem".into() };
        tokio::spawn(source.run(sender));
        let mut show = Self {
            folder,
            batches,
            store: Store::new(),
            findings: BTreeMap::new(),
            origins: Origins::default(),
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
                Event::Replace(kind, _) => format!("replace {kind}"),
                Event::Staple(_) | Event::StapleGone(_) => unreachable!("not from a folder"),
            });
            self.store.apply(event);
        }
        batch.origins.into_iter().for_each(|origin| self.origins.apply(origin));
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

fn read(prepare: impl FnOnce(&Path)) -> (Vec<Event>, Vec<Diagnostic>) {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path());
    let source = Directory { roots: vec![folder.path().into()], pem_namespace: "pem".into() };
    let batch = source.read();
    (batch.events, batch.findings.into_iter().flat_map(|file| file.diagnostics).collect())
}

fn names(events: &[Event]) -> Vec<String> {
    let name = |event: &Event| match event {
        Event::Apply(object) => object.metadata().name.name.to_string(),
        other => panic!("{other:?}"),
    };
    let mut names: Vec<_> = events.iter().map(name).collect();
    names.sort();
    names
}

#[test]
fn a_broken_document_leaves_the_others() {
    let text = "\u{feff}".to_owned()
        + &config_map("a", "1")
        + "---\nkind: ]\n---\n"
        + &config_map("b", "1")
        + "...\n# nothing\n--- # three\n"
        + &config_map("c", "1");
    for text in [text.clone(), text.replace('\n', "\r\n")] {
        let (events, findings) = read(|folder| fs::write(folder.join("a.yaml"), &text).unwrap());
        assert_eq!(names(&events), ["a", "b", "c"]);
        let [finding] = &findings[..] else { panic!("{findings:?}") };
        assert_eq!(finding.reason, "InvalidYaml");
        assert!(finding.message.starts_with("line 8: "), "{}", finding.message);
    }
}

#[test]
fn separators_inside_a_block_scalar_are_content_when_indented() {
    let scalar = "|\n    -----BEGIN X-----\n    ---\n    ...";
    let text = config_map("a", "1").replace("\"1\"", scalar);
    let (events, findings) = read(|folder| fs::write(folder.join("a.yaml"), text).unwrap());
    let [Event::Apply(Object::ConfigMap(map))] = &events[..] else { panic!("{findings:?}") };
    assert_eq!(map.data["value"], "-----BEGIN X-----\n---\n...\n");
}

#[test]
fn lists_are_taken_apart() {
    let (events, findings) = read(|folder| {
        let list = r#"{"apiVersion":"v1","kind":"List","items":[
            {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}},
            {"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"}}]},
            7]}"#;
        fs::write(folder.join("list.json"), list).unwrap();
        let typed = r#"{"apiVersion":"v1","kind":"ConfigMapList","items":[{"metadata":{"name":"c"}}]}
            {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"d"}}"#;
        fs::write(folder.join("typed.json"), typed).unwrap();
    });
    assert_eq!(names(&events), ["a", "b", "c", "d"]);
    assert_eq!(findings.iter().map(|it| it.reason).collect::<Vec<_>>(), ["NotAnObject"]);
}

#[test]
fn hostile_files_are_refused_with_a_reason() {
    let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
    for level in 1..9 {
        let alias = format!("*a{}", level - 1);
        bomb += &format!("a{level}: &a{level} [{}]\n", [alias.as_str(); 9].join(","));
    }
    let deep = "[".repeat(5_000);
    let deep_json = "{\"a\":".repeat(5_000);
    let long = config_map(&"n".repeat(1 << 20), "1");
    let cases: [(&str, &[u8], &str); 8] = [
        ("bomb.yaml", bomb.as_bytes(), "TooComplex"),
        ("deep.yaml", deep.as_bytes(), "InvalidYaml"),
        ("deep.json", deep_json.as_bytes(), ""),
        ("binary.yaml", b"a: 1\nb: \xff\n", "NotUtf8"),
        ("long.yaml", long.as_bytes(), "InvalidName"),
        ("twice.yaml", b"a: 1\na: 2\n", "DuplicateKey"),
        ("word.yaml", b"apiVersi", "NotAnObject"),
        ("half.json", b"{\"kind\":", "InvalidJson"),
    ];
    for (name, text, reason) in cases {
        let (events, findings) = read(|folder| fs::write(folder.join(name), text).unwrap());
        assert!(events.is_empty(), "{name}");
        let [finding] = &findings[..] else { panic!("{name}: {findings:?}") };
        assert!(reason.is_empty() || finding.reason == reason, "{name}: {finding}");
        assert!(finding.message.len() < 300 && finding.file.is_some(), "{finding}");
    }
}

#[test]
fn large_files_deep_folders_and_loops_are_bounded() {
    let (events, findings) = read(|folder| {
        fs::File::create(folder.join("large.yaml")).unwrap().set_len(read::LARGEST + 1).unwrap();
        let mut deep = folder.to_owned();
        (0..20).for_each(|_| deep.push("d"));
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("a.yaml"), config_map("deep", "1")).unwrap();
        fs::create_dir(folder.join("loop")).unwrap();
        fs::write(folder.join("loop/a.yaml"), config_map("a", "1")).unwrap();
        symlink(folder, folder.join("loop/back")).unwrap();
        symlink("self", folder.join("self")).unwrap();
    });
    assert_eq!(names(&events), ["a"]);
    let mut reasons: Vec<_> = findings.iter().map(|it| it.reason).collect();
    reasons.sort();
    assert_eq!(reasons, ["TooDeep", "TooLarge"]);
}

#[test]
fn a_missing_root_is_a_finding() {
    let source = Directory { roots: vec!["/nonexistent/manifests".into()], pem_namespace: "pem".into() };
    let batch = source.read();
    assert!(batch.synced);
    assert_eq!(batch.findings[0].diagnostics[0].reason, "Unreadable");
}

#[test]
fn pairs_are_named_after_their_folder_or_file() {
    let (events, findings) = read(|folder| {
        write_pair(&folder.join("Shop_A"), &pem(1));
        fs::create_dir(folder.join("live.example")).unwrap();
        let certbot = pem(2);
        fs::write(folder.join("live.example/fullchain.pem"), certbot.certificate).unwrap();
        fs::write(folder.join("live.example/privkey.pem"), certbot.key).unwrap();
        fs::write(folder.join("live.example/chain.pem"), "not read").unwrap();
        let plain = pem(3);
        fs::write(folder.join("mail.crt"), plain.certificate).unwrap();
        fs::write(folder.join("mail.key"), plain.key).unwrap();
        fs::write(folder.join("ca.crt"), "not read").unwrap();
    });
    assert_eq!(names(&events), ["live.example", "mail", "shop-a"]);
    assert!(findings.is_empty(), "{findings:?}");
}

#[test]
fn no_finding_repeats_secret_bytes() {
    let canary = "CANARYCANARYCANARY";
    let texts = [
        format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: a}}\ndata: {{tls.crt: '{canary}!', tls.key: {canary}}}\n"
        ),
        format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: a}}\nstringData:\n  tls.crt: |\n    {canary}\n  tls.key: |\n  {canary}\n bad\n"
        ),
        format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: a}}\nstringData: {{tls.key: \"{canary}\nx"),
        format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: a}}\nstringData: {{tls.crt: [{canary}], tls.key: {canary}}}\n"
        ),
        format!("{{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\"data\":{{\"tls.key\":\"{canary}\n\"}}}}"),
        format!("apiVersion: v1\nkind: Secret\ndata:\n  tls.key: *{canary}\n"),
        format!("apiVersion: v1\nkind: Secret\ndata: !!{canary} &{canary} !!int {canary}\n"),
    ];
    for text in texts {
        let (_, findings) = read(|folder| fs::write(folder.join("a.yaml"), &text).unwrap());
        assert!(!findings.is_empty(), "{text}");
        assert!(!format!("{findings:?}").contains("CANARY"), "{findings:?}");
    }
}

mod properties {
    use proptest::prelude::*;

    use super::super::content::decode;
    use super::super::unit::Unit;
    use zeroize::Zeroizing;

    const MANIFEST: &str = include_str!("fixtures/manifest.yaml");

    fn decode_bytes(bytes: &[u8]) -> usize {
        let unit = Unit { path: "a.yaml".into(), key: None };
        let contents = [Zeroizing::new(bytes.to_vec()), Zeroizing::default()];
        decode(&unit, &contents, &"pem".into(), &ahash::RandomState::new()).objects.len()
    }

    #[test]
    fn the_manifest_itself_is_fine() {
        assert_eq!(decode_bytes(MANIFEST.as_bytes()), 9);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            decode_bytes(&bytes);
        }

        #[test]
        fn arbitrary_text_never_panics(text in "[-\\[\\]{}:,&*!|>'\"%@`a-c \n\t#?.]{0,200}") {
            decode_bytes(text.as_bytes());
        }

        #[test]
        fn a_mutated_manifest_never_panics(
            at in any::<prop::sample::Index>(), length in 0..40usize, with in "(?s).{0,20}",
        ) {
            let mut bytes = MANIFEST.as_bytes().to_vec();
            let start = at.index(bytes.len());
            let end = (start + length).min(bytes.len());
            bytes.splice(start..end, with.bytes());
            decode_bytes(&bytes);
        }

        #[test]
        fn a_manifest_cut_anywhere_never_panics(at in any::<prop::sample::Index>()) {
            decode_bytes(&MANIFEST.as_bytes()[..at.index(MANIFEST.len())]);
        }
    }
}
