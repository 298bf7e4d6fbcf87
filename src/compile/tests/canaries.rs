use std::sync::Arc;

use super::World;
use super::objects::*;
use crate::compile::is_served;
use crate::snapshot::canary::{Canary, HeaderValues};
use crate::snapshot::hosts::Action;
use crate::store::objects::{Ingress, Kind, Object, ObjectName, PathType};

const NGINX: &str = "nginx.ingress.kubernetes.io";

fn annotated(ingress: Ingress, annotations: &[(&str, &str)]) -> Ingress {
    annotations.iter().fold(ingress, |it, (name, value)| it.annotation(&format!("{NGINX}/{name}"), value))
}

fn canary(name: &str, annotations: &[(&str, &str)]) -> Ingress {
    annotated(ingress(name), annotations).annotation(&format!("{NGINX}/canary"), "true")
}

fn main() -> Ingress {
    ingress("main").created(10).path("a.test", "/", "stable").path("a.test", "/api", "api")
}

impl World {
    fn canary(&self, path: &str) -> Option<&Canary> {
        self.route("a.test", path).unwrap().canary.as_deref()
    }

    /// The backend of the canary for a path.
    fn canary_backend(&self, path: &str) -> Option<String> {
        self.canary(path).map(|canary| match &canary.route.action {
            Action::Forward(cluster) => cluster.to_string(),
            other => panic!("{other:?}"),
        })
    }
}

#[test]
fn a_canary_is_for_the_same_host_path_and_kind_and_brings_nothing_else() {
    let canary =
        canary("canary", &[("canary-weight", "20"), ("app-root", "/x"), ("auth-url", "http://auth")])
            .created(1)
            .path("a.test", "/", "new")
            .path_of(PathType::Exact, "a.test", "/api", service_backend("new"))
            .path("a.test", "/only", "new")
            .path("b.test", "/", "new")
            .tls();
    let world = World::new([canary.object(), main().object(), slice_of("new"), service_of("new")]);
    assert_eq!(world.serves("a.test", "/"), "a/stable:80");
    assert_eq!(world.serves("a.test", "/only"), "a/stable:80");
    assert_eq!(world.serves("b.test", "/"), "404");
    assert_eq!(world.canary_backend("/"), Some("a/new:80".into()));
    assert_eq!(world.canary_backend("/api"), None, "it is of another kind");
    assert!(!world.compiled.snapshot.hosts.find("a.test").unwrap().has_tls);
    assert_eq!(world.endpoints("a/new:80"), ["10.0.0.1:8080"]);
    let found: Vec<_> =
        world.findings().into_iter().filter(|finding| finding.starts_with("Ingress a/canary")).collect();
    let none = |place, path, host| {
        format!(
            "Ingress a/canary: spec.rules[{place}].path: No canary for path \"{path}\" of host {host}: no other Ingress \
             has this path, of the same kind; a canary brings no routes of its own. (CanaryWithoutMain)"
        )
    };
    let expected = [
        none("0].http.paths[1", "/api", "a.test"),
        none("0].http.paths[2", "/only", "a.test"),
        none("1].http.paths[0", "/", "b.test"),
    ];
    assert_eq!(found, expected);
    let (main, canary) = (world.route("a.test", "/").unwrap(), world.canary("/").unwrap());
    assert_eq!((canary.rules.weight, canary.rules.total, canary.rules.sticky), (20, 100, true));
    assert_eq!((&canary.route.ingress, &canary.route.policy), (&main.ingress, &main.policy));
}

/// Who waits for the address of every Ingress, as tools for deployments do, waits for that of a canary too.
#[test]
fn a_canary_is_served_where_its_class_is_ours() {
    let world = World::new([
        class("ours", "portcullis.dev/ingress-controller", false),
        class("theirs", "example.com/other", false),
        canary("ours", &[]).class("ours").path("a.test", "/", "new").object(),
        canary("theirs", &[]).class("theirs").path("a.test", "/", "new").object(),
        main().object(),
    ]);
    let served = |name| {
        let ingress = world.store.ingress(&ObjectName::new("a", name)).unwrap();
        is_served(&world.store, &world.settings, ingress)
    };
    assert_eq!([served("ours"), served("theirs")], [true, false]);
    assert_eq!(world.canary_backend("/"), Some("a/new:80".into()));
    assert!(!world.reasons().contains(&("CanaryConflict", "theirs".into())));
}

#[test]
fn one_canary_counts_and_it_is_of_the_namespace_of_its_main_ingress() {
    let mut foreign = canary("foreign", &[]).created(1).path("a.test", "/", "evil");
    foreign.metadata.name = ObjectName::new("evil", "foreign");
    let world = World::new([
        foreign.object(),
        canary("first", &[]).created(2).path("a.test", "/", "first").object(),
        canary("second", &[]).created(3).path("a.test", "/", "second").object(),
        main().object(),
    ]);
    assert_eq!(world.canary_backend("/"), Some("a/first:80".into()));
    let reasons = world.reasons();
    assert!(reasons.contains(&("CanaryOfOtherNamespace", "foreign".into())), "{reasons:?}");
    assert!(reasons.contains(&("CanaryConflict", "second".into())), "{reasons:?}");
}

#[test]
fn rules_are_those_of_the_annotations() {
    let rules = |annotations: &[(&str, &str)]| {
        let canary = canary("canary", annotations).path("a.test", "/", "new").object();
        let world = World::new([main().object(), canary]);
        world.canary("/").unwrap().rules.clone()
    };
    let header = |annotations: &[(&str, &str)]| rules(annotations).header.as_ref().unwrap().values.clone();
    let by = ("canary-by-header", "X-Canary");
    assert_eq!(rules(&[by]).header.as_ref().unwrap().name, "x-canary");
    assert_eq!(header(&[by]), HeaderValues::Words);
    assert_eq!(header(&[by, ("canary-by-header-value", "beta")]), HeaderValues::Exactly("beta".into()));
    let pattern = ("canary-by-header-pattern", "^b");
    assert!(matches!(header(&[by, pattern]), HeaderValues::Matching(_)));
    assert!(matches!(header(&[by, pattern, ("canary-by-header-value", "x")]), HeaderValues::Exactly(_)));
    assert_eq!(header(&[by, ("canary-by-header-pattern", "(")]), HeaderValues::Words);
    assert_eq!(rules(&[("canary-by-header-value", "beta")]).header, None);
    assert_eq!(rules(&[("canary-by-cookie", "c")]).cookie.as_deref(), Some("c"));
    let weights = |total| {
        let rules = rules(&[("canary-weight", "20"), ("canary-weight-total", total)]);
        (rules.weight, rules.total)
    };
    assert_eq!([weights("50"), weights("1000"), weights("x")], [(20, 100), (20, 1000), (20, 100)]);
    assert!(!rules(&[("affinity-canary-behavior", "legacy")]).sticky);
}

#[test]
fn affinity_is_the_main_ingress_s_unless_the_canary_has_its_own() {
    let world = |annotations: &[(&str, &str)]| {
        World::new([
            annotated(main(), &[("affinity", "cookie"), ("session-cookie-name", "main")]).object(),
            canary("canary", annotations).path("a.test", "/", "new").object(),
        ])
    };
    let cookie = |world: &World| {
        let affinity = world.canary("/").unwrap().route.policy.affinity.clone();
        affinity.map(|affinity| affinity.cookie.name.clone())
    };
    let own =
        [("affinity", "cookie"), ("session-cookie-name", "own"), ("affinity-canary-behavior", "legacy")];
    assert_eq!(cookie(&world(&[])).as_deref(), Some("main"));
    assert_eq!(cookie(&world(&own[..2])).as_deref(), Some("main"));
    assert_eq!(cookie(&world(&own)).as_deref(), Some("own"));
    assert_eq!(cookie(&world(&own[2..])), None);
}

#[test]
fn it_comes_changes_and_goes_and_routes_keep_their_counters() {
    let mut world = World::new([main().object()]);
    let before = world.route("a.test", "/").unwrap().clone();
    let api = world.route("a.test", "/api").unwrap().clone();
    let with = |weight, service| {
        canary("canary", &[("canary-weight", weight)]).path("a.test", "/", service).object()
    };
    world.apply([with("10", "new")]);
    let first = world.canary("/").unwrap().route.clone();
    assert!(Arc::ptr_eq(&world.route("a.test", "/").unwrap().stats, &before.stats));
    assert!(Arc::ptr_eq(world.route("a.test", "/api").unwrap(), &api), "it has no canary");
    world.apply([with("20", "new")]);
    assert_eq!(world.canary("/").unwrap().rules.weight, 20);
    assert!(Arc::ptr_eq(&world.canary("/").unwrap().route, &first));
    world.apply([with("20", "newer")]);
    assert_eq!(world.canary_backend("/"), Some("a/newer:80".into()));
    assert!(Arc::ptr_eq(&world.canary("/").unwrap().route.stats, &first.stats));
    world.delete(Kind::Ingress, "a", "canary");
    assert_eq!(world.canary_backend("/"), None);
    // A main Ingress that comes later finds its canary waiting.
    world.apply([with("5", "new")]);
    world.delete(Kind::Ingress, "a", "main");
    assert_eq!(world.serves("a.test", "/"), "404");
    world.apply([main().object()]);
    assert_eq!(world.canary_backend("/"), Some("a/new:80".into()));
}

#[test]
fn closed_and_redirected_routes_have_none_and_default_backends_may() {
    for (name, value) in [("enable-modsecurity", "true"), ("permanent-redirect", "https://b.test")] {
        let world = World::new([
            annotated(main(), &[(name, value)]).object(),
            canary("canary", &[]).path("a.test", "/", "new").object(),
        ]);
        assert_eq!(world.canary_backend("/"), None, "{name}");
    }
    let world = World::new([
        ingress("main").path("a.test", "/x", "x").default_service("rest").object(),
        canary("canary", &[]).path("a.test", "/x", "new").default_service("new-rest").object(),
    ]);
    assert_eq!(world.canary_backend("/y"), Some("a/new-rest:80".into()));
}

fn service_of(name: &str) -> Object {
    Object::Service(service(name))
}

fn slice_of(service: &str) -> Object {
    let slice = slice("slice", service, &["10.0.0.1"]);
    Object::EndpointSlice(slice)
}
