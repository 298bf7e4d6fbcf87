use super::*;
use crate::ca::certificate::Certificate;
use crate::ca::fixtures::{HOUR, NOW, hours, namespace, openssl_text, openssl_verify, self_signed};
use crate::ca::identity::WorkloadNames;
use crate::ca::roots::{RootOptions, SelfSigned, rollover, rotate};
use crate::ca::store::CertificateRequest;
use crate::ca::store::memory::Memory;
use crate::tls::spiffe::SpiffeId;

fn options() -> HostOptions {
    let grace = Grace { ratio: 0.5, least: Duration::from_secs(60), jitter: 0.0 };
    let reserved = vec!["ca.example.com".to_owned()];
    HostOptions { key: KeyAlgorithm::EcdsaP256, life: 24 * HOUR, grace, reserved }
}

/// An Ingress of the namespace `shop` that asks for these hosts.
fn request(secret: &str, hosts: &[&str]) -> IngressHosts {
    ingress("shop", None, &[], secret, hosts)
}

/// An Ingress with a rule for each of `claims` that asks for a certificate for `hosts`, if there are any.
fn ingress(
    namespace: &str,
    created: Option<i64>,
    claims: &[&str],
    secret: &str,
    hosts: &[&str],
) -> IngressHosts {
    let owned = |hosts: &[&str]| hosts.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>();
    let ingress = ObjectName::new(namespace, "web");
    let request = CertificateRequest {
        ingress: ingress.clone(),
        secret: ObjectName::new(namespace, secret),
        hosts: owned(hosts),
    };
    let requests = if hosts.is_empty() { Vec::new() } else { vec![request] };
    IngressHosts { ingress, created, claims: owned(claims), requests }
}

struct World {
    store: Memory,
    root: SelfSigned,
}

impl World {
    async fn new(ingresses: &[IngressHosts]) -> Self {
        let store = Memory::default();
        let root = self_signed(&store).await;
        store.contents().ingresses = ingresses.to_vec();
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
    let world = World::new(&[request("tls", &["B.example.com", "a.example.com", "*.example.net"])]).await;
    assert_eq!(world.pass(NOW).await.created, 1);
    let secret = world.secret("tls").unwrap();
    assert_eq!(secret.kind, "kubernetes.io/tls");
    let text = |key| String::from_utf8(secret.bytes(key).to_vec()).unwrap();
    assert_eq!(openssl_verify(&text(CERTIFICATE), &text(ROOTS), NOW), Ok(()));
    let shown = openssl_text(&text(CERTIFICATE));
    assert!(shown.contains("DNS:*.example.net, DNS:a.example.com, DNS:b.example.com"), "{shown}");
    assert!(!shown.contains("URI:"), "no identity of the mesh");
    assert!(shown.contains("TLS Web Server Authentication"), "{shown}");
    assert!(!shown.contains("TLS Web Client Authentication"), "{shown}");

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
    world.store.contents().ingresses = vec![request("tls", &["b.example.com"])];
    assert_eq!(world.pass(NOW).await.refreshed, 1);
    assert_eq!(world.leaf("tls").dns_names, ["b.example.com"]);
    world.store.contents().ingresses.clear();
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
    world.store.contents().ingresses.clear();
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

#[tokio::test]
async fn a_certificate_that_is_good_for_clients_too_is_replaced() {
    let world = World::new(&[request("tls", &["a.example.com"])]).await;
    world.pass(NOW).await;
    let key = PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
    let id = SpiffeId::new("cluster.local", "shop", "web").unwrap();
    let names = WorkloadNames::new(id, vec!["a.example.com".to_owned()]).unwrap();
    let both = world.root.authority.issue(&PublicKey::from_own_key(&key), &names, 24 * HOUR, NOW).unwrap();
    let mut secret = world.secret("tls").unwrap();
    secret.data.insert(CERTIFICATE.to_owned(), world.root.authority.chain_pem(&both.leaf).into());
    secret.data.insert(KEY.to_owned(), key.to_pem().as_bytes().into());
    world.store.write_secret(&secret).await.unwrap();
    assert!(world.leaf("tls").rights.usages_nest);
    assert_eq!(world.pass(NOW).await.refreshed, 1);
    assert!(!world.leaf("tls").rights.usages_nest);
}

#[test]
fn names_of_the_mesh_itself_and_what_is_no_name_are_refused() {
    for bad in [
        "istio-ca",
        "localhost",
        "ca.example.com",
        "*.example.com",
        "istiod.istio-system",
        "payments.tenant-a",
        "*.tenant-a",
        "db-0.db.tenant-a",
        "istiod.istio-system.svc",
        "*.istio-system.svc",
        "istiod.istio-system.svc.cluster.local",
        "istiod.istio-system.svc.corp.example",
        "*.svc.corp.example",
        "a b.example.com",
        "*",
        "*.*.example.com",
        "10.0.0.1,evil.example",
        "",
    ] {
        let namespaces = ["istio-system", "tenant-a"].into();
        let asked = asked(&[request("tls", &[bad, "good.example.com"])], &namespaces, &options());
        assert_eq!(asked.refused.len(), 1, "{bad}");
        let hosts: Vec<_> = asked.hosts.values().flatten().collect();
        assert_eq!(hosts, ["good.example.com"], "{bad}");
    }
}

#[test]
fn a_host_is_issued_in_the_namespace_that_claims_it_first() {
    let issued = |ingresses: &[IngressHosts]| {
        let asked = asked(ingresses, &BTreeSet::new(), &options());
        let names = asked.hosts.into_iter().map(|(secret, hosts)| {
            let hosts: Vec<_> = hosts.into_iter().collect();
            format!("{} {}", secret.namespace, hosts.join(","))
        });
        names.collect::<Vec<_>>()
    };
    let owner = ingress("tenant-a", Some(5), &["shop.test"], "tls", &[]);
    let with = |other: IngressHosts| issued(&[owner.clone(), other]);
    let nobody = Vec::<String>::new();
    // The younger Ingress does not get it, whatever it claims.
    assert_eq!(with(ingress("tenant-b", Some(6), &["shop.test"], "tls", &["Shop.test"])), nobody);
    assert_eq!(with(ingress("tenant-b", None, &[], "tls", &["shop.test"])), nobody);
    // A name in `tls` alone is no route: it does not come before a rule.
    assert_eq!(with(ingress("tenant-b", Some(1), &[], "tls", &["shop.test"])), nobody);
    // The older one does, and so does another Ingress of the owner's namespace.
    assert_eq!(
        with(ingress("tenant-b", Some(4), &["shop.test"], "tls", &["shop.test"])),
        ["tenant-b shop.test"]
    );
    assert_eq!(with(ingress("tenant-a", Some(9), &[], "tls", &["shop.test"])), ["tenant-a shop.test"]);

    // A wildcard stands for what others had before; what comes later below it is a host of its own.
    let owner = ingress("tenant-a", Some(5), &["shop.corp.test"], "tls", &["shop.corp.test"]);
    let wildcard = |created| ingress("tenant-b", Some(created), &["*.corp.test"], "tls", &["*.corp.test"]);
    assert_eq!(issued(&[owner.clone(), wildcard(6)]), ["tenant-a shop.corp.test"]);
    assert_eq!(issued(&[owner, wildcard(4)]), ["tenant-a shop.corp.test", "tenant-b *.corp.test"]);
}

#[tokio::test]
async fn namespaces_of_the_store_and_of_ingresses_are_known() {
    let world = World::new(&[request("tls", &["db.shop", "db.tenant-a", "a.example.com"])]).await;
    world.store.contents().namespaces = vec![namespace("tenant-a", &[])];
    let (_, refused) = reconcile(&world.store, &world.root.authority, &options(), NOW).await.unwrap();
    let refused: Vec<_> = refused.into_iter().map(|(_, error)| error).collect();
    assert_eq!(refused, ["db.shop", "db.tenant-a"].map(|name| HostError::InNamespace(name.to_owned())));
    assert_eq!(world.leaf("tls").dns_names, ["a.example.com"]);
}
