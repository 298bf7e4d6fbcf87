//! What one look at a folder makes of its files: objects, pairs, findings.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::{config_map, pem, write_pair};
use crate::diagnostics::{Diagnostic, Severity};
use crate::sources::directory::{Directory, read as file};
use crate::store::Event;
use crate::store::objects::Object;

pub fn read(prepare: impl FnOnce(&Path)) -> (Vec<Event>, Vec<Diagnostic>) {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path());
    let source = Directory { roots: vec![folder.path().into()], pem_namespace: "pem".into() };
    let batch = source.read();
    (batch.events, batch.findings.into_iter().flat_map(|file| file.diagnostics).collect())
}

pub fn names(events: &[Event]) -> Vec<String> {
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
fn settings_beside_manifests_are_no_error() {
    let (events, findings) = read(|folder| {
        fs::write(folder.join("settings.yaml"), "log-level: debug\n").unwrap();
        fs::write(folder.join("settings.json"), config_map("kept", "1")).unwrap();
        fs::create_dir(folder.join("more")).unwrap();
        fs::write(folder.join("more/settings.yaml"), "log-level: debug\n").unwrap();
    });
    assert_eq!(names(&events), ["kept"], "objects are read from a file of any name");
    let told: Vec<_> = findings.iter().map(|it| (it.severity, it.reason)).collect();
    assert_eq!(told, [(Severity::Error, "NotAnObject"), (Severity::Info, "SettingsFile")]);
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
        fs::File::create(folder.join("large.yaml")).unwrap().set_len(file::LARGEST + 1).unwrap();
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
    assert_eq!(reasons, ["TooDeep", "TooLarge", "Unreadable"]);
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
        fs::write(folder.join("ca.key"), "not read").unwrap();
        for name in ["_.shop.example", "shop.example", "*"] {
            let pem = pem(4);
            fs::write(folder.join(format!("{name}.crt")), pem.certificate).unwrap();
            fs::write(folder.join(format!("{name}.key")), pem.key).unwrap();
        }
        write_pair(&folder.join("*.bar.example"), &pem(5));
        write_pair(&folder.join("bar.example"), &pem(6));
    });
    let expected = [
        "bar.example",
        "live.example",
        "mail",
        "shop-a",
        "shop.example",
        "wildcard",
        "wildcard.bar.example",
        "wildcard.shop.example",
    ];
    assert_eq!(names(&events), expected);
    assert!(findings.is_empty(), "{findings:?}");
}

#[test]
fn pairs_of_the_same_name_are_both_told() {
    let (events, findings) = read(|folder| {
        write_pair(&folder.join("Shop"), &pem(1));
        write_pair(&folder.join("shop"), &pem(2));
    });
    assert_eq!(names(&events), ["shop"]);
    let [finding] = &findings[..] else { panic!("{findings:?}") };
    assert_eq!(finding.reason, "Duplicate");
    assert!(finding.to_string().contains("/shop/tls.crt: Secret pem/shop: "), "{finding}");
    assert!(finding.message.contains("/Shop/tls.crt "), "{finding}");
}

#[test]
fn faults_of_a_key_are_told_under_its_file() {
    let (_, findings) = read(|folder| {
        let pem = pem(1);
        for name in ["broken", "folder", "missing"] {
            fs::write(folder.join(format!("{name}.crt")), &pem.certificate).unwrap();
        }
        let key = pem.key.replace("-----END", "----END");
        fs::write(folder.join("broken.key"), key).unwrap();
        fs::create_dir(folder.join("folder.key")).unwrap();
        fs::write(folder.join("alone.key"), &pem.key).unwrap();
    });
    let told = |finding: &Diagnostic| {
        let file = finding.file.as_ref().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
        (file, finding.object.as_ref().unwrap().to_string(), finding.reason)
    };
    let told: Vec<_> = findings.iter().map(told).collect();
    let expected = [
        ("alone.key", "Secret pem/alone", "CertificateMissing"),
        ("broken.key", "Secret pem/broken", "PemInvalid"),
        ("folder.key", "Secret pem/folder", "NotAFile"),
        ("missing.crt", "Secret pem/missing", "KeyMissing"),
    ];
    assert_eq!(told, expected.map(|(file, object, reason)| (file.to_owned(), object.to_owned(), reason)));
}

#[test]
fn findings_of_one_file_are_bounded() {
    let (events, findings) = read(|folder| {
        fs::write(folder.join("words.yaml"), "---\nx\n".repeat(10_000)).unwrap();
        let kinds = |number| format!("---\napiVersion: v1\nkind: K{number}\nmetadata: {{name: a}}\n");
        fs::write(folder.join("kinds.yaml"), (0..10_000).map(kinds).collect::<String>()).unwrap();
        let same =
            (0..1000).map(|number| config_map(&format!("m{number}"), "1") + "---\n").collect::<String>();
        fs::write(folder.join("a.yaml"), &same).unwrap();
        fs::write(folder.join("b.yaml"), &same).unwrap();
    });
    assert_eq!(events.len(), 1000);
    let count = |reason| findings.iter().filter(|finding| finding.reason == reason).count();
    assert_eq!((count("NotAnObject"), count("UnknownKind"), count("Duplicate")), (200, 201, 200));
    assert!(findings.iter().any(|it| it.message == "and 9800 more findings in this file"));
    assert!(findings.iter().any(|it| it.message == "and 9800 objects of other kinds that are not read"));
    assert!(findings.iter().any(|it| it.message == "and 800 more findings in this file"));
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
