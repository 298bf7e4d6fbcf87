use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::ca::fixtures::{NOW, start_twenty};
use crate::ca::roots::{RootOptions, load_or_create, rotate};
use crate::ca::store::Account;

fn store() -> (tempfile::TempDir, Directory) {
    let folder = tempfile::tempdir().unwrap();
    let store = Directory::new(folder.path().join("state"), vec![folder.path().join("manifests")]);
    fs::create_dir(folder.path().join("manifests")).unwrap();
    (folder, store)
}

fn secret(text: &str) -> Secret {
    let mut secret = Secret::new(ObjectName::new("shop", "istio.web"), "istio.io/key-and-cert");
    secret.data.insert("key.pem".to_owned(), text.into());
    secret.annotations.insert("a".to_owned(), "b".to_owned());
    secret.owner = Some(Account { name: ObjectName::new("shop", "web"), uid: "u".to_owned() });
    secret
}

#[tokio::test]
async fn what_is_written_is_read_and_a_version_is_needed_to_replace() {
    let (_folder, store) = store();
    let mut written = secret("one");
    store.write_secret(&written).await.unwrap();
    let error = store.write_secret(&written).await.unwrap_err();
    assert_eq!(error, StoreError::AlreadyExists(written.name.clone()));
    let read = store.secret(&written.name).await.unwrap().unwrap();
    assert_eq!(Secret { version: None, ..read.clone() }, written);

    written = Secret { version: read.version.clone(), ..secret("two") };
    store.write_secret(&written).await.unwrap();
    assert_eq!(store.write_secret(&written).await.unwrap_err(), StoreError::Conflict(written.name.clone()));
    assert_eq!(store.secrets("istio.io/key-and-cert").await.unwrap()[0].bytes("key.pem"), b"two");
    assert!(store.secrets("other").await.unwrap().is_empty());
    let stale = store.delete_secret(&read).await.unwrap_err();
    assert_eq!(stale, StoreError::Conflict(written.name.clone()), "somebody wrote in between");
    let read = store.secret(&written.name).await.unwrap().unwrap();
    store.delete_secret(&read).await.unwrap();
    store.delete_secret(&read).await.unwrap();
    assert_eq!(store.secret(&written.name).await.unwrap(), None);
}

#[tokio::test]
async fn secrets_are_for_their_owner_alone_and_leave_no_drafts() {
    let (folder, store) = store();
    store.write_secret(&secret("one")).await.unwrap();
    let place = folder.path().join("state/secrets/shop");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&place.join("istio.web.json")), 0o600);
    assert_eq!(mode(&place), 0o700);
    assert_eq!(list(&place).unwrap().len(), 1);
}

#[tokio::test]
async fn names_cannot_leave_the_directory() {
    let (_folder, store) = store();
    for name in ["..", ".", "", "a/b", "../x", ".hidden", "a\0b"] {
        let name = ObjectName::new("shop", name);
        assert!(matches!(store.secret(&name).await, Err(StoreError::Malformed { .. })), "{name}");
        let name = ObjectName::new(name.name.clone(), "web");
        assert!(matches!(store.secret(&name).await, Err(StoreError::Malformed { .. })), "{name}");
    }
}

#[tokio::test]
async fn broken_files_are_named_and_not_quoted() {
    let (folder, store) = store();
    store.write_secret(&secret("one")).await.unwrap();
    let path = folder.path().join("state/secrets/shop/istio.web.json");
    for content in
        ["SECRETWORD", r#"{"kind":"ConfigMap"}"#, r#"{"kind":"Secret","data":{"k":"SECRETWORD!"}}"#]
    {
        fs::write(&path, content).unwrap();
        let error = store.secret(&secret("").name).await.unwrap_err().to_string();
        assert!(error.contains("istio.web.json") && !error.contains("SECRETWORD"), "{error}");
    }
}

#[tokio::test]
async fn a_broken_file_keeps_no_other_from_being_read_and_is_made_anew() {
    let (folder, store) = store();
    let name = |name: &str| ObjectName::new("shop", name);
    let map = |map: &str| ConfigMap {
        name: name(map),
        labels: BTreeMap::new(),
        data: BTreeMap::from([("k".to_owned(), "v".to_owned())]),
        version: None,
    };
    let db = Secret { name: name("istio.db"), ..secret("db") };
    for secret in [&secret("web"), &db, &Secret::new(name("other"), "Opaque")] {
        store.write_secret(secret).await.unwrap();
    }
    for map in [map("roots"), map("foreign")] {
        store.write_config_map(&map).await.unwrap();
    }
    let place = folder.path().join("state");
    for broken in ["", "{", "[]", r#"{"kind":"Secret","metadata":{"name":"x"},"data":{"k":"!"}}"#] {
        for file in ["secrets/shop/istio.web.json", "secrets/shop/other.json"] {
            fs::write(place.join(file), broken).unwrap();
        }
        for file in ["configmaps/shop/roots.json", "configmaps/shop/foreign.json"] {
            fs::write(place.join(file), broken).unwrap();
        }
        let [found, web] = &store.secrets(accounts::SECRET_TYPE).await.unwrap()[..] else {
            panic!("{broken}")
        };
        assert_eq!((found.bytes("key.pem"), &web.name), (&b"db"[..], &name("istio.web")), "{broken}");
        assert!(web.data.is_empty(), "{broken}");
        store.write_secret(&Secret { version: web.version.clone(), ..secret("anew") }).await.unwrap();
        assert_eq!(store.secret(&name("istio.web")).await.unwrap().unwrap().bytes("key.pem"), b"anew");
        assert_eq!(store.secrets("Opaque").await.unwrap(), [], "nobody could make that one anew: {broken}");
        assert_eq!(store.issued_secrets().await.unwrap(), [], "{broken}");

        let [roots] = &store.config_maps("roots").await.unwrap()[..] else { panic!("{broken}") };
        assert!(roots.data.is_empty(), "{broken}");
        store.write_config_map(&ConfigMap { version: roots.version.clone(), ..map("roots") }).await.unwrap();
        assert_eq!(store.config_maps("roots").await.unwrap()[0].data["k"], "v", "{broken}");
    }

    // What cannot even be read is not replaced, and whoever tries is told.
    fs::remove_file(place.join("secrets/shop/istio.web.json")).unwrap();
    fs::create_dir(place.join("secrets/shop/istio.web.json")).unwrap();
    let all = store.secrets(accounts::SECRET_TYPE).await.unwrap();
    assert_eq!(all.iter().map(|secret| &*secret.name.name).collect::<Vec<_>>(), ["istio.db", "istio.web"]);
    let error = store.write_secret(&all[1]).await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Unavailable(reason) if reason.contains("istio.web.json")),
        "{error}"
    );
}

#[tokio::test]
async fn an_object_has_the_name_of_its_file() {
    let (folder, store) = store();
    store.write_secret(&secret("one")).await.unwrap();
    let place = folder.path().join("state/secrets/shop");
    fs::copy(place.join("istio.web.json"), place.join("istio.db.json")).unwrap();
    let names: Vec<_> = store.secrets(accounts::SECRET_TYPE).await.unwrap();
    let names: Vec<_> = names.iter().map(|secret| &*secret.name.name).collect();
    assert_eq!(names, ["istio.db", "istio.web"]);
    let db = ObjectName::new("shop", "istio.db");
    assert_eq!(store.secret(&db).await.unwrap().unwrap().name, db);
}

#[tokio::test]
async fn a_service_removes_drafts_that_a_process_left_when_it_died() {
    let (folder, store) = store();
    store.write_secret(&secret("one")).await.unwrap();
    let place = folder.path().join("state/secrets/shop");
    for (name, age) in [(".draft-1-0", 2 * DRAFT_IS_LEFT), (".draft-2-0", Duration::ZERO)] {
        let draft = File::create(place.join(name)).unwrap();
        draft.set_modified(std::time::SystemTime::now() - age).unwrap();
    }
    let _followed = store.follow();
    let left: Vec<_> = list(&place).unwrap();
    assert_eq!(left, [place.join(".draft-2-0"), place.join("istio.web.json")]);
}

#[tokio::test]
async fn a_manifest_with_a_fault_in_it_stays_what_it_was() {
    let (folder, store) = store();
    let write = |file: &str, text: &str| fs::write(folder.path().join("manifests").join(file), text).unwrap();
    let account = |name: &str| format!("kind: ServiceAccount\nmetadata: {{name: {name}, namespace: shop}}\n");
    let ingress =
        "kind: Ingress\nmetadata: {name: web, namespace: shop}\nspec: {rules: [{host: a.example}]}\n";
    let names = async |store: &Directory| {
        let accounts = store.accounts().await.unwrap();
        let names = accounts.list.iter().map(|account| account.name.name.to_string()).collect::<Vec<_>>();
        (names, accounts.complete)
    };
    write("web.yaml", &format!("{}---\n{ingress}", account("web")));
    assert_eq!(names(&store).await, (vec!["web".to_owned()], true));
    write("web.yaml", "kind: [\n");
    write("db.yaml", &account("db"));
    assert_eq!(names(&store).await, (vec!["db".to_owned(), "web".to_owned()], true));
    assert_eq!(store.ingresses().await.unwrap().len(), 1);

    // Whoever has not seen the file before does not take its accounts for gone, nor its hosts for nobody's.
    let new = Directory::new(folder.path().join("state"), vec![folder.path().join("manifests")]);
    assert_eq!(names(&new).await, (vec!["db".to_owned()], false));
    assert!(matches!(new.ingresses().await, Err(StoreError::Malformed { .. })));
    assert_eq!(new.namespaces().await.unwrap().len(), 1);

    write("web.yaml", &account("web"));
    assert_eq!(names(&new).await, (vec!["db".to_owned(), "web".to_owned()], true));
    fs::remove_file(folder.path().join("manifests/web.yaml")).unwrap();
    assert_eq!(names(&store).await, (vec!["db".to_owned()], true));
}

#[tokio::test]
async fn accounts_and_namespaces_come_from_manifests() {
    let (folder, store) = store();
    let manifest = "\
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {ca.istio.io/override: \"false\"}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: web, namespace: shop}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
";
    fs::write(folder.path().join("manifests/all.yaml"), manifest).unwrap();
    let list =
        r#"{"kind":"List","items":[{"kind":"ServiceAccount","metadata":{"name":"db","namespace":"data"}}]}"#;
    fs::write(folder.path().join("manifests/list.json"), list).unwrap();
    fs::write(folder.path().join("manifests/.hidden.yaml"), "{").unwrap();
    let names: Vec<String> =
        store.accounts().await.unwrap().list.iter().map(|account| account.name.to_string()).collect();
    assert_eq!(names, ["data/db", "shop/web"]);
    let namespaces = store.namespaces().await.unwrap();
    assert_eq!(namespaces.len(), 2);
    assert_eq!(namespaces[1].labels.get("ca.istio.io/override").map(String::as_str), Some("false"));
}

#[test]
fn twenty_starters_on_one_directory_get_one_root() {
    let (_folder, store) = store();
    assert_eq!(start_twenty(&store).len(), 1);
}

#[tokio::test]
async fn rotation_works_on_files() {
    let (_folder, store) = store();
    let old = load_or_create(&store, &RootOptions::default(), NOW).await.unwrap();
    let new = rotate(&store, &RootOptions::default(), NOW).await.unwrap();
    assert_ne!(old.authority.signer().serial, new.authority.signer().serial);
    assert_eq!(new.authority.roots().len(), 2);
}

#[tokio::test]
async fn a_followed_store_is_told_of_changes_and_looks_at_nothing_meanwhile() {
    let (folder, plain) = store();
    let store = plain.clone().follow();
    let told = async |since: &Revision| {
        tokio::time::timeout(std::time::Duration::from_secs(20), store.changed(since)).await.unwrap();
        // What comes with it: a write is more than one event.
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        store.revision().await.unwrap()
    };
    let quiet = store.revision().await.unwrap();
    // Reading is no change.
    store.secrets("istio.io/key-and-cert").await.unwrap();
    store.accounts().await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert_eq!(store.revision().await.unwrap(), quiet);

    // Somebody else's write, in a namespace that had no folder.
    plain.write_secret(&secret("one")).await.unwrap();
    let written = told(&quiet).await;
    assert_ne!(written, quiet);
    let read = store.secret(&secret("").name).await.unwrap().unwrap();
    plain.write_secret(&read).await.unwrap();
    let replaced = told(&written).await;
    assert_ne!(replaced, written);
    fs::write(folder.path().join("manifests/a.yaml"), "kind: Namespace\nmetadata: {name: a}\n").unwrap();
    assert_ne!(told(&replaced).await, replaced);
}

#[tokio::test]
async fn ingresses_claim_the_hosts_of_their_rules_and_ask_by_annotation_unless_the_secret_is_given() {
    let (folder, store) = store();
    let manifest = r#"
kind: Ingress
metadata:
  name: web
  namespace: shop
  creationTimestamp: "2026-01-01T00:00:00Z"
  annotations: {portcullis.dev/issue-certificate: "true"}
spec:
  tls: [{secretName: one, hosts: [a.example]}, {secretName: rules}, {secretName: given, hosts: [c.example]}]
  rules: [{host: b.example}]
---
kind: Ingress
metadata: {name: other, namespace: shop, annotations: {nginx.ingress.kubernetes.io/issue-certificate: "true"}}
spec: {tls: [{secretName: two, hosts: [d.example]}], rules: [{host: D.example}]}
---
kind: Secret
metadata: {name: given, namespace: shop}
"#;
    fs::write(folder.path().join("manifests/web.yaml"), manifest).unwrap();
    let ingresses = store.ingresses().await.unwrap();
    let seen: Vec<_> = ingresses
        .iter()
        .flat_map(|ingress| &ingress.requests)
        .map(|it| format!("{} {}", it.secret, it.hosts.join(",")))
        .collect();
    assert_eq!(seen, ["shop/one a.example", "shop/rules b.example"]);
    let claims: Vec<_> = ingresses.iter().map(|it| (it.created, it.claims.join(","))).collect();
    assert_eq!(claims, [(Some(1_767_225_600), "b.example".to_owned()), (None, "d.example".to_owned())]);
    store.write_secret(&secret("one")).await.unwrap();
    assert!(store.issued_secrets().await.unwrap().is_empty(), "not every Secret in the state is a host's");
}

#[tokio::test]
async fn the_revision_changes_with_every_change_and_with_nothing_else() {
    let (folder, store) = store();
    let mut seen = vec![store.revision().await.unwrap()];
    let mut expect_change = async || {
        let now = store.revision().await.unwrap();
        assert!(!seen.contains(&now));
        assert_eq!(store.revision().await.unwrap(), now);
        seen.push(now);
    };
    store.write_secret(&secret("one")).await.unwrap();
    expect_change().await;
    let read = store.secret(&secret("").name).await.unwrap().unwrap();
    store.write_secret(&read).await.unwrap();
    expect_change().await;
    fs::write(folder.path().join("manifests/a.yaml"), "kind: Namespace\nmetadata: {name: a}\n").unwrap();
    expect_change().await;
    store.delete_secret(&read).await.unwrap();
    expect_change().await;
}
