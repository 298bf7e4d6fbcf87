mod last_good;
mod properties;

use std::sync::LazyLock;

use super::*;
use crate::settings::Settings;
use crate::store::Event;
use crate::store::objects::{IngressRule, Metadata, Object, Secret, SecretOrigin};
use crate::testing::certificates::Authority;
use crate::tls::keys::{Algorithm, ClientKeys, KeyPairError};

const DAY: i64 = 24 * 3600;
const NOW: i64 = 1_800_000_000;
const GRACE: i64 = 60;

/// As [`Secret`] has it.
type ParsedPair = Option<Result<Arc<KeyPair>, KeyPairError>>;

static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| Authority::new("root"));

/// A pair that is valid at `NOW`, told from others by its serial number.
fn pair(serial: u64, names: &[&str]) -> Arc<KeyPair> {
    dated(serial, names, NOW - DAY, NOW + 60 * DAY)
}

fn dated(serial: u64, names: &[&str], from: i64, to: i64) -> Arc<KeyPair> {
    Arc::new(AUTHORITY.leaf(names).serial(serial).valid(from, to).issue().parse())
}

fn of_kind(serial: u64, algorithm: Algorithm, names: &[&str]) -> Arc<KeyPair> {
    let leaf = AUTHORITY.leaf(names).serial(serial).algorithm(algorithm);
    Arc::new(leaf.valid(NOW - DAY, NOW + 60 * DAY).issue().parse())
}

fn host(pattern: &str) -> HostPattern {
    HostPattern::parse(pattern).unwrap()
}

/// Stands for a `secretName` that is no name.
const UNUSABLE: &str = "certs/tls";

/// An Ingress by `namespace/name` with rules for `rules` and the entries `tls`, each with hosts and a Secret.
fn ingress(name: &str, created: i64, rules: &[&str], tls: &[(&[&str], &str)]) -> Ingress {
    let entry = |(index, (hosts, secret)): (usize, &(&[&str], &str))| IngressTls {
        index,
        hosts: hosts
            .iter()
            .zip(0..)
            .map(|(host, index)| TlsHost { index, host: (*host).to_owned() })
            .collect(),
        secret: match *secret {
            "" => TlsSecret::Default,
            UNUSABLE => TlsSecret::Unusable,
            name => TlsSecret::Named(name.to_owned()),
        },
    };
    Ingress {
        metadata: Metadata { created: Some(created), ..metadata(name) },
        class: None,
        default_backend: None,
        tls: tls.iter().enumerate().map(entry).collect(),
        rules: rules
            .iter()
            .zip(0..)
            .map(|(host, index)| IngressRule { index, host: Some((*host).into()), paths: Vec::new() })
            .collect(),
    }
}

fn metadata(name: &str) -> Metadata {
    Metadata { name: named(name), created: None, labels: Default::default(), annotations: Default::default() }
}

fn ingress_ref(name: &str) -> ObjectRef {
    ObjectRef::new(Kind::Ingress, &named(name))
}

fn named(name: &str) -> ObjectName {
    let (namespace, name) = name.split_once('/').unwrap_or(("a", name));
    ObjectName::new(namespace, name)
}

fn waits() -> StapleWaits {
    StapleWaits::of(&Settings::default())
}

/// A store with one host under test, compiled again and again.
struct World {
    store: Store,
    host: HostPattern,
    served: Option<Arc<HostCertificates>>,
    now: i64,
}

impl World {
    fn new(pattern: &str) -> Self {
        Self { store: Store::new(), host: host(pattern), served: None, now: NOW }
    }

    fn ingress(&mut self, name: &str, created: i64, tls: &[(&[&str], &str)]) -> &mut Self {
        let rule = self.host.to_string();
        self.put(Object::Ingress(ingress(name, created, &[&rule], tls)))
    }

    fn secret(&mut self, name: &str, pair: &Arc<KeyPair>) -> &mut Self {
        self.any_secret(name, SecretOrigin::Object, Some(Ok(pair.clone())))
    }

    fn broken(&mut self, name: &str) -> &mut Self {
        self.any_secret(name, SecretOrigin::Object, Some(Err(KeyPairError::KeyMismatch)))
    }

    fn any_secret(&mut self, name: &str, origin: SecretOrigin, pair: ParsedPair) -> &mut Self {
        self.put(Object::Secret(Secret {
            metadata: metadata(name),
            kind: String::new(),
            origin,
            pair,
            fields: Default::default(),
            ticket_keys: None,
            authorities: None,
            users: Default::default(),
            client_ca: None,
        }))
    }

    fn put(&mut self, object: Object) -> &mut Self {
        self.store.apply(Event::Apply(object));
        self
    }

    fn delete(&mut self, kind: Kind, name: &str) -> &mut Self {
        self.store.apply(Event::Delete(kind, named(name)));
        self
    }

    fn after(&mut self, seconds: i64) -> &mut Self {
        self.now += seconds;
        self
    }

    fn compile(&mut self) -> HostOutcome {
        let compile = |previous| {
            let mut all = self.store.ingresses_of_host(&self.host);
            all.retain(|ingress| !ingress.tls.is_empty());
            compile_host_certificates(&self.store, &self.host, &all, previous, GRACE, waits(), self.now)
        };
        let outcome = compile(self.served.as_ref());
        let again = compile(outcome.certificates.as_ref());
        match (&outcome.certificates, &again.certificates) {
            (Some(first), Some(second)) => assert!(Arc::ptr_eq(first, second), "nothing changed in between"),
            (first, second) => assert!(first.is_none() && second.is_none()),
        }
        assert_eq!(outcome.diagnostics, again.diagnostics, "nothing changed in between");
        self.served = outcome.certificates.clone();
        outcome
    }

    /// Compiles and gives the serials that are served, in order, and the reasons of the diagnostics.
    fn outcome(&mut self) -> (Vec<String>, Vec<&'static str>) {
        let outcome = self.compile();
        let mut reasons: Vec<_> = outcome.diagnostics.iter().map(|d| d.reason).collect();
        reasons.sort_unstable();
        (serials(outcome.certificates.as_ref()), reasons)
    }

    fn expect(&mut self, serials: &[&str], reasons: &[&str]) -> &mut Self {
        let (found, said) = self.outcome();
        assert_eq!((found.as_slice(), said.as_slice()), (strings(serials).as_slice(), reasons));
        self
    }
}

fn serials(certificates: Option<&Arc<HostCertificates>>) -> Vec<String> {
    let bindings = certificates.into_iter().flat_map(|c| c.iter());
    bindings.map(|b| b.certificate.pair.serial.to_string()).collect()
}

fn strings(serials: &[&str]) -> Vec<String> {
    serials.iter().map(|serial| (*serial).to_owned()).collect()
}

#[test]
fn a_textual_match_comes_before_a_match_by_certificate() {
    let mut world = World::new("www.foo.test");
    world.secret("wild", &pair(1, &["*.foo.test"])).secret("own", &pair(2, &["www.foo.test"]));
    world.ingress("i", 1, &[(&["other.foo.test"], "wild"), (&["WWW.foo.test."], "own")]).expect(&["02"], &[]);
    world.ingress("i", 1, &[(&["other.foo.test"], "wild")]).expect(&["01"], &[]);
    world.ingress("i", 1, &[(&[], "own"), (&[], "wild")]).expect(&["02"], &[]);
    world.ingress("i", 1, &[(&["*.foo.test"], "wild")]).expect(&["01"], &[]);
    world.ingress("i", 1, &[]).expect(&[], &[]);
}

#[test]
fn an_entry_without_a_secret_asks_for_the_default() {
    let mut world = World::new("www.foo.test");
    world.secret("wild", &pair(1, &["*.foo.test"]));
    world.ingress("i", 1, &[(&["www.foo.test"], ""), (&[], "wild")]).expect(&[], &[]);
    world.ingress("j", 2, &[(&["www.foo.test"], "wild")]).expect(&[], &["HostConflict"]);
    world.delete(Kind::Ingress, "i").expect(&["01"], &[]);
}

#[test]
fn what_cannot_be_used_leaves_the_default_and_says_why() {
    let entries: &[(&[&str], &str)] = &[(&["www.foo.test"], "s")];
    World::new("www.foo.test").ingress("i", 1, entries).expect(&[], &["SecretNotFound"]);
    World::new("www.foo.test").broken("s").ingress("i", 1, entries).expect(&[], &["KeyMismatch"]);
    let mut world = World::new("www.foo.test");
    world
        .any_secret("s", SecretOrigin::Object, None)
        .ingress("i", 1, entries)
        .expect(&[], &["KeyPairMissing"]);
    world.secret("s", &pair(1, &["foo.test"])).expect(&[], &["HostMismatch"]);

    let outcome = world.compile();
    let diagnostic = outcome.diagnostics.first().unwrap();
    assert_eq!(
        diagnostic.to_string(),
        "Ingress a/i: spec.tls[0].secretName: the certificate of Secret a/s does not cover www.foo.test: it is \
         for foo.test; it is not used (HostMismatch)"
    );
    world.ingress("i", 1, &[(&["other.test"], "s")]).expect(&[], &["HostMismatch"]);
}

#[test]
fn a_wildcard_host_needs_that_very_wildcard() {
    let mut world = World::new("*.foo.test");
    world.secret("www", &pair(1, &["www.foo.test"])).secret("wild", &pair(2, &["*.foo.test"]));
    world.ingress("i", 1, &[(&["*.foo.test"], "www")]).expect(&[], &["HostMismatch"]);
    world.ingress("i", 1, &[(&["*.foo.test"], "wild")]).expect(&["02"], &[]);
}

#[test]
fn rules_without_a_host_have_the_default_certificate() {
    let mut world = World::new("");
    world.secret("s", &pair(1, &["www.foo.test"])).put(Object::Ingress(ingress(
        "i",
        1,
        &[""],
        &[(&[], "s")],
    )));
    world.expect(&[], &[]);
    let findings = ingress_tls_findings(world.store.ingress(&named("i")).unwrap());
    assert_eq!(findings.iter().map(|f| f.reason).collect::<Vec<_>>(), ["TlsIgnored"]);
}

#[test]
fn hosts_of_tls_without_a_rule_are_reported() {
    let tls: &[(&[&str], &str)] = &[(&["a.test", "b.test", "*.foo.test", "not a host"], "s")];
    let findings = ingress_tls_findings(&ingress("i", 1, &["a.test", "x.foo.test"], tls));
    let found: Vec<_> = findings.iter().map(|f| (f.field.as_str(), f.reason)).collect();
    assert_eq!(
        found,
        [("spec.tls[0].hosts[1]", "TlsHostWithoutRule"), ("spec.tls[0].hosts[3]", "InvalidHost")]
    );
}

#[test]
fn a_secret_that_comes_late_is_bound_and_so_is_one_that_was_there_all_along() {
    let mut world = World::new("www.foo.test");
    world.ingress("i", 1, &[(&["www.foo.test"], "late")]).expect(&[], &["SecretNotFound"]);
    world.secret("late", &pair(1, &["www.foo.test"])).expect(&["01"], &[]);

    let mut world = World::new("www.foo.test");
    world.secret("right", &pair(1, &["www.foo.test"]));
    world.ingress("i", 1, &[(&["www.foo.test"], "wrong")]).expect(&[], &["SecretNotFound"]);
    world.ingress("i", 1, &[(&["www.foo.test"], "right")]).expect(&["01"], &[]);
}

#[test]
fn the_oldest_usable_ingress_wins_and_the_others_hear_of_it() {
    let mut world = World::new("www.foo.test");
    let tls: &[(&[&str], &str)] = &[(&["www.foo.test"], "s")];
    let (one, two) = (pair(1, &["www.foo.test"]), pair(2, &["www.foo.test"]));
    world.secret("b/s", &one).secret("c/s", &two).ingress("c/young", 2, tls).ingress("b/old", 1, tls);
    world.expect(&["01"], &["HostConflict"]);
    let conflict = world.compile().diagnostics.remove(0);
    assert_eq!(conflict.object, Some(ObjectRef::new(Kind::Ingress, &named("c/young"))));
    assert!(conflict.message.contains("b/old"), "{conflict}");

    // An older one without `tls`, and an older one that has nothing to give, decide nothing.
    world.ingress("a/plain", 0, &[]).expect(&["01"], &["HostConflict"]);
    world.ingress("a/plain", 0, tls).expect(&["01"], &["HostConflict", "SecretNotFound"]);
    // The same certificate under another name is no conflict.
    world.delete(Kind::Ingress, "a/plain").secret("c/s", &one).expect(&["01"], &[]);
}

#[test]
fn who_asks_for_the_default_certificate_and_does_not_get_it_hears_of_it_too() {
    let mut world = World::new("www.foo.test");
    let named: &[(&[&str], &str)] = &[(&["www.foo.test"], "s")];
    let default: &[(&[&str], &str)] = &[(&["www.foo.test"], "")];
    world.secret("s", &pair(1, &["www.foo.test"])).ingress("old", 1, named).ingress("young", 2, default);
    world.expect(&["01"], &["HostConflict"]);
    let conflict = world.compile().diagnostics.remove(0);
    assert_eq!(conflict.object, Some(ingress_ref("young")));
    // The other way round it is the certificate that is not served.
    world.ingress("old", 3, named).expect(&[], &["HostConflict"]);
    assert_eq!(world.compile().diagnostics.remove(0).object, Some(ingress_ref("old")));
    world.ingress("old", 3, default).expect(&[], &[]);
}

#[test]
fn a_secret_name_that_is_none_keeps_the_last_good_certificate() {
    let mut world = World::new("www.foo.test");
    let hosts: &[&str] = &["www.foo.test"];
    world.ingress("i", 1, &[(hosts, UNUSABLE)]).expect(&[], &["SecretNotFound"]);
    for entry_hosts in [hosts, &[], &["other.test"]] {
        world.secret("s", &pair(1, hosts)).ingress("i", 1, &[(entry_hosts, "s")]).expect(&["01"], &[]);
        world.ingress("i", 1, &[(entry_hosts, UNUSABLE)]).expect(&["01"], &["SecretNotFound"]);
        let finding = world.compile().diagnostics.remove(0);
        assert_eq!((finding.severity, &*finding.field), (Severity::Error, "spec.tls[0].secretName"));
        assert!(finding.message.ends_with("the certificate from before stays in use"), "{finding}");
        world.delete(Kind::Secret, "s").after(GRACE * 2).expect(&["01"], &["SecretNotFound"]);
    }
    world.secret("t", &pair(2, hosts)).ingress("i", 1, &[(hosts, "t")]).expect(&["02"], &[]);
    world.ingress("i", 1, &[(hosts, "")]).expect(&[], &[]);
}

#[test]
fn an_ingress_of_another_class_has_no_say() {
    let mut world = World::new("www.foo.test");
    world.secret("s", &pair(1, &["www.foo.test"])).ingress("i", 1, &[(&[], "s")]);
    let outcome = compile_host_certificates(&world.store, &world.host, &[], None, GRACE, waits(), NOW);
    assert!(outcome.certificates.is_none() && outcome.diagnostics.is_empty());
}

#[test]
fn a_host_may_have_a_certificate_of_each_kind() {
    let mut world = World::new("www.foo.test");
    let names = &["www.foo.test"];
    world.secret("rsa", &of_kind(1, Algorithm::Rsa, names)).secret("ecdsa", &pair(2, names));
    world.secret("second", &pair(3, names));
    let hosts: &[&str] = &["www.foo.test"];
    world.ingress("i", 1, &[(hosts, "rsa"), (hosts, "ecdsa"), (hosts, "second")]);
    world.expect(&["02", "01"], &["HostConflict"]);
    let conflict = world.compile().diagnostics.remove(0);
    assert_eq!((conflict.object, &*conflict.field), (Some(ingress_ref("i")), "spec.tls[2].secretName"));
    assert!(conflict.message.contains("certificate of Secret a/ecdsa"), "{}", conflict.message);
    // The same certificate under two names is no conflict.
    let same = pair(2, names);
    world.secret("ecdsa", &same).secret("second", &same).expect(&["02", "01"], &[]);

    let served = world.served.as_ref().unwrap();
    let select = |keys| &*served.select(keys).pair.serial;
    let both = ClientKeys::NONE.with(Algorithm::Rsa).with(Algorithm::EcdsaP256);
    assert_eq!(select(both), "02");
    assert_eq!(select(ClientKeys::NONE.with(Algorithm::Rsa)), "01");
    assert_eq!(select(ClientKeys::NONE.with(Algorithm::Ed25519)), "02");
}

#[test]
fn an_equal_pair_is_the_same_certificate() {
    let mut world = World::new("www.foo.test");
    let pem = AUTHORITY.leaf(&["www.foo.test"]).valid(NOW - DAY, NOW + 60 * DAY).issue();
    world.secret("s", &Arc::new(pem.parse())).ingress("i", 1, &[(&[], "s")]);
    let before = world.compile().certificates.unwrap();
    let after = world.secret("s", &Arc::new(pem.parse())).compile().certificates.unwrap();
    assert!(Arc::ptr_eq(&before, &after));
}

#[test]
fn pem_pairs_serve_their_names_after_all_ingresses() {
    let mut world = World::new("www.foo.test");
    let (one, two, three) =
        (pair(1, &["www.foo.test"]), pair(2, &["www.foo.test"]), pair(3, &["www.foo.test"]));
    let pem = |world: &mut World, name: &str, pair: &Arc<KeyPair>| {
        world.any_secret(name, SecretOrigin::PemPair, Some(Ok(pair.clone())));
    };
    pem(&mut world, "x", &one);
    world.expect(&["01"], &[]);
    pem(&mut world, "y", &two);
    world.expect(&["01"], &["HostConflict"]);
    world.secret("s", &three).ingress("i", 1, &[(&["www.foo.test"], "s")]).expect(&["03"], &[]);
    world.delete(Kind::Ingress, "i").delete(Kind::Secret, "y").expect(&["01"], &[]);

    // A damaged file keeps it, a deleted one for the grace time, a replacement takes over at once.
    world.any_secret("x", SecretOrigin::PemPair, Some(Err(KeyPairError::KeyMismatch))).expect(&["01"], &[]);
    world.after(DAY).expect(&["01"], &[]);
    world.delete(Kind::Secret, "x").expect(&["01"], &["SecretNotFound"]);
    pem(&mut world, "z", &two);
    world.expect(&["02"], &[]);
    world.delete(Kind::Secret, "z").after(1).expect(&["02"], &["SecretNotFound"]);
    world.after(GRACE).expect(&[], &[]);

    // Other names: the host was taken out on purpose.
    pem(&mut world, "x", &one);
    world.expect(&["01"], &[]);
    pem(&mut world, "x", &pair(4, &["other.test"]));
    world.expect(&[], &[]);
}

#[test]
fn the_default_certificate_is_rotated_like_any_other() {
    let generated = Arc::new(KeyPair::generate_default().unwrap());
    let name = named("s");
    let mut world = World::new("");
    let compile = |world: &mut World, default: Option<&ObjectName>| {
        let outcome = compile_default_certificate(
            &world.store,
            default,
            &generated,
            world.served.as_ref(),
            waits(),
            world.now,
        );
        let again = compile_default_certificate(
            &world.store,
            default,
            &generated,
            Some(&outcome.certificates),
            waits(),
            world.now,
        );
        assert!(Arc::ptr_eq(&outcome.certificates, &again.certificates));
        world.served = Some(outcome.certificates);
        let reasons: Vec<_> = outcome.diagnostics.iter().map(|d| d.reason).collect();
        (serials(world.served.as_ref()).concat(), reasons)
    };
    let own = generated.serial.to_string();
    assert_eq!(compile(&mut world, None), (own.clone(), vec![]));
    assert_eq!(compile(&mut world, Some(&name)), (own.clone(), vec!["SecretNotFound"]));
    world.secret("s", &pair(1, &["any.test"]));
    assert_eq!(compile(&mut world, Some(&name)), ("01".into(), vec![]));
    world.secret("s", &pair(2, &["any.test"]));
    assert_eq!(compile(&mut world, Some(&name)), ("02".into(), vec![]));
    world.broken("s");
    assert_eq!(compile(&mut world, Some(&name)), ("02".into(), vec!["KeyMismatch"]));
    world.delete(Kind::Secret, "s").after(DAY);
    assert_eq!(compile(&mut world, Some(&name)), ("02".into(), vec!["SecretNotFound"]));
    assert_eq!(compile(&mut world, Some(&named("t"))), ("02".into(), vec!["SecretNotFound"]));
    world.secret("t", &dated(3, &[], NOW - 9, NOW - 1));
    assert_eq!(compile(&mut world, Some(&named("t"))), ("02".into(), vec!["CandidateExpired"]));
    assert_eq!(compile(&mut world, None), (own, vec![]));
}

#[test]
fn a_secret_says_what_is_wrong_with_it() {
    let mut world = World::new("");
    let finding = |world: &World, name: &str| {
        let findings = world.store.secret(&named(name)).unwrap().findings();
        findings.into_iter().map(|f| (f.severity, f.field, f.reason)).collect::<Vec<_>>()
    };
    world.broken("s");
    assert_eq!(finding(&world, "s"), [(Severity::Error, "data.tls.key".into(), "KeyMismatch")]);
    world.secret("s", &pair(1, &["a.test", "b*.a.test"]));
    assert_eq!(finding(&world, "s"), [(Severity::Warning, "data.tls.crt".into(), "NamesIgnored")]);
    world.any_secret("s", SecretOrigin::Object, None);
    assert_eq!(finding(&world, "s"), []);
}
