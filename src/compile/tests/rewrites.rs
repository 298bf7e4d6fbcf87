//! Paths that are regular expressions, and what requests are changed into.

use std::sync::Arc;

use super::World;
use super::objects::*;
use crate::store::objects::{Backend, Ingress, Kind, Object, PathType, ServicePortRef};

const REGEX: &str = "nginx.ingress.kubernetes.io/use-regex";
const TARGET: &str = "nginx.ingress.kubernetes.io/rewrite-target";
const VHOST: &str = "nginx.ingress.kubernetes.io/upstream-vhost";
const PREFIX: &str = "nginx.ingress.kubernetes.io/x-forwarded-prefix";
const ROOT: &str = "nginx.ingress.kubernetes.io/app-root";

/// The path and query that a request becomes; its own where nothing changes it.
fn becomes(world: &World, host: &str, path: &str, query: Option<&str>) -> String {
    let route = world.route(host, path).unwrap_or_else(|| panic!("no route for {host}{path}"));
    match route.rewrite.as_ref().and_then(|rewrite| Some((rewrite, rewrite.target.as_ref()?))) {
        Some((rewrite, target)) => target.fill(&rewrite.captures(path), query).unwrap(),
        None => path.into(),
    }
}

fn reasons_of(world: &World, name: &str) -> Vec<&'static str> {
    let found = world.reasons();
    let of_name = found.iter().filter(|(_, object)| object == name).map(|(reason, _)| *reason);
    of_name.filter(|reason| *reason != "ServiceNotFound").collect()
}

#[test]
fn one_ingress_makes_all_paths_of_its_host_patterns_and_the_others_are_told() {
    let plain = ingress("plain")
        .created(1)
        .path_of(PathType::Exact, "a.test", "/Orders", service_backend("orders"))
        .path("a.test", "/api/", "api")
        .path("b.test", "/Orders", "orders");
    let root = ingress("root").path("a.test", "/", "root");
    let regex = ingress("regex").created(2).path("a.test", "/v[0-9]+", "versions").annotation(REGEX, "true");
    let mut world = World::new([plain.object(), root.object()]);
    assert_eq!(world.serves("a.test", "/orders123"), "a/root:80");
    assert_eq!(world.serves("a.test", "/api"), "a/api:80");

    world.apply([regex.clone().object()]);
    for (host, path, expected) in [
        ("a.test", "/Orders", "a/orders:80"),
        ("a.test", "/orders123", "a/orders:80"),
        ("a.test", "/API/x", "a/api:80"),
        ("a.test", "/api", "a/root:80"),
        ("a.test", "/V12/x", "a/versions:80"),
        ("a.test", "/x/v1", "a/root:80"),
        ("b.test", "/orders", "404"),
        ("b.test", "/Orders", "a/orders:80"),
    ] {
        assert_eq!(world.serves(host, path), expected, "{host}{path}");
    }
    assert_eq!(reasons_of(&world, "plain"), ["PathsArePatterns"]);
    assert_eq!(reasons_of(&world, "root"), [""; 0], "the root means the same");
    assert_eq!(reasons_of(&world, "regex"), [""; 0]);
    let told = world.findings().into_iter().find(|it| it.contains("PathsArePatterns")).unwrap();
    assert!(told.contains("a/plain: spec.rules[0].host: Ingress a/regex has use-regex"), "{told}");

    // Under another prefix, with another value, gone: the paths mean what they say again.
    for other in [
        regex.clone().annotation(REGEX, "false"),
        regex.clone().annotation("portcullis.dev/use-regex", "false"),
        regex.clone().annotation(REGEX, "perhaps"),
    ] {
        world.apply([regex.clone().object()]);
        assert_eq!(world.serves("a.test", "/orders123"), "a/orders:80");
        world.apply([other.object()]);
        assert_eq!(world.serves("a.test", "/orders123"), "a/root:80");
    }
    world.apply([regex.object()]);
    world.delete(Kind::Ingress, "a", "regex");
    assert_eq!(world.serves("a.test", "/orders123"), "a/root:80");
    assert_eq!(reasons_of(&world, "plain"), [""; 0]);
}

#[test]
fn the_longest_pattern_comes_first_and_then_the_last_in_order() {
    let of =
        |name: &str, path: &str| ingress(name).path("a.test", path, name).annotation(REGEX, "true").object();
    let world = World::new([
        of("short", "/foo/.*"),
        of("long", "/foo/bar/.+"),
        of("b", "/same/[b]"),
        of("a", "/same/[a-c]x?"),
        of("c", "/same/[c]"),
        of("dot", "/same/.*$"),
        of("rest", "/"),
    ]);
    for (path, expected) in [
        ("/foo/bar/x", "a/long:80"),
        ("/foo/bar", "a/short:80"),
        ("/same/b", "a/a:80"),
        ("/same/z", "a/dot:80"),
        ("/other", "a/rest:80"),
    ] {
        assert_eq!(world.serves("a.test", path), expected, "{path}");
    }
    let world = World::new([of("one", "/a[1]"), of("two", "/a[.]"), of("three", "/a.{1}")]);
    assert_eq!(world.serves("a.test", "/a1"), "a/three:80");
    let world = World::new([of("one", "/a(1)"), of("two", "/a[1]")]);
    assert_eq!(world.serves("a.test", "/a1"), "a/two:80", "'[' is after '('");
}

#[test]
fn an_exact_root_is_for_all_paths_too() {
    let home = ingress("home").path_of(PathType::Exact, "a.test", "/", service_backend("home"));
    let regex = ingress("regex").path("a.test", "/x.*", "x").annotation(REGEX, "true");
    let world = World::new([home.clone().object(), regex.object()]);
    assert_eq!(world.serves("a.test", "/y"), "a/home:80");
    assert_eq!(world.serves("a.test", "/x"), "a/x:80");
    assert_eq!(reasons_of(&world, "home"), ["PathsArePatterns"]);
    assert_eq!(World::new([home.object()]).serves("a.test", "/y"), "404");
}

#[test]
fn a_pattern_that_cannot_be_used_is_left_out_and_never_taken_as_text() {
    let regex = ingress("regex")
        .path("a.test", "/(?!admin).*", "behind")
        .path("a.test", r"/(x)\1", "twice")
        .path("a.test", "/.{0,100000}", "large")
        .path("a.test", "/good", "good")
        .annotation(REGEX, "true");
    let world = World::new([regex.object()]);
    for path in ["/(?!admin).*", "/user", "/xx", "/x"] {
        assert_eq!(world.serves("a.test", path), "404", "{path}");
    }
    assert_eq!(world.serves("a.test", "/GOODS"), "a/good:80");
    assert_eq!(reasons_of(&world, "regex"), ["InvalidPattern"; 3]);
    let findings = world.findings().join("\n");
    for expected in ["paths[0].path: \"/(?!admin).*\" is a regular expression", "look-around", "too large"] {
        assert!(findings.contains(expected), "{expected} in {findings}");
    }
}

#[test]
fn a_target_takes_the_place_of_the_path() {
    let shop = ingress("shop").path("a.test", "/shop(/|$)(.*)", "shop").annotation(TARGET, "/$2");
    let mut world = World::new([shop.object()]);
    assert_eq!(world.serves("a.test", "/shop/cart"), "a/shop:80");
    assert_eq!(world.serves("a.test", "/shopping"), "404");
    assert_eq!(becomes(&world, "a.test", "/shop", None), "/");
    assert_eq!(becomes(&world, "a.test", "/Shop/Cart/", Some("a=b")), "/Cart/?a=b");

    // A target that is the path changes nothing and makes no pattern of it.
    world.apply([ingress("shop").path("a.test", "/shop", "shop").annotation(TARGET, "/shop").object()]);
    assert_eq!(world.serves("a.test", "/SHOP"), "404");
    assert!(world.route("a.test", "/shop").unwrap().rewrite.is_none());
    // One of several paths that differs does.
    let two = ingress("shop").path("a.test", "/shop", "shop").path("a.test", "/old", "shop");
    world.apply([two.annotation(TARGET, "/shop").object()]);
    assert_eq!(becomes(&world, "a.test", "/OLD/x", None), "/shop");
    assert_eq!(becomes(&world, "a.test", "/shop/x", None), "/shop/x");
    // A default backend is one for all paths.
    world.apply([ingress("shop")
        .path("a.test", "/x", "x")
        .default_service("rest")
        .annotation(TARGET, "/x")
        .object()]);
    assert_eq!(becomes(&world, "a.test", "/y", None), "/x");
    assert_eq!(reasons_of(&world, "shop"), [""; 0]);
}

#[test]
fn other_ingresses_of_the_host_are_not_rewritten() {
    let world = World::new([
        ingress("shop").path("a.test", "/shop/(.*)", "shop").annotation(TARGET, "/$1").object(),
        ingress("rest").path("a.test", "/", "rest").object(),
        ingress("api").path("a.test", "/api/(.*)", "api").object(),
    ]);
    assert_eq!(becomes(&world, "a.test", "/shop/x", None), "/x");
    assert_eq!(becomes(&world, "a.test", "/api/x", None), "/api/x");
    assert!(world.route("a.test", "/x").unwrap().rewrite.is_none());
}

#[test]
fn a_group_that_the_path_does_not_have_is_told() {
    let shop = ingress("shop").path("a.test", "/shop", "shop").path("a.test", "/x(.*)", "shop");
    let world = World::new([shop.annotation(TARGET, "/a$1").object()]);
    assert_eq!(reasons_of(&world, "shop"), ["MissingGroup"]);
    assert_eq!(becomes(&world, "a.test", "/shop/b", None), "/a");
    assert_eq!(becomes(&world, "a.test", "/xb", None), "/ab");
}

#[test]
fn a_target_that_cannot_be_used_closes_the_routes() {
    let with = |target: &str| ingress("shop").path("a.test", "/shop", "shop").annotation(TARGET, target);
    let mut world = World::new([with("https://evil.test/$1").object()]);
    for target in ["https://evil.test/$1", "shop", "/a b", "/$uri", "/../x"] {
        world.apply([with(target).object()]);
        assert_eq!(world.serves("a.test", "/shop"), "503 rewrite-target", "{target}");
        let finding = world.findings().into_iter().find(|it| it.contains("InvalidAnnotation")).unwrap();
        assert!(finding.contains("rather than served without it"), "{finding}");
    }
    world.apply([with("").object()]);
    assert_eq!(world.serves("a.test", "/shop"), "a/shop:80");
}

#[test]
fn patterns_stay_the_ones_they_are() {
    let regex = |more: &str| ingress("regex").path("a.test", "/v[0-9]+/(.*)", "web").annotation(TARGET, more);
    let mut world = World::new([regex("/$1").object()]);
    let (before, host) =
        (world.route("a.test", "/v1/").unwrap().clone(), world.compiled.snapshot.hosts.clone());
    world.apply([regex("/$1").object()]);
    assert!(Arc::ptr_eq(&before, world.route("a.test", "/v1/").unwrap()));
    world.apply([ingress("new").path("a.test", "/new", "new").object()]);
    assert!(Arc::ptr_eq(&before, world.route("a.test", "/v1/").unwrap()));
    world.apply([regex("/x/$1").object()]);
    let after = world.route("a.test", "/v1/").unwrap();
    assert!(!Arc::ptr_eq(&before, after) && Arc::ptr_eq(&before.stats, &after.stats));
    let pattern = |routes: &crate::snapshot::hosts::HostMap| {
        let host = routes.find("a.test").unwrap().clone();
        let (_, pattern) = host.routes.patterns().find(|(text, _)| *text == "/v[0-9]+/(.*)").unwrap();
        pattern.clone()
    };
    assert!(Arc::ptr_eq(&pattern(&host), &pattern(&world.compiled.snapshot.hosts)));
}

#[test]
fn the_root_goes_to_the_application_of_the_pattern_that_has_it() {
    let mut world = World::new([
        ingress("all")
            .path("a.test", "/(.*)", "web")
            .annotation(REGEX, "true")
            .annotation(ROOT, "/app")
            .object(),
        ingress("rest").path("a.test", "/", "rest").object(),
    ]);
    assert_eq!(world.serves("a.test", "/"), "302 https://a.test/app");
    assert_eq!(world.serves("a.test", "/app"), "a/web:80");
    world.apply([ingress("all")
        .path("a.test", "/x(.*)", "web")
        .annotation(REGEX, "true")
        .annotation(ROOT, "/app")
        .object()]);
    assert_eq!(world.serves("a.test", "/"), "a/rest:80");
}

#[test]
fn the_same_pattern_twice_is_a_conflict() {
    let of = |name: &str, created: i64, kind: PathType| {
        let ingress = ingress(name).created(created).annotation(REGEX, "true");
        ingress.path_of(kind, "a.test", "/x.*", service_backend(name)).object()
    };
    let world = World::new([of("young", 2, PathType::Exact), of("old", 1, PathType::Prefix)]);
    assert_eq!(world.serves("a.test", "/xyz"), "a/old:80");
    assert_eq!(reasons_of(&world, "young"), ["PathConflict"]);
}

/// Host and X-Forwarded-Prefix that the backend of a request gets.
fn told(world: &World, path: &str) -> (Option<String>, Option<String>) {
    let route = world.route("a.test", path).unwrap();
    let Some(rewrite) = &route.rewrite else { return (None, None) };
    let prefix = rewrite.prefix.as_ref().map(|prefix| prefix.fill(&rewrite.captures(path)).unwrap());
    (rewrite.host.as_ref().map(|host| host.to_str().unwrap().to_owned()), prefix)
}

#[test]
fn backends_are_told_another_host_and_a_prefix() {
    let web = || ingress("web").path("a.test", "/", "web").path("a.test", "/x", "other");
    let some = |text: &str| Some(text.to_owned());
    let mut world = World::new([web().annotation(VHOST, "inner.test:81").annotation(PREFIX, "/p").object()]);
    assert_eq!(told(&world, "/"), (some("inner.test:81"), some("/p")));
    assert_eq!(world.serves("a.test", "/X"), "a/web:80", "neither makes a pattern of a path");

    world.apply([web().annotation(VHOST, "$service_name.$namespace.svc.cluster.local").object()]);
    assert_eq!(told(&world, "/"), (some("web.a.svc.cluster.local"), None));
    assert_eq!(told(&world, "/x"), (some("other.a.svc.cluster.local"), None));
    world.apply([web().annotation(VHOST, "$service_name:$service_port").object()]);
    assert_eq!(told(&world, "/"), (some("web:80"), None));

    let named = Backend::Service { name: "web".into(), port: ServicePortRef::Name("http".into()) };
    let by_name = ingress("web").path_of(PathType::Prefix, "a.test", "/", named);
    let bucket = by_name.path_of(PathType::Prefix, "a.test", "/bucket", Backend::Resource);
    world.apply([bucket.annotation(VHOST, "$service_name:$service_port").object()]);
    assert_eq!(told(&world, "/"), (None, None));
    assert!(reasons_of(&world, "web").contains(&"UnknownPort"));

    for (name, value) in [
        (VHOST, "a b"),
        (VHOST, "a\r\nX: y"),
        (VHOST, "http://a.test"),
        (VHOST, "a.test/x"),
        (VHOST, "$host.test"),
        (VHOST, "a:http"),
        (PREFIX, "p"),
        (PREFIX, "/a b"),
        (PREFIX, "/a\r\nX: y"),
        (PREFIX, "/$uri"),
    ] {
        world.apply([web().annotation(name, value).object()]);
        assert_eq!(told(&world, "/"), (None, None), "{value}");
        assert!(reasons_of(&world, "web").contains(&"InvalidAnnotation"), "{value}");
    }
    let groups = ingress("web").path("a.test", "/(v[0-9])/(.*)", "web").annotation(TARGET, "/$2");
    world.apply([groups.annotation(PREFIX, "/api/$1").object()]);
    assert_eq!(told(&world, "/v7/x"), (None, some("/api/v7")));
}

#[test]
fn backends_may_be_reached_by_the_address_of_their_service() {
    const UPSTREAM: &str = "nginx.ingress.kubernetes.io/service-upstream";
    let by = |name: &str, host: &str, value: &str| -> Ingress {
        ingress(name).path(host, "/", "web").annotation(UPSTREAM, value)
    };
    let mut web = service("web");
    web.addresses = vec!["10.96.0.7".parse().unwrap(), "fd00::7".parse().unwrap()];
    let mut world = World::new([
        by("one", "a.test", "true").object(),
        by("two", "b.test", "false").object(),
        Object::Service(web.clone()),
        Object::EndpointSlice(slice("web-1", "web", &["10.0.0.1"])),
    ]);
    assert_eq!(world.serves("a.test", "/"), "a/web:80 (service-upstream)");
    assert_eq!(world.serves("b.test", "/"), "a/web:80");
    assert_eq!(world.endpoints("a/web:80 (service-upstream)"), ["10.96.0.7:80"]);
    assert_eq!(world.endpoints("a/web:80"), ["10.0.0.1:8080"]);

    // Another address, none, and no endpoints any more.
    web.addresses = vec!["10.96.0.8".parse().unwrap()];
    world.apply([Object::Service(web.clone()), Object::EndpointSlice(slice("web-1", "web", &[]))]);
    assert_eq!(world.endpoints("a/web:80 (service-upstream)"), ["10.96.0.8:80"]);
    assert_eq!(reasons_of(&world, "one"), [""; 0], "what is ready is for the Service to know");
    web.addresses.clear();
    world.apply([Object::Service(web), Object::EndpointSlice(slice("web-1", "web", &["10.0.0.2"]))]);
    assert_eq!(world.endpoints("a/web:80 (service-upstream)"), ["10.0.0.2:8080"]);

    // What the setting says holds where the annotation is silent.
    world.apply([by("one", "a.test", "false").object()]);
    assert_eq!(world.serves("a.test", "/"), "a/web:80");
    assert_eq!(world.compiled.snapshot.clusters.0.len(), 1, "what nobody leads to is gone");
    world.apply([ingress("two").path("b.test", "/", "web").object()]);
    world.set(crate::settings::Settings { service_upstream: true, ..Default::default() });
    assert_eq!(world.serves("a.test", "/"), "a/web:80");
    assert_eq!(world.serves("b.test", "/"), "a/web:80 (service-upstream)");
    assert_eq!(world.compiled.snapshot.clusters.0.len(), 2);
    world.delete(Kind::Ingress, "a", "two");
    assert_eq!(world.compiled.snapshot.clusters.0.len(), 1);
}

#[test]
fn another_backend_answers_in_place_of_one_without_endpoints() {
    const DEFAULT: &str = "nginx.ingress.kubernetes.io/default-backend";
    let web = || ingress("web").path("a.test", "/", "web").annotation(DEFAULT, "sorry");
    let fallback = |world: &World| {
        let fallback = world.route("a.test", "/").unwrap().fallback.clone();
        fallback.map(|key| (key.to_string(), world.endpoints(&key.to_string())))
    };
    let mut world = World::new([web().object(), Object::Service(service("web"))]);
    assert_eq!(fallback(&world), Some(("a/sorry".into(), Vec::new())));
    let finding = world.findings().into_iter().find(|it| it.contains("ServiceNotFound")).unwrap();
    assert!(
        finding.contains("metadata.annotations[\"nginx.ingress.kubernetes.io/default-backend\"]"),
        "{finding}"
    );
    world.apply([
        Object::Service(service("sorry")),
        Object::EndpointSlice(slice("s", "sorry", &["10.0.0.3"])),
    ]);
    assert_eq!(fallback(&world), Some(("a/sorry".into(), vec!["10.0.0.3:8080".into()])));
    assert_eq!(world.serves("a.test", "/"), "a/web:80");
    world.apply([web().annotation(DEFAULT, "other/sorry").object()]);
    assert_eq!(fallback(&world), None);
    assert!(reasons_of(&world, "web").contains(&"InvalidAnnotation"));
    assert_eq!(world.compiled.snapshot.clusters.0.len(), 1);
}

#[test]
fn a_canary_of_a_pattern_is_rewritten_as_its_main_ingress_is() {
    const CANARY: &str = "nginx.ingress.kubernetes.io/canary";
    const AFFINITY: &str = "nginx.ingress.kubernetes.io/affinity";
    let main = ingress("main").path("a.test", "/shop(/|$)(.*)", "shop").annotation(TARGET, "/$2");
    let canary = ingress("canary").path("a.test", "/shop(/|$)(.*)", "next").annotation(CANARY, "true");
    let weighted = canary.annotation("nginx.ingress.kubernetes.io/canary-weight", "10");
    let world = World::new([main.annotation(AFFINITY, "cookie").object(), weighted.object()]);
    let route = world.route("a.test", "/shop/x").unwrap();
    let canary = &route.canary.as_ref().unwrap().route;
    assert_eq!(canary.rewrite, route.rewrite);
    let path = |route: &crate::snapshot::hosts::Route| {
        route.policy.affinity.as_ref().unwrap().cookie.path.as_deref().map(str::to_owned)
    };
    assert_eq!(
        (path(route), path(canary)),
        (Some("/".into()), Some("/".into())),
        "no cookie is for a pattern"
    );
    assert_eq!(reasons_of(&world, "canary"), [""; 0]);
}
