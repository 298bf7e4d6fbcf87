use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::ca::fixtures::{HOUR, Made, NOW, account, ca_params, hours, namespace};
use crate::ca::roots::SECRET_NAME;
use crate::ca::store::directory::Directory;
use crate::ca::store::memory::Memory;
use crate::ca::store::{Accounts, ConfigMap, IngressHosts, Namespace, Secret};
use crate::store::objects::ObjectName;

/// A handle on a store that a controller owns, and whether it refuses to show its ConfigMaps or single Secrets. Last whether
/// its revision is the number of its writes.
#[derive(Clone, Default)]
struct Shared(Arc<Memory>, Arc<AtomicBool>, Arc<AtomicBool>, Arc<AtomicBool>);

impl Store for Shared {
    async fn revision(&self) -> Result<Revision, StoreError> {
        match self.3.load(Ordering::Relaxed) {
            true => Ok(Revision(self.0.contents().writes.to_string())),
            false => self.0.revision().await,
        }
    }
    async fn secret(&self, name: &ObjectName) -> Result<Option<Secret>, StoreError> {
        match self.2.load(Ordering::Relaxed) {
            true => Err(StoreError::Unavailable("later".to_owned())),
            false => self.0.secret(name).await,
        }
    }
    async fn secrets(&self, kind: &str) -> Result<Vec<Secret>, StoreError> {
        self.0.secrets(kind).await
    }
    async fn write_secret(&self, secret: &Secret) -> Result<(), StoreError> {
        self.0.write_secret(secret).await
    }
    async fn changed(&self, since: &Revision) {
        self.0.changed(since).await
    }
    async fn delete_secret(&self, secret: &Secret) -> Result<(), StoreError> {
        self.0.delete_secret(secret).await
    }
    async fn config_maps(&self, name: &str) -> Result<Vec<ConfigMap>, StoreError> {
        match self.1.load(Ordering::Relaxed) {
            true => Err(StoreError::Forbidden("ConfigMaps".to_owned())),
            false => self.0.config_maps(name).await,
        }
    }
    async fn write_config_map(&self, map: &ConfigMap) -> Result<(), StoreError> {
        self.0.write_config_map(map).await
    }
    async fn accounts(&self) -> Result<Accounts, StoreError> {
        self.0.accounts().await
    }
    async fn ingresses(&self) -> Result<Vec<IngressHosts>, StoreError> {
        self.0.ingresses().await
    }
    async fn issued_secrets(&self) -> Result<Vec<Secret>, StoreError> {
        self.0.issued_secrets().await
    }
    async fn namespaces(&self) -> Result<Vec<Namespace>, StoreError> {
        self.0.namespaces().await
    }
}

fn options() -> Options {
    let root = RootOptions { life: HOUR, ..RootOptions::default() };
    Options { root, accounts: Some(AccountOptions::default()), hosts: None, maps: MapNames::default() }
}

async fn start(store: &Shared) -> Controller<Shared> {
    Controller::start(store.clone(), options(), None, Metrics::default(), || NOW).await.unwrap()
}

fn maps(store: &Shared) -> Vec<String> {
    store.0.contents().config_maps.values().flat_map(|map| map.data.values().cloned()).collect()
}

#[tokio::test]
async fn a_turn_renews_the_root_and_tells_everyone() {
    let store = Shared::default();
    store.0.contents().namespaces = vec![namespace("shop", &[])];
    store.0.contents().accounts = vec![account("shop", "web")];
    let mut controller = start(&store).await;
    let authority = controller.authority();
    // A turn may be a task of any runtime.
    let turn: std::pin::Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(controller.turn(NOW));
    turn.await;
    let (first, before) = (authority.load_full(), maps(&store));
    controller.turn(NOW + time::Duration::minutes(50)).await;
    let second = authority.load_full();
    assert_ne!(first.signer(), second.signer());
    assert!(second.roots().contains(first.signer()));
    assert_ne!(before, maps(&store));
    let secret = store.0.contents().secrets[&ObjectName::new("shop", "istio.web")].clone();
    assert_eq!(secret.bytes("root-cert.pem"), second.roots().to_pem().as_bytes());
}

#[tokio::test]
async fn config_maps_that_cannot_be_looked_at_keep_no_account_from_its_secret() {
    let store = Shared::default();
    store.0.contents().accounts = vec![account("shop", "web")];
    let mut controller = start(&store).await;
    store.1.store(true, Ordering::Relaxed);
    controller.turn(NOW).await;
    assert!(store.0.contents().secrets.contains_key(&ObjectName::new("shop", "istio.web")));
    assert!(maps(&store).is_empty());
    // It is not done before everything was looked at.
    store.1.store(false, Ordering::Relaxed);
    controller.turn(NOW).await;
    assert!(!maps(&store).is_empty());
}

#[tokio::test]
async fn a_root_that_could_not_be_read_is_looked_for_again_though_nothing_changes() {
    for leads in [true, false] {
        let store = Shared::default();
        let mut controller = start(&store).await;
        controller.write_while(watch::channel(leads).1);
        store.3.store(true, Ordering::Relaxed);
        controller.turn(NOW).await;
        controller.turn(NOW).await;
        roots::rotate(&store, &options().root, NOW).await.unwrap();
        let before = controller.authority().load().signer().serial.clone();
        store.2.store(true, Ordering::Relaxed);
        for _ in 0..3 {
            controller.turn(NOW).await;
        }
        assert_eq!(controller.authority().load().signer().serial, before);
        store.2.store(false, Ordering::Relaxed);
        controller.turn(NOW).await;
        assert_ne!(controller.authority().load().signer().serial, before, "leads: {leads}");
    }
}

#[tokio::test]
async fn a_failed_renewal_leaves_memory_and_config_maps_as_they_were() {
    let store = Shared::default();
    store.0.contents().namespaces = vec![namespace("shop", &[])];
    let mut controller = start(&store).await;
    controller.turn(NOW).await;
    let before = (controller.authority().load().signer().clone(), maps(&store));
    store.0.contents().fail_writes = Some(StoreError::Forbidden("403".to_owned()));
    controller.turn(NOW + time::Duration::minutes(50)).await;
    assert_eq!(before, (controller.authority().load().signer().clone(), maps(&store)));
}

#[tokio::test]
async fn a_store_that_falls_silent_does_not_stop_the_service() {
    let store = Shared::default();
    let mut controller = start(&store).await;
    store.0.contents().fail_reads = Some(StoreError::Unavailable("gone".to_owned()));
    controller.turn(NOW + hours(2)).await;
    assert!(!controller.authority().load().roots().is_empty());
    store.0.contents().fail_reads = None;
    controller.turn(NOW + hours(2)).await;
    assert!(controller.authority().load().signer().is_valid_at(NOW + hours(2)), "and it recovers");
}

#[tokio::test(start_paused = true)]
async fn a_start_waits_for_a_store_that_does_not_answer_and_makes_no_root_meanwhile() {
    let store = Shared::default();
    store.0.contents().fail_reads = Some(StoreError::Unavailable("500".to_owned()));
    let starting = tokio::spawn({
        let store = store.clone();
        async move { start(&store).await.authority().load_full() }
    });
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!starting.is_finished());
    assert!(store.0.contents().secrets.is_empty());
    store.0.contents().fail_reads = None;
    let authority = starting.await.unwrap();
    assert!(store.0.contents().secrets.contains_key(&ObjectName::new("istio-system", SECRET_NAME)));
    assert!(!authority.roots().is_empty());
}

#[tokio::test]
async fn an_incomplete_plugged_in_ca_stops_the_start_and_makes_no_root() {
    let folder = tempfile::tempdir().unwrap();
    let ca = Made::root(ca_params("root"));
    std::fs::write(folder.path().join("ca-key.pem"), ca.key.serialize_pem()).unwrap();
    let store = Shared::default();
    let started =
        Controller::start(store.clone(), options(), Some(folder.path()), Metrics::default(), || NOW).await;
    let error = started.err().unwrap().to_string();
    assert!(error.contains("ca-cert.pem, root-cert.pem, cert-chain.pem"), "{error}");
    assert!(store.0.contents().secrets.is_empty());
}

#[tokio::test]
async fn a_turn_with_nothing_to_do_settles_until_something_changes_or_is_due() {
    let folder = tempfile::tempdir().unwrap();
    let manifests = folder.path().join("manifests");
    std::fs::create_dir(&manifests).unwrap();
    let write = |name: &str| {
        let text = format!("kind: ServiceAccount\nmetadata: {{name: {name}, namespace: shop}}\n");
        std::fs::write(manifests.join(format!("{name}.yaml")), text).unwrap();
    };
    write("web");
    let store = Directory::new(folder.path().join("state"), vec![manifests.clone()]);
    let options = Options { root: RootOptions::default(), ..options() };
    let started = Controller::start(store.clone(), options, None, Metrics::default(), || NOW).await;
    let mut controller = started.unwrap();
    let settled = async |controller: &Controller<Directory>, now| {
        let revision = store.revision().await.unwrap();
        controller.is_settled(&revision, &controller.authority.load(), now)
    };
    controller.turn(NOW).await;
    assert!(!settled(&controller, NOW).await, "it wrote, so it looks once more");
    controller.turn(NOW).await;
    assert!(settled(&controller, NOW).await);
    assert!(!settled(&controller, NOW + time::Duration::days(46)).await, "a Secret is due");
    write("db");
    assert!(!settled(&controller, NOW).await);
    controller.turn(NOW).await;
    controller.turn(NOW).await;
    assert!(settled(&controller, NOW).await);
    roots::rotate(&store, &RootOptions::default(), NOW).await.unwrap();
    controller.turn(NOW).await;
    assert!(!settled(&controller, NOW).await, "another root");
}
