//! How certificates come into a snapshot; which one a host gets is tested with `certificates`.

use std::sync::{Arc, LazyLock};

use super::World;
use super::objects::*;
use crate::settings::Settings;
use crate::snapshot::certificates::HostCertificates;
use crate::store::objects::{Kind, Metadata, Object, ObjectName, Secret, SecretOrigin, TlsSecret};
use crate::testing::certificates::Authority;
use crate::tls::keys::KeyPair;

static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| Authority::new("root"));

fn pair(names: &[&str]) -> Arc<KeyPair> {
    Arc::new(AUTHORITY.pair(names))
}

fn secret(name: &str, pair: &Arc<KeyPair>) -> Object {
    Object::Secret(Secret {
        metadata: metadata(name),
        kind: "kubernetes.io/tls".into(),
        origin: SecretOrigin::Object,
        pair: Some(Ok(pair.clone())),
        fields: Default::default(),
        ticket_keys: None,
        authorities: None,
        users: Default::default(),
        client_ca: None,
    })
}

/// A Secret with a certificate for these names.
pub fn tls_secret(name: &str, names: &[&str]) -> Object {
    secret(name, &pair(names))
}

fn pem_pair(name: &str, pair: &Arc<KeyPair>) -> Object {
    let Object::Secret(secret) = secret(name, pair) else { unreachable!("a Secret was made") };
    Object::Secret(Secret { origin: SecretOrigin::PemPair, ..secret })
}

fn served(world: &World, sni: &str) -> Option<String> {
    world.compiled.snapshot.certificates.find(sni).map(|found| serial(found))
}

fn serial(certificates: &HostCertificates) -> String {
    certificates.iter().next().unwrap().certificate.pair.serial.to_string()
}

#[test]
fn a_secret_is_served_for_the_hosts_of_its_ingress_and_rotated_alone() {
    let (one, two) = (pair(&["a.test"]), pair(&["a.test"]));
    let mut world = World::new([
        secret("tls", &one),
        ingress("a").path("a.test", "/", "web").tls().object(),
        ingress("b").path("b.test", "/", "web").object(),
        pem_pair("pem", &pair(&["c.test", "*.d.test"])),
    ]);
    assert_eq!(served(&world, "a.test"), Some(one.serial.to_string()));
    assert_eq!(served(&world, "b.test"), None, "no tls section, no certificate of its own");
    assert!(served(&world, "c.test").is_some() && served(&world, "x.d.test").is_some());

    let others = world.compiled.snapshot.certificates.find("c.test").unwrap().clone();
    let host = world.compiled.snapshot.hosts.find("a.test").unwrap().clone();
    world.apply([secret("tls", &two)]);
    assert_eq!(served(&world, "a.test"), Some(two.serial.to_string()));
    assert!(Arc::ptr_eq(&others, world.compiled.snapshot.certificates.find("c.test").unwrap()));
    assert!(Arc::ptr_eq(&host, world.compiled.snapshot.hosts.find("a.test").unwrap()));

    world.delete(Kind::Ingress, "a", "a");
    assert_eq!(served(&world, "a.test"), None);
}

#[test]
fn a_secret_of_another_namespace_is_never_used_and_nobody_learns_whether_it_is_there() {
    let Object::Secret(mut foreign) = secret("tls", &pair(&["a.test"])) else {
        unreachable!("a Secret was made")
    };
    foreign.metadata.name = ObjectName::new("other", "tls");
    let names_its_own = || ingress("a").path("a.test", "/", "web").tls().object();
    let (without, with) =
        (World::new([names_its_own()]), World::new([names_its_own(), Object::Secret(foreign)]));
    assert_eq!(served(&with, "a.test"), None);
    assert_eq!(with.findings(), without.findings());
    assert!(
        with.findings().iter().any(|finding| finding.contains("SecretNotFound")),
        "{:?}",
        with.findings()
    );
}

#[test]
fn a_deleted_secret_stays_for_the_grace_time_and_goes_without_another_event() {
    let objects = [secret("tls", &pair(&["a.test"])), ingress("a").path("a.test", "/", "web").tls().object()];
    let mut world = World::with(Settings { ssl_redirect: false, ..Settings::default() }, objects);
    world.delete(Kind::Secret, "a", "tls");
    assert!(served(&world, "a.test").is_some());
    assert!(world.reasons().iter().any(|(reason, _)| *reason == "SecretNotFound"), "{:?}", world.findings());

    let recheck = world.compiled.recheck_at().expect("the end of the grace time");
    assert_eq!(recheck, world.now + 60);
    world.now = recheck - 1;
    world.compile();
    assert!(served(&world, "a.test").is_some());
    world.now = recheck;
    world.compile();
    assert_eq!(served(&world, "a.test"), None);
    assert_eq!(world.compiled.recheck_at(), None);
}

#[test]
fn foreign_ingresses_bind_no_certificate() {
    let foreign = ingress("a").class("other").path("a.test", "/", "web").tls().object();
    let world = World::new([secret("tls", &pair(&["a.test"])), foreign]);
    assert_eq!(served(&world, "a.test"), None);
}

#[test]
fn the_default_certificate_is_a_secret_or_the_generated_one() {
    let default = |world: &World| serial(&world.compiled.snapshot.certificates.default);
    let settings =
        Settings { default_ssl_certificate: Some(ObjectName::new("a", "default")), ..Settings::default() };
    let mut world = World::with(settings.clone(), []);
    assert_eq!(default(&world), *world.compiled.generated.serial);
    assert_eq!(world.findings().len(), 1, "named, but not there: {:?}", world.findings());

    let (one, two) = (pair(&["x.test"]), pair(&["x.test"]));
    world.apply([secret("default", &one)]);
    assert_eq!(default(&world), *one.serial);
    assert!(world.compiled.report.is_empty(), "{:?}", world.findings());
    world.apply([secret("default", &two)]);
    assert_eq!(default(&world), *two.serial);
}

#[test]
fn a_broken_secret_is_reported_as_long_as_it_is_there() {
    let broken = KeyPair::parse(b"nothing", b"nothing").unwrap_err();
    let name = ObjectName::new("a", "broken");
    let mut world = World::new([Object::Secret(Secret {
        metadata: Metadata { name, ..metadata("") },
        kind: "Opaque".into(),
        origin: SecretOrigin::Object,
        pair: Some(Err(broken)),
        fields: Default::default(),
        ticket_keys: None,
        authorities: None,
        users: Default::default(),
        client_ca: None,
    })]);
    assert_eq!(world.findings().len(), 1);
    world.delete(Kind::Secret, "a", "broken");
    assert!(world.compiled.report.is_empty());
}

#[test]
fn a_host_that_is_sent_on_has_the_certificate_that_covers_it() {
    const WWW: &str = "nginx.ingress.kubernetes.io/from-to-www-redirect";
    let (both, one) = (pair(&["a.test", "www.a.test"]), pair(&["a.test"]));
    let web = || ingress("a").path("a.test", "/", "web").tls().annotation(WWW, "true");
    let mut world = World::new([secret("tls", &both), web().object()]);
    assert_eq!(served(&world, "www.a.test"), Some(both.serial.to_string()));
    // It follows the Secret; what does not cover it is not served for it, and somebody is told.
    let other = pair(&["a.test", "www.a.test"]);
    world.apply([secret("tls", &other)]);
    assert_eq!(served(&world, "www.a.test"), Some(other.serial.to_string()));
    let mut world = World::new([secret("tls", &one), web().object()]);
    assert_eq!(served(&world, "www.a.test"), None);
    assert!(world.findings().iter().any(|finding| finding.contains("www.a.test")), "{:?}", world.findings());
    // An Ingress with rules and a certificate for it decides alone.
    let own = pair(&["www.a.test"]);
    let mut rules = ingress("www").path("www.a.test", "/", "web").created(9).tls();
    rules.tls[0].secret = TlsSecret::Named("own".into());
    world.apply([secret("own", &own), secret("tls", &both), rules.object()]);
    assert_eq!(served(&world, "www.a.test"), Some(own.serial.to_string()));
    world.delete(Kind::Ingress, "a", "www");
    assert_eq!(served(&world, "www.a.test"), Some(both.serial.to_string()));
    world.apply([ingress("a").path("a.test", "/", "web").tls().object()]);
    assert_eq!(served(&world, "www.a.test"), None, "nobody asks for it any more");
}
