use std::sync::Arc;

use super::*;
use crate::ca::fixtures::{namespace, self_signed};
use crate::ca::store::memory::Memory;

async fn world(namespaces: &[&str]) -> (Memory, Arc<Authority>) {
    let store = Memory::default();
    store.contents().namespaces = namespaces.iter().map(|name| namespace(name, &[])).collect();
    let authority = self_signed(&store).await.authority;
    (store, authority)
}

async fn run(store: &Memory, authority: &Authority) -> Distributed {
    distribute(store, authority, "istio-system", &MapNames::default()).await.unwrap()
}

fn data(store: &Memory, namespace: &str, name: &str) -> BTreeMap<String, String> {
    store.contents().config_maps.get(&ObjectName::new(namespace, name)).unwrap().data.clone()
}

#[tokio::test]
async fn every_namespace_but_the_ignored_gets_the_roots() {
    let all = ["shop", "kube-system", "istio-system", "kube-public", "kube-node-lease", "local-path-storage"];
    let (store, authority) = world(&all).await;
    assert_eq!(run(&store, &authority).await.written, 3 + 1);
    let pem = authority.roots().to_pem();
    assert_eq!(data(&store, "shop", ROOT_MAP), BTreeMap::from([("root-cert.pem".to_owned(), pem.clone())]));
    assert_eq!(data(&store, "istio-system", CLASSIC_MAP)["caTLSRootCert"], STANDARD.encode(pem));
    assert!(!store.contents().config_maps.contains_key(&ObjectName::new("kube-public", ROOT_MAP)));
    let label = store.contents().config_maps[&ObjectName::new("shop", ROOT_MAP)].labels.clone();
    assert_eq!(label.get("istio.io/config").map(String::as_str), Some("true"));
    assert_eq!(run(&store, &authority).await, Distributed::default(), "nothing changes, nothing is written");
}

#[tokio::test]
async fn ca_19_hand_edits_are_healed_and_other_keys_kept() {
    let (store, authority) = world(&["shop"]).await;
    run(&store, &authority).await;
    let name = ObjectName::new("shop", ROOT_MAP);
    {
        let mut contents = store.contents();
        let map = contents.config_maps.get_mut(&name).unwrap();
        map.data.insert("root-cert.pem".to_owned(), "edited".to_owned());
        map.data.insert("mine".to_owned(), "kept".to_owned());
    }
    assert_eq!(run(&store, &authority).await.written, 1);
    let healed = data(&store, "shop", ROOT_MAP);
    assert_eq!(healed["root-cert.pem"], authority.roots().to_pem());
    assert_eq!(healed["mine"], "kept");
    store.contents().config_maps.remove(&name);
    assert_eq!(run(&store, &authority).await.written, 1, "a deleted map comes back");
}

#[tokio::test]
async fn a_map_without_data_is_filled() {
    let (store, authority) = world(&["shop"]).await;
    run(&store, &authority).await;
    store.contents().config_maps.values_mut().for_each(|map| map.data.clear());
    assert_eq!(run(&store, &authority).await.written, 2);
}

#[tokio::test]
async fn ca_20_namespaces_that_go_away_are_no_error() {
    let (store, authority) = world(&["shop", "leaving"]).await;
    store.contents().namespaces[1].terminating = true;
    let done = run(&store, &authority).await;
    assert_eq!((done.written, done.failed.len()), (2, 0));
    // It began to go away after the namespaces were read.
    store.contents().fail_writes = Some(StoreError::NamespaceTerminating("shop".to_owned()));
    store.contents().config_maps.clear();
    assert_eq!(run(&store, &authority).await, Distributed::default());
}

#[tokio::test]
async fn a_forbidden_write_is_reported_and_keeps_nobody_else_waiting() {
    let (store, authority) = world(&["shop"]).await;
    store.contents().fail_writes = Some(StoreError::Forbidden("403".to_owned()));
    assert_eq!(run(&store, &authority).await.failed.len(), 2);
    store.contents().fail_writes = None;
    assert_eq!(run(&store, &authority).await.written, 2);
}

#[tokio::test]
async fn a_namespace_that_appears_later_is_served() {
    let (store, authority) = world(&["shop"]).await;
    run(&store, &authority).await;
    store.contents().namespaces.push(namespace("late", &[]));
    assert_eq!(run(&store, &authority).await.written, 1);
}
