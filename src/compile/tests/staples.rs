//! Staples on their way from the OCSP source to the handshake, and rotations that wait for them.

use std::sync::{Arc, LazyLock};

use super::World;
use super::objects::*;
use crate::settings::Settings;
use crate::snapshot::certificates::Stapling;
use crate::store::Event;
use crate::store::objects::{Kind, Metadata, Object, ObjectName, Secret, SecretOrigin};
use crate::testing::certificates::{Authority, PemPair};
use crate::tls::keys::KeyPair;
use crate::tls::ocsp::{OcspState, OcspStatus, Staple};

const URL: &str = "http://ocsp.test/";
static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| Authority::new("root").intermediate("intermediate"));

fn stapled(names: &[&str]) -> Arc<KeyPair> {
    Arc::new(AUTHORITY.leaf(names).ocsp_responder(URL).issue().parse())
}

fn must_staple(names: &[&str]) -> Arc<KeyPair> {
    Arc::new(AUTHORITY.leaf(names).ocsp_responder(URL).must_staple().issue().parse())
}

fn plain(names: &[&str]) -> Arc<KeyPair> {
    Arc::new(AUTHORITY.pair(names))
}

fn secret(name: &str, pair: &Arc<KeyPair>) -> Object {
    of_origin(SecretOrigin::Object, metadata(name), pair)
}

fn of_origin(origin: SecretOrigin, metadata: Metadata, pair: &Arc<KeyPair>) -> Object {
    Object::Secret(Secret {
        metadata,
        kind: "kubernetes.io/tls".into(),
        origin,
        pair: Some(Ok(pair.clone())),
        fields: Default::default(),
        ticket_keys: None,
        authorities: None,
        users: Default::default(),
        client_ca: None,
    })
}

fn serving(pair: &Arc<KeyPair>) -> World {
    World::new([secret("tls", pair), ingress("a").path("a.test", "/", "web").tls().object()])
}

fn serial(world: &World) -> &str {
    let certificates = world.compiled.snapshot.certificates.find("a.test").expect("a certificate");
    &certificates.iter().next().unwrap().certificate.pair.serial
}

fn status(pair: &KeyPair, state: OcspState) -> OcspStatus {
    OcspStatus { state, ..OcspStatus::pending(pair.fingerprint) }
}

/// As of `this_update`; what the staple says is the business of those who verify it.
fn good(pair: &KeyPair, this_update: u64) -> OcspStatus {
    let next_update = this_update + 3600;
    let staple = Staple { der: [1, 2, 3].into(), this_update, next_update, produced_at: this_update };
    OcspStatus { staple: Some(Arc::new(staple)), ..status(pair, OcspState::Good) }
}

impl World {
    fn hear(&mut self, status: OcspStatus) {
        self.store.apply(Event::Staple(Arc::new(status)));
        self.compile();
    }

    fn after(&mut self, seconds: i64) {
        self.now += seconds;
        self.compile();
    }

    fn stapling(&self, pair: &KeyPair) -> Option<&Arc<Stapling>> {
        self.compiled.snapshot.certificates.stapling(pair)
    }

    fn is_stapled(&self, pair: &KeyPair) -> bool {
        self.stapling(pair).is_some_and(|stapling| stapling.stapled.is_some())
    }

    /// The findings, but for the one that the Service of these tests is missing.
    fn said(&self) -> Vec<(&'static str, String)> {
        self.reasons().into_iter().filter(|(reason, _)| *reason != "ServiceNotFound").collect()
    }

    /// Serials that are wanted anew, and how many leaves are not wanted any more.
    fn demand(&self) -> (Vec<&str>, usize) {
        let demand = &self.compiled.staple_demand;
        (demand.wanted.iter().map(|wanted| &*wanted.pair.serial).collect(), demand.dropped.len())
    }
}

#[test]
fn a_staple_comes_into_the_snapshot_with_its_leaf_and_goes_with_it() {
    let (pair, other) = (stapled(&["a.test"]), stapled(&["b.test"]));
    let mut world = serving(&pair);
    assert_eq!(world.demand(), (vec![&*pair.serial], 0));
    assert_eq!(world.stapling(&pair).unwrap().status.state, OcspState::Pending);

    world.hear(good(&pair, 1000));
    assert!(world.is_stapled(&pair));
    assert!(world.stapling(&other).is_none(), "not in use");
    assert_eq!(world.demand(), (vec![], 0), "an answer changes nothing about what is wanted");

    world.delete(Kind::Ingress, "a", "a");
    assert_eq!(world.demand(), (vec![], 1));
    assert!(world.stapling(&pair).is_none());
    assert_eq!(world.compiled.wanted_staples().count(), 0);
}

#[test]
fn an_answer_costs_its_leaf_alone() {
    let pair = stapled(&["a.test"]);
    let mut world = serving(&pair);
    world.hear(good(&pair, 1000));
    let certificates = world.compiled.snapshot.certificates.find("a.test").unwrap().clone();
    let first = world.stapling(&pair).unwrap().clone();
    world.hear(good(&pair, 2000));
    assert!(world.stapling(&pair).unwrap().status.staple.as_ref().unwrap().this_update == 2000);
    assert!(Arc::ptr_eq(&certificates, world.compiled.snapshot.certificates.find("a.test").unwrap()));
    assert!(!Arc::ptr_eq(&first, world.stapling(&pair).unwrap()));

    let before = world.stapling(&pair).unwrap().clone();
    world.hear(good(&pair, 2000));
    assert!(Arc::ptr_eq(&before, world.stapling(&pair).unwrap()), "the same again is no change");
}

#[test]
fn certificates_without_a_responder_leave_no_trace() {
    let pair = plain(&["a.test"]);
    let mut world = serving(&pair);
    assert_eq!(world.demand(), (vec![], 0));
    assert_eq!(world.compiled.snapshot.certificates.staples.len(), 0);
    world.apply([secret("tls", &plain(&["a.test"]))]);
    assert_eq!(world.demand(), (vec![], 0));
    assert_eq!(world.said(), []);
}

#[test]
fn a_leaf_is_asked_about_once_and_with_the_chain_that_has_its_issuer() {
    let issued = AUTHORITY.leaf(&["a.test", "b.test"]).ocsp_responder(URL).issue();
    let alone = PemPair { chain_pem: String::new(), ..issued.clone() };
    let (alone, whole) = (Arc::new(alone.parse()), Arc::new(issued.parse()));
    assert!(alone.fingerprint == whole.fingerprint && alone.digest != whole.digest);

    let pem = |name: &str, pair| of_origin(SecretOrigin::PemPair, metadata(name), pair);
    let mut world = World::new([pem("1", &alone)]);
    world.hear(status(&alone, OcspState::IssuerUnknown));
    assert_eq!(world.said(), [("OcspIssuerUnknown", "1".into())]);

    // Another Secret brings the issuer: it is asked about on its behalf, and both are stapled.
    world.apply([secret("tls", &whole), ingress("b").path("b.test", "/", "web").tls().object()]);
    assert_eq!(world.compiled.staple_demand.wanted.len(), 1);
    assert_eq!(world.compiled.staple_demand.wanted[0].pair.digest, whole.digest);
    world.hear(good(&whole, 1000));
    assert!(world.is_stapled(&alone) && world.is_stapled(&whole));
    assert_eq!(world.compiled.wanted_staples().count(), 1);

    world.delete(Kind::Ingress, "a", "b");
    assert_eq!(
        world.compiled.staple_demand.wanted[0].pair.digest, alone.digest,
        "back to the one that is left"
    );
    assert!(world.stapling(&whole).is_none());
}

#[test]
fn what_an_issuer_says_against_a_certificate_is_reported() {
    let pair = stapled(&["a.test"]);
    let mut world = serving(&pair);
    world.hear(good(&pair, 1000));
    for (state, reason) in [
        (OcspState::Revoked, "CertificateRevoked"),
        (OcspState::Unknown, "CertificateUnknown"),
        (OcspState::Error, "OcspFailed"),
    ] {
        world.hear(status(&pair, state));
        assert!(!world.is_stapled(&pair));
        assert_eq!(world.said(), [(reason, "tls".into())]);
    }
    world.hear(good(&pair, 2000));
    assert_eq!(world.said(), []);
}

#[test]
fn a_rotation_to_a_must_staple_certificate_waits_for_its_first_staple() {
    let (old, new) = (plain(&["a.test"]), must_staple(&["a.test"]));
    let mut world = serving(&old);
    world.apply([secret("tls", &new)]);
    assert_eq!(serial(&world), &*old.serial);
    assert_eq!(world.demand(), (vec![&*new.serial], 0), "it is asked about while it waits");
    assert_eq!(world.said(), [("AwaitingStaple", "a".into())]);

    world.hear(OcspStatus { last_error: Some("refused".into()), ..status(&new, OcspState::Error) });
    assert_eq!(serial(&world), &*old.serial, "a failure is no reason to stop waiting");
    world.after(29);
    assert_eq!(serial(&world), &*old.serial);
    world.hear(good(&new, 1000));
    assert_eq!(serial(&world), &*new.serial);
    assert!(world.is_stapled(&new));
    assert_eq!(world.said(), []);

    world.hear(status(&new, OcspState::Error));
    assert_eq!(serial(&world), &*new.serial, "once in use it stays");
    assert_eq!(world.said(), [("MustStapleUnstapled", "tls".into())]);
}

#[test]
fn after_the_deadline_a_must_staple_certificate_is_served_without() {
    let old = plain(&["a.test"]);
    let mut world = serving(&old);
    let begun = world.now;
    world.apply([secret("tls", &must_staple(&["a.test"]))]);
    assert_eq!(world.compiled.recheck_at(), Some(begun + 30));
    world.after(20);
    // A further rotation does not start the wait anew: hosts would never come to an end of it.
    let last = must_staple(&["a.test"]);
    world.apply([secret("tls", &last)]);
    assert_eq!(serial(&world), &*old.serial);
    assert_eq!(world.demand(), (vec![&*last.serial], 1));
    world.after(10);
    assert_eq!(serial(&world), &*last.serial);
    assert_eq!(world.said(), [("MustStapleUnstapled", "tls".into())]);
}

#[test]
fn other_rotations_wait_for_the_first_answer_and_no_longer_than_a_moment() {
    let rotated = |heard: Option<fn(&KeyPair) -> OcspStatus>, seconds| {
        let (old, new) = (stapled(&["a.test"]), stapled(&["a.test"]));
        let mut world = serving(&old);
        world.apply([secret("tls", &new)]);
        assert_eq!(serial(&world), &*old.serial);
        world.after(seconds);
        if let Some(heard) = heard {
            world.hear(heard(&new));
        }
        assert!(world.said().is_empty() || heard.is_some());
        serial(&world) == &*new.serial
    };
    assert!(!rotated(None, 1));
    assert!(rotated(None, 2));
    assert!(rotated(Some(|new| good(new, 1000)), 0));
    assert!(rotated(Some(|new| status(new, OcspState::Error)), 0));
    assert!(!rotated(Some(|new| status(new, OcspState::Pending)), 0));
}

#[test]
fn nothing_waits_that_need_not() {
    let waits = |old: Option<&Arc<KeyPair>>, new: &Arc<KeyPair>, settings: Settings| {
        let ingress = ingress("a").path("a.test", "/", "web").tls().object();
        let secrets = old.map(|old| secret("tls", old));
        let mut world = World::with(settings, secrets.into_iter().chain([ingress]));
        world.apply([secret("tls", new)]);
        serial(&world) != &*new.serial
    };
    let (old, new) = (plain(&["a.test"]), must_staple(&["a.test"]));
    let without_issuer = Authority::new("root").leaf(&["a.test"]).ocsp_responder(URL).must_staple().issue();
    let without_responder = AUTHORITY.leaf(&["a.test"]).must_staple().issue();
    assert!(waits(Some(&old), &new, Settings::default()));
    assert!(!waits(None, &new, Settings::default()), "there is nothing to serve instead");
    assert!(!waits(Some(&old), &new, Settings { enable_ocsp: false, ..Settings::default() }));
    assert!(!waits(Some(&old), &Arc::new(without_issuer.parse()), Settings::default()));
    assert!(!waits(Some(&old), &Arc::new(without_responder.parse()), Settings::default()));
}

#[test]
fn the_default_certificate_waits_and_is_stapled_like_any_other() {
    let (old, new) = (plain(&["x.test"]), must_staple(&["x.test"]));
    let name = Some(ObjectName::new("a", "tls"));
    let settings = Settings { default_ssl_certificate: name, ..Settings::default() };
    let mut world = World::with(settings, [secret("tls", &old)]);
    world.apply([secret("tls", &new)]);
    let default = |world: &World| {
        let default = &world.compiled.snapshot.certificates.default;
        default.iter().next().unwrap().certificate.pair.serial.clone()
    };
    assert_eq!(default(&world), old.serial);
    world.hear(good(&new, 1000));
    assert_eq!(default(&world), new.serial);
    assert!(world.is_stapled(&new));
}
