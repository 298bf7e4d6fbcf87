use serde_json::{Value, json};

use super::*;

fn name(namespace: &str, name: &str) -> ObjectName {
    ObjectName::new(namespace, name)
}

fn kept(folder: &Path) -> Kept {
    Kept::new(folder.join("objects"), "api.test:6443".into())
}

/// The texts of a shelf, in order.
fn texts(kept: &Kept, shelf: &Shelf) -> Vec<String> {
    let loaded = kept.load(shelf).expect("the shelf is complete");
    let mut texts: Vec<_> =
        loaded.objects.iter().map(|text| String::from_utf8(text.to_vec()).unwrap()).collect();
    texts.sort();
    texts
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn what_is_put_is_loaded_until_it_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let kept = kept(folder.path());
    let shelf = kept.shelf("secrets");
    kept.prepare(&shelf).unwrap();
    // Longer together than the name of one file may be.
    let long = name(&"n".repeat(63), &"a".repeat(253));
    shelf.put(&name("shop", "tls"), b"1").unwrap();
    shelf.put(&name("", "class"), b"2").unwrap();
    shelf.put(&long, b"3").unwrap();
    assert!(kept.load(&shelf).is_none(), "it was never complete");
    kept.confirm(&shelf, "17", 1_800_000_000).unwrap();
    assert_eq!(texts(&kept, &shelf), ["1", "2", "3"]);
    let label = kept.load(&shelf).unwrap().label;
    assert_eq!((label.version.as_str(), label.confirmed), ("17", 1_800_000_000));

    shelf.put(&name("shop", "tls"), b"4").unwrap();
    shelf.remove(&long).unwrap();
    shelf.remove(&long).unwrap();
    assert_eq!(texts(&kept, &shelf), ["2", "4"]);
    assert_eq!(kept.load_one(&shelf, &name("shop", "tls")).unwrap().objects[0].as_slice(), b"4");
    assert!(kept.load_one(&shelf, &long).unwrap().objects.is_empty());
    shelf.retain(&HashSet::from([name("", "class")])).unwrap();
    assert_eq!(texts(&kept, &shelf), ["2"]);
}

#[test]
fn nobody_else_may_read_it() {
    let folder = tempfile::tempdir().unwrap();
    let kept = kept(folder.path());
    fs::create_dir(&kept.root).unwrap();
    fs::set_permissions(&kept.root, Permissions::from_mode(0o755)).unwrap();
    let shelf = kept.shelf("secrets");
    kept.prepare(&shelf).unwrap();
    shelf.put(&name("shop", "tls"), b"key").unwrap();
    kept.confirm(&shelf, "1", 0).unwrap();
    for path in [&kept.root, &shelf.path, &shelf.path.join("shop")] {
        assert_eq!(mode(path), 0o700, "{}", path.display());
    }
    for path in [shelf.path.join("shop/tls"), shelf.path.join(LABEL)] {
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[test]
fn what_another_server_said_counts_for_nothing_and_goes() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (kept(folder.path()), Kept::new(folder.path().join("objects"), "other.test".into()));
    let shelf = one.shelf("secrets");
    one.prepare(&shelf).unwrap();
    shelf.put(&name("shop", "tls"), b"key").unwrap();
    one.confirm(&shelf, "1", 0).unwrap();
    assert!(other.load(&shelf).is_none());
    other.prepare(&shelf).unwrap();
    other.confirm(&shelf, "1", 0).unwrap();
    assert_eq!(texts(&other, &shelf), [""; 0]);
}

#[test]
fn a_damaged_file_costs_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let kept = kept(folder.path());
    let shelf = kept.shelf("secrets");
    kept.prepare(&shelf).unwrap();
    shelf.put(&name("shop", "good"), b"1").unwrap();
    shelf.put(&name("shop", "huge"), b"1").unwrap();
    kept.confirm(&shelf, "1", 0).unwrap();
    // What a crash in the middle of a write leaves behind, and a file that nobody wrote.
    fs::write(shelf.path.join(".4711"), "half").unwrap();
    File::options().write(true).open(shelf.path.join("shop/huge")).unwrap().set_len(LARGEST + 1).unwrap();
    let loaded = kept.load(&shelf).unwrap();
    assert_eq!((loaded.objects.len(), loaded.unreadable), (1, 1));

    fs::write(shelf.path.join(LABEL), "{").unwrap();
    assert!(kept.load(&shelf).is_none(), "without its label nobody knows whose it is");
}

#[test]
fn what_is_the_same_is_not_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let kept = kept(folder.path());
    let shelf = kept.shelf("services");
    kept.prepare(&shelf).unwrap();
    let path = shelf.path.join("shop/web");
    let inode = || std::os::unix::fs::MetadataExt::ino(&fs::metadata(&path).unwrap());
    shelf.put(&name("shop", "web"), b"1").unwrap();
    let before = inode();
    shelf.put(&name("shop", "web"), b"1").unwrap();
    assert_eq!(inode(), before);
}

#[test]
fn an_object_is_kept_without_what_only_servers_need_and_reads_back_the_same() {
    let object = json!({
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7", "generation": 3,
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": { "a": "b" },
            "annotations": { "x/y": "z", "kubectl.kubernetes.io/last-applied-configuration": "{}" },
            "managedFields": [{ "manager": "kubectl" }],
        },
        "spec": { "list": [1, true, null, "text"], "fraction": 1.5 },
        "status": { "loadBalancer": {} },
    });
    let text = object.to_string();
    let node: Node = serde_json::from_str(&text).unwrap();
    let kept: Value = serde_json::from_slice(&text_of(&node)).unwrap();
    let mut expected = object.clone();
    let metadata = expected["metadata"].as_object_mut().unwrap();
    metadata.remove("generation");
    metadata.remove("managedFields");
    metadata["annotations"]
        .as_object_mut()
        .unwrap()
        .remove("kubectl.kubernetes.io/last-applied-configuration");
    expected["spec"]["fraction"] = json!(0.5);
    assert_eq!(kept, expected);
}

#[test]
fn it_is_forgotten_for_good() {
    let folder = tempfile::tempdir().unwrap();
    let kept = kept(folder.path());
    let shelf = kept.shelf("secrets");
    kept.prepare(&shelf).unwrap();
    shelf.put(&name("shop", "tls"), b"key").unwrap();
    forget(&kept.root);
    forget(&kept.root);
    assert!(!kept.root.exists());
}
