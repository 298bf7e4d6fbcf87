use super::*;
use crate::ca::certificate::Certificate;
use crate::ca::fixtures::{HOUR, NOW, hours, openssl_text, openssl_verify, self_signed};
use crate::ca::roots::{RootOptions, SelfSigned, rollover, rotate};
use crate::ca::store::memory::Memory;

fn options() -> HostOptions {
    let grace = Grace { ratio: 0.5, least: Duration::from_secs(60), jitter: 0.0 };
    let reserved = vec!["ca.example.com".to_owned()];
    HostOptions { key: KeyAlgorithm::EcdsaP256, life: 24 * HOUR, grace, reserved }
}

fn request(secret: &str, hosts: &[&str]) -> CertificateRequest {
    CertificateRequest {
        ingress: ObjectName::new("shop", "web"),
        secret: ObjectName::new("shop", secret),
        hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
    }
}

struct World {
    store: Memory,
    root: SelfSigned,
}

impl World {
    async fn new(requests: &[CertificateRequest]) -> Self {
        let store = Memory::default();
        let root = self_signed(&store).await;
        store.contents().certificate_requests = requests.to_vec();
        Self { store, root }
    }

    async fn pass(&self, now: OffsetDateTime) -> Reconciled {
        reconcile(&self.store, &self.root.authority, &options(), now).await.unwrap().0
    }

    fn secret(&self, name: &str) -> Option<Secret> {
        self.store.contents().secrets.get(&ObjectName::new("shop", name)).cloned()
    }

    fn leaf(&self, name: &str) -> Certificate {
        Certificate::first_from_pem(self.secret(name).unwrap().bytes(CERTIFICATE)).unwrap()
    }
}

#[tokio::test]
async fn a_host_gets_a_secret_that_verifies_and_is_renewed_in_time() {
    let world = World::new(&[request("tls", &["B.example.com", "a.example.com", "*.example.com"])]).await;
    assert_eq!(world.pass(NOW).await.created, 1);
    let secret = world.secret("tls").unwrap();
    assert_eq!(secret.kind, "kubernetes.io/tls");
    let text = |key| String::from_utf8(secret.bytes(key).to_vec()).unwrap();
    assert_eq!(openssl_verify(&text(CERTIFICATE), &text(ROOTS), NOW), Ok(()));
    let shown = openssl_text(&text(CERTIFICATE));
    assert!(shown.contains("DNS:*.example.com, DNS:a.example.com, DNS:b.example.com"), "{shown}");
    assert!(!shown.contains("URI:"), "no identity of the mesh");

    assert!(world.pass(NOW).await.changed_nothing());
    assert_eq!(
        world.pass(NOW).await.next,
        Some(world.leaf("tls").not_after - hours(12) - time::Duration::minutes(1))
    );
    let first = world.leaf("tls").serial;
    assert_eq!(world.pass(NOW + hours(13)).await.refreshed, 1);
    assert_ne!(world.leaf("tls").serial, first);
}

#[tokio::test]
async fn what_is_asked_for_is_followed_and_what_nobody_asks_for_is_removed() {
    let world = World::new(&[request("tls", &["a.example.com"]), request("tls", &["b.example.com"])]).await;
    world.pass(NOW).await;
    assert_eq!(world.leaf("tls").dns_names, ["a.example.com", "b.example.com"]);
    world.store.contents().certificate_requests = vec![request("tls", &["b.example.com"])];
    assert_eq!(world.pass(NOW).await.refreshed, 1);
    assert_eq!(world.leaf("tls").dns_names, ["b.example.com"]);
    world.store.contents().certificate_requests.clear();
    assert_eq!(world.pass(NOW).await.deleted, 1);
    assert_eq!(world.secret("tls"), None);
}

#[tokio::test]
async fn a_secret_of_somebody_else_is_never_touched() {
    let world = World::new(&[request("tls", &["a.example.com"])]).await;
    let mut theirs = Secret::new(ObjectName::new("shop", "tls"), SECRET_TYPE);
    theirs.data.insert(CERTIFICATE.to_owned(), "theirs".into());
    world.store.write_secret(&theirs).await.unwrap();
    let theirs = world.secret("tls");
    let done = world.pass(NOW).await;
    assert_eq!(
        done.failed,
        [(ObjectName::new("shop", "tls"), SecretError::Foreign(ObjectName::new("shop", "tls")))]
    );
    assert_eq!(world.secret("tls"), theirs);
    world.store.contents().certificate_requests.clear();
    world.pass(NOW).await;
    assert_eq!(world.secret("tls"), theirs, "nor removed");
}

#[tokio::test]
async fn a_new_root_is_written_beside_the_certificate_and_a_new_key_signs_anew() {
    let mut world = World::new(&[request("tls", &["a.example.com"])]).await;
    world.pass(NOW).await;
    let first = world.leaf("tls").serial;
    world.root = rotate(&world.store, &RootOptions::default(), NOW).await.unwrap();
    assert_eq!(world.pass(NOW).await.roots_updated, 1);
    assert_eq!(world.leaf("tls").serial, first);
    let maps = Default::default();
    for _ in 0..2 {
        let options = RootOptions::default();
        let next = rollover::advance(&world.store, &options, &maps, Duration::ZERO, true, NOW).await;
        world.root = next.unwrap();
        world.pass(NOW).await;
    }
    assert_ne!(world.leaf("tls").serial, first);
}

#[test]
fn names_of_the_mesh_itself_and_what_is_no_name_are_refused() {
    for bad in [
        "istio-ca",
        "localhost",
        "ca.example.com",
        "istiod.istio-system.svc",
        "*.istio-system.svc",
        "istiod.istio-system.svc.cluster.local",
        "a b.example.com",
        "*",
        "*.*.example.com",
        "10.0.0.1,evil.example",
        "",
    ] {
        let asked = asked(&[request("tls", &[bad, "good.example.com"])], &options());
        assert_eq!(asked.refused.len(), 1, "{bad}");
        let hosts: Vec<_> = asked.hosts.values().flatten().collect();
        assert_eq!(hosts, ["good.example.com"], "{bad}");
    }
}
