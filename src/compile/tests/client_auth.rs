//! What hosts ask of their clients' certificates.

use super::objects::*;
use super::*;
use crate::clock;
use crate::snapshot::client_auth::{ClientAuth, ClientCheck, VerifyClient};
use crate::snapshot::hosts::Host;
use crate::snapshot::{Snapshot, TlsPort};
use crate::store::objects::{Ingress, Secret, SecretOrigin};
use crate::testing::certificates::Authority;
use crate::tls::client_auth::ClientCa;
use crate::tls::policy::TlsPolicy;

const PREFIX: &str = "nginx.ingress.kubernetes.io/auth-tls-";

/// For the views of other tests.
pub fn view(host: &Host) -> String {
    match host.client_auth.as_deref() {
        None => String::new(),
        Some(ClientAuth::Refused) => "clients refused".into(),
        Some(ClientAuth::Checked(check)) => {
            let ClientCheck { verify, depth, subject, pass_certificate, error_page, authorities, policy } =
                check;
            let policy = policy.as_ref().map(|policy| policy.authorities().unwrap().is_same(authorities));
            assert_eq!(policy, (*verify != VerifyClient::Off).then_some(true));
            format!(
                "clients {verify:?} {depth} {subject:?} {pass_certificate} {error_page:?} {authorities:?}"
            )
        }
    }
}

fn world<const N: usize>(objects: [Object; N]) -> World {
    let backend =
        [Object::Service(service("web")), Object::EndpointSlice(slice("web-1", "web", &["10.0.0.1"]))];
    World::new(backend.into_iter().chain(objects))
}

impl Ingress {
    fn asks(self, name: &str, value: &str) -> Self {
        self.annotation(&format!("{PREFIX}{name}"), value)
    }
}

fn web(name: &str, host: &str) -> Ingress {
    ingress(name).path(host, "/", "web")
}

fn secret(name: &str, certificates: Option<&str>, lists: Option<&str>) -> Object {
    Object::Secret(Secret {
        metadata: metadata(name),
        kind: "Opaque".into(),
        origin: SecretOrigin::Object,
        pair: None,
        fields: Default::default(),
        ticket_keys: None,
        authorities: None,
        users: Default::default(),
        client_ca: certificates.map(|it| ClientCa::new(it.as_bytes(), lists.map(str::as_bytes))),
    })
}

/// A Secret with an authority that clients are verified with.
pub fn authorities(name: &str) -> Object {
    secret(name, Some(&Authority::new(name).pem()), None)
}

fn auth<'a>(world: &'a World, host: &str) -> Option<&'a Arc<ClientAuth>> {
    world.compiled.snapshot.hosts.find(host)?.client_auth.as_ref()
}

fn check<'a>(world: &'a World, host: &str) -> &'a ClientCheck {
    auth(world, host).and_then(|auth| auth.check()).expect("clients can be checked")
}

fn is_refused(world: &World, host: &str) -> bool {
    matches!(auth(world, host).map(|auth| &**auth), Some(ClientAuth::Refused))
}

fn policy<'a>(snapshot: &'a Snapshot, host: &str) -> &'a Arc<TlsPolicy> {
    snapshot.tls_policy(TlsPort::Https, snapshot.hosts.asking(Some(host))).unwrap()
}

#[test]
fn a_host_asks_its_clients_and_its_secret_is_followed() {
    let (one, two) = (Authority::new("one").pem(), Authority::new("two").pem());
    let mut world = world([
        secret("ca", Some(&one), None),
        web("a", "a.test").path("b.test", "/", "web").asks("secret", "a/ca").object(),
        web("c", "c.test").asks("secret", "ca").asks("verify-client", "off").object(),
        web("d", "d.test").object(),
    ]);
    assert_eq!(world.findings(), [] as [&str; 0]);
    let snapshot = world.compiled.snapshot.clone();
    let plain = policy(&snapshot, "d.test");
    assert!(plain.authorities().is_none() && Arc::ptr_eq(plain, policy(&snapshot, "c.test")));
    assert!(
        Arc::ptr_eq(policy(&snapshot, "a.test"), policy(&snapshot, "b.test")),
        "one for all with the same"
    );
    assert!(policy(&snapshot, "a.test").admits(plain) && !plain.admits(policy(&snapshot, "a.test")));
    let before = check(&world, "a.test").authorities.clone();
    assert_eq!((check(&world, "a.test").verify, check(&world, "a.test").depth), (VerifyClient::On, 1));

    // Another compile of the same is the same.
    let kept = auth(&world, "a.test").unwrap().clone();
    world.apply([web("a", "a.test").path("b.test", "/x", "web").asks("secret", "a/ca").object()]);
    assert!(Arc::ptr_eq(&kept, auth(&world, "a.test").unwrap()));

    world.apply([secret("ca", Some(&two), None)]);
    assert!(!check(&world, "a.test").authorities.is_same(&before));
    assert!(!policy(&world.compiled.snapshot, "a.test").admits(policy(&snapshot, "a.test")));
    let list = Authority::new("else").revocation_list(&[]);
    let changed = check(&world, "b.test").authorities.clone();
    world.apply([secret("ca", Some(&two), Some(&list))]);
    assert!(!check(&world, "b.test").authorities.is_same(&changed), "a list is part of it");

    world.apply([web("a", "a.test").object()]);
    assert!(auth(&world, "a.test").is_none());
    assert!(policy(&world.compiled.snapshot, "a.test").authorities().is_none());
}

#[test]
fn what_cannot_be_verified_lets_nobody_in() {
    let root = Authority::new("one").pem();
    let asking = |secret: &str| web("a", "a.test").asks("secret", secret).object();
    let mut world = world([asking("a/ca")]);
    let finds = |world: &World, reason: &str| world.reasons().contains(&(reason, "a".into()));
    assert!(is_refused(&world, "a.test") && finds(&world, "SecretNotFound"), "{:?}", world.findings());
    assert!(
        world.findings()[0].contains("metadata.annotations[\"nginx.ingress.kubernetes.io/auth-tls-secret\"]")
    );
    assert!(world.findings()[0].contains("requests of the host are refused (403)"), "{:?}", world.findings());

    world.apply([secret("ca", None, None)]);
    assert!(is_refused(&world, "a.test") && finds(&world, "ClientCaMissing"), "{:?}", world.findings());
    for (certificates, lists) in
        [("", None), ("nonsense", None), (&*root, Some("")), (&*root, Some("nonsense"))]
    {
        world.apply([secret("ca", Some(certificates), lists)]);
        assert!(is_refused(&world, "a.test") && finds(&world, "InvalidClientCa"), "{:?}", world.findings());
        assert!(world.reasons().contains(&("InvalidClientCa", "ca".into())));
    }
    world.apply([secret("ca", Some(&root), None)]);
    assert!(!is_refused(&world, "a.test") && world.findings().is_empty(), "{:?}", world.findings());
    world.delete(Kind::Secret, "a", "ca");
    assert!(is_refused(&world, "a.test") && finds(&world, "SecretNotFound"));

    world.apply([secret("ca", Some(&root), None)]);
    for (name, reason) in
        [("b/ca", "is in another namespace"), ("a/", "is not the name"), ("a/b/c", "is not the name")]
    {
        world.apply([asking(name)]);
        assert!(is_refused(&world, "a.test") && finds(&world, "InvalidSecretName"), "{:?}", world.findings());
        assert!(world.findings()[0].contains(reason), "{:?}", world.findings());
    }
    world.apply([web("a", "a.test").asks("secret", "ca").asks("match-cn", "(?=a)").object()]);
    assert!(is_refused(&world, "a.test") && finds(&world, "InvalidAnnotation"), "{:?}", world.findings());

    // Without any Secret there is nothing to verify with.
    for (name, value, closes) in [
        ("match-cn", "CN=a", true),
        ("verify-client", "on", true),
        ("verify-client", "optional", true),
        ("verify-client", "off", false),
        ("verify-depth", "2", false),
    ] {
        world.apply([web("a", "a.test").asks(name, value).object()]);
        assert_eq!(
            (is_refused(&world, "a.test"), finds(&world, "ClientCaMissing")),
            (closes, true),
            "{name}"
        );
    }
}

#[test]
fn the_oldest_ingress_of_a_host_with_a_secret_decides() {
    let (one, two) = (Authority::new("one").pem(), Authority::new("two").pem());
    let (same, other) =
        (web("z", "a.test").asks("secret", "a/one"), web("y", "a.test").asks("secret", "a/two"));
    let mut world = world([
        secret("one", Some(&one), None),
        secret("two", Some(&two), None),
        ingress("open").created(1).path("a.test", "/open", "web").object(),
        ingress("old").created(2).path("a.test", "/old", "web").asks("secret", "a/one").object(),
        same.created(3).object(),
        other.clone().created(4).object(),
        ingress("part").created(5).path("a.test", "/part", "web").asks("verify-client", "off").object(),
    ]);
    let is_one = |world: &World| {
        let wanted = ClientCa::new(one.as_bytes(), None);
        check(world, "a.test").authorities.is_same(wanted.authorities().unwrap())
    };
    assert!(is_one(&world));
    let conflicts = |world: &World| {
        let found = world.reasons().into_iter().filter(|(reason, _)| *reason == "ClientAuthConflict");
        found.map(|(_, name)| name).collect::<Vec<_>>()
    };
    assert_eq!(conflicts(&world), ["part", "y"]);
    world.apply([other.created(0).object()]);
    assert!(!is_one(&world));
    assert_eq!(conflicts(&world), ["old", "part", "z"]);
    // The oldest decides also where it cannot be done.
    world.delete(Kind::Secret, "a", "two");
    assert!(is_refused(&world, "a.test"));
}

#[test]
fn what_ends_is_told_when_it_does() {
    let root = Authority::new("one");
    let mut world = world([
        secret("ca", Some(&root.pem()), Some(&root.revocation_list(&[]))),
        web("a", "a.test").asks("secret", "ca").object(),
    ]);
    assert!(world.findings().is_empty(), "{:?}", world.findings());
    let at = world.compiled.recheck_at().unwrap();
    assert!((clock::now()..clock::now() + 25 * 3600).contains(&at));
    let before = auth(&world, "a.test").unwrap().clone();
    world.now = at;
    world.compile();
    assert_eq!(world.reasons(), [("RevocationListExpired", "a".to_owned())]);
    assert!(Arc::ptr_eq(&before, auth(&world, "a.test").unwrap()));
    world.apply([web("a", "a.test").asks("secret", "ca").asks("verify-client", "optional_no_ca").object()]);
    assert!(world.reasons().contains(&("UnverifiedClients", "a".into())), "{:?}", world.findings());
}

#[test]
fn tls_settings_that_change_change_the_policy_of_hosts_that_ask_too() {
    let root = Authority::new("one").pem();
    let mut world = world([
        secret("ca", Some(&root), None),
        web("a", "a.test").asks("secret", "ca").object(),
        ingress("any").default_service("web").object(),
    ]);
    let before = world.compiled.snapshot.clone();
    world.set(Settings { use_http2: false, ..Settings::default() });
    let after = &world.compiled.snapshot;
    assert!(!Arc::ptr_eq(policy(&before, "a.test"), policy(after, "a.test")));
    assert!(policy(&before, "a.test").admits(policy(after, "a.test")));
    // Of the rules without a host, whoever asks for no name is a client.
    assert!(after.hosts.asking(None).is_some_and(|host| host.client_auth.is_none()));
    let any = ingress("any").default_service("web").asks("secret", "ca");
    world.apply([any.object()]);
    assert!(world.compiled.snapshot.hosts.asking(Some("unknown.test")).unwrap().client_auth.is_some());
    world.apply([web("a", "a.test").object(), ingress("any").default_service("web").object()]);
    assert!(world.compiled.snapshot.hosts.asking(Some("a.test")).is_none(), "nobody asks any more");
}
