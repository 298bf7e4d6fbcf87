//! More names for a host: `server-alias`.

use super::World;
use super::certificates::tls_secret;
use super::objects::*;
use crate::settings::Settings;
use crate::store::objects::{Ingress, Kind, Object};

const ALIAS: &str = "nginx.ingress.kubernetes.io/server-alias";

fn web(name: &str, host: &str, path: &str) -> Ingress {
    ingress(name).path(host, path, name)
}

fn told(world: &World, name: &str) -> bool {
    world.reasons().contains(&("AliasConflict", name.into()))
}

#[test]
fn an_alias_has_all_routes_of_its_host() {
    let one = || web("one", "a.test", "/").annotation(ALIAS, "b.test, *.c.test ,,B.TEST.");
    let mut world = World::new([one().object()]);
    for host in ["a.test", "b.test", "x.c.test"] {
        assert_eq!(world.serves(host, "/x"), "a/one:80", "{host}");
    }
    for host in ["c.test", "y.x.c.test", "x.b.test", "other.test"] {
        assert_eq!(world.serves(host, "/"), "404", "{host}");
    }
    // Those of other Ingresses too, as they come, change and go.
    world.apply([web("two", "a.test", "/two").object()]);
    assert_eq!(world.serves("b.test", "/two"), "a/two:80");
    world.apply([web("two", "a.test", "/zwei").object()]);
    assert_eq!(world.serves("x.c.test", "/zwei"), "a/two:80");
    assert_eq!(world.serves("x.c.test", "/two"), "a/one:80");
    world.delete(Kind::Ingress, "a", "two");
    assert_eq!(world.serves("b.test", "/zwei"), "a/one:80");

    world.apply([one().annotation(ALIAS, "d.test").object()]);
    assert_eq!(world.serves("b.test", "/"), "404");
    assert_eq!(world.serves("d.test", "/"), "a/one:80");
    world.apply([one().annotation("portcullis.dev/server-alias", "e.test").object()]);
    assert_eq!(world.serves("e.test", "/"), "a/one:80");
    assert_eq!(world.serves("b.test", "/"), "404", "our own prefix wins");
    world.delete(Kind::Ingress, "a", "one");
    assert_eq!(world.compiled.snapshot.hosts.patterns().count(), 0);
}

#[test]
fn what_is_no_alias_has_no_effect() {
    let mut world =
        World::new([web("one", "a.test", "/").annotation(ALIAS, r"~^b\d+\.test$,b.test").object()]);
    assert_eq!(world.serves("b1.test", "/"), "404");
    assert_eq!(world.serves("b.test", "/"), "a/one:80", "the others still are");
    assert!(world.reasons().contains(&("UnsupportedAnnotation", "one".into())), "{:?}", world.findings());
    for list in ["b.test,no host!", "b.test,c.test:80", "b.test,*.*.test", "b.test,*", "http://b.test"] {
        world.apply([web("one", "a.test", "/").annotation(ALIAS, list).object()]);
        assert_eq!(world.serves("b.test", "/"), "404", "{list}");
        assert!(world.reasons().contains(&("InvalidAnnotation", "one".into())), "{list}");
    }
    world.apply([ingress("one").path("", "/", "one").annotation(ALIAS, "b.test").object()]);
    assert!(world.compiled.snapshot.hosts.find_named("b.test").is_none());
    assert!(told(&world, "one"));
    world.set(Settings { annotations_prefix: "x.test".into(), ..Settings::default() });
    world.apply([web("one", "a.test", "/").annotation(ALIAS, "b.test").object()]);
    assert_eq!(world.serves("b.test", "/"), "404");
}

#[test]
fn a_name_with_rules_of_its_own_is_no_alias() {
    let mut world = World::new([web("one", "a.test", "/").created(1).annotation(ALIAS, "b.test").object()]);
    world.apply([web("two", "b.test", "/two").created(2).object()]);
    assert_eq!(world.serves("b.test", "/two"), "a/two:80");
    assert_eq!(world.serves("b.test", "/"), "404");
    assert!(told(&world, "one"));
    let finding = world.findings().into_iter().find(|it| it.contains("AliasConflict")).unwrap();
    assert!(
        finding.contains(r#"metadata.annotations["nginx.ingress.kubernetes.io/server-alias"]"#),
        "{finding}"
    );
    world.apply([web("two", "c.test", "/two").object()]);
    assert_eq!(world.serves("b.test", "/"), "a/one:80");
    assert!(!told(&world, "one"));
}

#[test]
fn the_oldest_ingress_says_which_names_there_are() {
    let aliased = |name: &str, host: &str, created: i64, list: &str| {
        web(name, host, &format!("/{name}")).created(created).annotation(ALIAS, list)
    };
    // Of one host.
    let mut world = World::new([
        aliased("young", "a.test", 2, "b.test,c.test").object(),
        aliased("old", "a.test", 1, "b.test").object(),
    ]);
    assert_eq!(world.serves("b.test", "/young"), "a/young:80");
    assert_eq!(world.serves("b.test", "/old"), "a/old:80");
    assert_eq!(world.serves("c.test", "/young"), "404");
    assert!(told(&world, "young") && !told(&world, "old"));
    world.delete(Kind::Ingress, "a", "old");
    assert_eq!(world.serves("c.test", "/young"), "a/young:80");
    assert!(!told(&world, "young"));
    world.apply([aliased("old", "a.test", 1, "").object()]);
    assert_eq!(world.serves("c.test", "/old"), "a/old:80", "an empty list is none");

    // Of two.
    let mut world = World::new([
        aliased("young", "a.test", 2, "c.test").object(),
        aliased("old", "b.test", 1, "c.test").object(),
    ]);
    assert_eq!(world.serves("c.test", "/old"), "a/old:80");
    assert_eq!(world.serves("c.test", "/young"), "404");
    assert!(told(&world, "young"));
    world.delete(Kind::Ingress, "a", "old");
    assert_eq!(world.serves("c.test", "/young"), "a/young:80");
}

#[test]
fn the_class_counts_and_a_wildcard_gives_way() {
    let mut world = World::new([
        class("theirs", "somebody.test/else", false),
        web("one", "a.test", "/").class("theirs").annotation(ALIAS, "b.test").object(),
        web("wild", "*.test", "/").object(),
    ]);
    assert_eq!(world.serves("b.test", "/"), "a/wild:80");
    world.apply([class("theirs", "portcullis.dev/ingress-controller", false)]);
    assert_eq!(world.serves("b.test", "/"), "a/one:80");
}

#[test]
fn an_alias_is_protected_as_its_host_is() {
    let one = web("one", "a.test", "/").annotation(ALIAS, "b.test").tls();
    let other =
        web("two", "a.test", "/two").annotation("nginx.ingress.kubernetes.io/server-snippet", "deny all;");
    let world = World::new([one.object(), other.object()]);
    assert_eq!(world.serves("b.test", "/"), "503 server-snippet");
    assert!(world.compiled.snapshot.hosts.find("b.test").unwrap().has_tls);
}

#[test]
fn an_alias_asks_for_the_certificates_of_clients_that_its_host_asks_for() {
    const CA: &str = "nginx.ingress.kubernetes.io/auth-tls-secret";
    let mut world = World::new([
        web("one", "a.test", "/").annotation(ALIAS, "b.test").object(),
        web("two", "a.test", "/two").annotation(CA, "a/ca").tls().object(),
    ]);
    let auth = |world: &World, host: &str| {
        super::client_auth::view(world.compiled.snapshot.hosts.find(host).unwrap())
    };
    // The Secret comes later, and is named by another Ingress than the alias.
    let before = auth(&world, "b.test");
    assert_eq!(before, auth(&world, "a.test"));
    world.apply([tls_secret("ca", &["a.test"])]);
    assert_eq!(auth(&world, "b.test"), auth(&world, "a.test"));
    world.apply([super::client_auth::authorities("ca")]);
    assert_ne!(auth(&world, "b.test"), before);
}

#[test]
fn an_alias_has_a_certificate_that_covers_it() {
    let serials = |world: &World, host: &str| {
        world.view().into_iter().any(|line| line.starts_with(&format!("certificates {host} ")))
    };
    let one = || web("one", "a.test", "/").annotation(ALIAS, "b.test").tls();
    let mut world = World::new([one().object(), tls_secret("tls", &["a.test"])]);
    assert!(serials(&world, "a.test") && !serials(&world, "b.test"));
    // The Secret changes, and so do the Ingresses of the host.
    world.apply([tls_secret("tls", &["a.test", "b.test"])]);
    assert!(serials(&world, "b.test"));
    world.apply([one().annotation(ALIAS, "c.test").object()]);
    assert!(!serials(&world, "b.test") && !serials(&world, "c.test"));

    // Of an Ingress that names no alias itself.
    let mut world = World::new([
        web("one", "a.test", "/").annotation(ALIAS, "b.test").object(),
        web("two", "a.test", "/two").tls().object(),
    ]);
    world.apply([tls_secret("tls", &["a.test", "b.test"])]);
    assert!(serials(&world, "b.test"));
    assert_eq!(world.serves("b.test", "/two"), "a/two:80");
}

#[test]
fn an_alias_is_no_host_to_be_sent_away_from() {
    let www = "nginx.ingress.kubernetes.io/from-to-www-redirect";
    let one = web("one", "a.test", "/x").annotation(ALIAS, "www.a.test").annotation(www, "true");
    let world = World::new([one.object(), Object::Service(service("one"))]);
    assert_eq!(world.serves("www.a.test", "/x"), "a/one:80");
    assert_eq!(world.serves("www.a.test", "/"), "404");
}
