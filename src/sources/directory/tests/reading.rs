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
