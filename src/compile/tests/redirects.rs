//! Redirects that annotations put in the place of routes.

use super::World;
use super::objects::*;
use crate::settings::Settings;
use crate::store::objects::{Ingress, Kind, PathType};

const WWW: &str = "nginx.ingress.kubernetes.io/from-to-www-redirect";
const ROOT: &str = "nginx.ingress.kubernetes.io/app-root";
const PERMANENT: &str = "nginx.ingress.kubernetes.io/permanent-redirect";

fn web(name: &str, host: &str) -> Ingress {
    ingress(name).path(host, "/", "web")
}

#[test]
fn a_host_with_or_without_www_is_sent_to_the_one_that_has_rules() {
    let mut world = World::new([web("a", "a.test").annotation(WWW, "true").object()]);
    assert_eq!(world.serves("www.a.test", "/x"), "308 https://a.test/x");
    assert_eq!(world.serves("a.test", "/x"), "a/web:80");
    assert_eq!(world.serves("www.www.a.test", "/"), "404");

    // Another way round, with another status.
    world.set(Settings { http_redirect_code: 301, ..Settings::default() });
    world.apply([web("a", "www.b.test").annotation(WWW, "true").object()]);
    assert_eq!(world.serves("b.test", "/"), "301 https://www.b.test/");
    assert_eq!(world.serves("www.a.test", "/"), "404", "the Ingress has another host now");

    world.apply([web("a", "www.b.test").annotation(WWW, "false").object()]);
    assert_eq!(world.serves("b.test", "/"), "404");
    world.apply([web("a", "www.b.test").annotation("portcullis.dev/from-to-www-redirect", "true").object()]);
    assert_eq!(world.serves("b.test", "/"), "301 https://www.b.test/");
    world.apply([web("a", "www.b.test").annotation("other.test/from-to-www-redirect", "true").object()]);
    assert_eq!(world.serves("b.test", "/"), "404", "that is somebody else's");
    world.apply([web("a", "www.b.test").annotation(WWW, "true").object()]);
    world.delete(Kind::Ingress, "a", "a");
    assert_eq!(world.serves("b.test", "/"), "404");
    assert!(world.compiled.snapshot.hosts.patterns().next().is_none());
}

#[test]
fn rules_of_the_other_host_win_path_by_path() {
    let solver = ingress("solver").path_of(
        PathType::Exact,
        "www.a.test",
        "/.well-known/acme-challenge/x",
        service_backend("solver"),
    );
    let mut world = World::new([web("a", "a.test").annotation(WWW, "true").object(), solver.object()]);
    assert_eq!(world.serves("www.a.test", "/.well-known/acme-challenge/x"), "a/solver:80");
    assert_eq!(world.serves("www.a.test", "/"), "308 https://a.test/");
    world.apply([web("www", "www.a.test").object()]);
    assert_eq!(world.serves("www.a.test", "/"), "a/web:80");
    world.delete(Kind::Ingress, "a", "www");
    assert_eq!(world.serves("www.a.test", "/"), "308 https://a.test/");
    // An Ingress with rules for both needs no redirect.
    let both = web("a", "a.test").path("www.a.test", "/", "other").annotation(WWW, "true");
    world.apply([both.object()]);
    assert_eq!(world.serves("www.a.test", "/"), "a/other:80");
}

#[test]
fn of_several_that_send_a_host_on_the_oldest_counts_and_a_foreign_class_does_not() {
    let mut world = World::new([
        class("ours", "portcullis.dev/ingress-controller", false),
        class("theirs", "somebody.test/else", false),
        web("young", "a.test").annotation(WWW, "true").created(2).class("ours").object(),
        web("old", "a.test").annotation(WWW, "true").created(1).class("theirs").object(),
    ]);
    let who = |world: &World| world.route("www.a.test", "/").unwrap().ingress.name.to_string();
    assert_eq!(who(&world), "young");
    world.apply([web("old", "a.test").annotation(WWW, "true").created(1).class("ours").object()]);
    assert_eq!(who(&world), "old");
}

#[test]
fn wildcards_and_rules_without_a_host_have_no_other() {
    let world = World::new([
        web("wild", "*.a.test").annotation(WWW, "true").object(),
        web("any", "").annotation(WWW, "true").object(),
    ]);
    assert_eq!(world.compiled.snapshot.hosts.patterns().count(), 2);
}

#[test]
fn the_root_goes_to_the_application() {
    let mut world = World::new([web("a", "a.test").annotation(ROOT, "/app").object()]);
    assert_eq!(world.serves("a.test", "/"), "302 https://a.test/app");
    assert_eq!(world.serves("a.test", "/app"), "a/web:80");
    // Where another Ingress has `/`, it is not sent anywhere.
    world.apply([
        ingress("a").path("a.test", "/shop", "web").annotation(ROOT, "/app").object(),
        web("b", "a.test").object(),
    ]);
    assert_eq!(world.serves("a.test", "/"), "a/web:80");
    assert_eq!(world.serves("a.test", "/shop"), "a/web:80");
}

#[test]
fn every_path_of_an_ingress_may_lead_elsewhere_but_not_those_of_others() {
    let mut world = World::new([
        web("a", "a.test").annotation(PERMANENT, "https://new.test$request_uri").object(),
        ingress("b").path("a.test", "/api", "api").object(),
    ]);
    assert_eq!(world.serves("a.test", "/x"), "301 https://new.test/x");
    assert_eq!(world.serves("a.test", "/api"), "a/api:80");
    world.apply([web("a", "a.test").annotation(PERMANENT, "new.test").object()]);
    assert_eq!(world.serves("a.test", "/x"), "a/web:80", "a value that cannot be used is ignored alone");
    // What protects a route closes it all the same.
    world.apply([web("a", "a.test")
        .annotation(PERMANENT, "https://new.test")
        .annotation("nginx.ingress.kubernetes.io/auth-url", "http://auth.test")
        .object()]);
    assert_eq!(world.serves("a.test", "/x"), "503 auth-url");
}
