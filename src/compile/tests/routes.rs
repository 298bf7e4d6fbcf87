use std::sync::Arc;

use super::World;
use super::objects::*;
use crate::settings::Settings;
use crate::snapshot::hosts::HttpsRedirect;
use crate::snapshot::passwords::Users;
use crate::store::objects::{Backend, IngressRule, Kind, Object, PathType, Secret, SecretOrigin, UserLists};

const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
const OURS: &str = "portcullis.dev/ingress-controller";

#[test]
fn hosts_and_paths_lead_to_their_services() {
    let world = World::new([
        ingress("one")
            .path("a.test", "/", "root")
            .path("a.test", "/api", "api")
            .path_of(PathType::Exact, "a.test", "/api", service_backend("exact"))
            .path_of(PathType::ImplementationSpecific, "a.test", "/img/", service_backend("img"))
            .path("*.a.test", "/wild", "wild")
            .object(),
        ingress("two").path("", "/any", "any").object(),
    ]);
    for (host, path, expected) in [
        ("a.test", "/", "a/root:80"),
        ("a.test", "/api", "a/exact:80"),
        ("a.test", "/api/x", "a/api:80"),
        ("a.test", "/img/logo", "a/img:80"),
        ("a.test", "/any", "a/root:80"),
        ("x.a.test", "/wild", "a/wild:80"),
        ("x.a.test", "/any", "404"),
        ("x.y.a.test", "/any/x", "a/any:80"),
        ("x.y.a.test", "/", "404"),
    ] {
        assert_eq!(world.serves(host, path), expected, "{host}{path}");
    }
}

#[test]
fn an_exact_host_does_not_fall_through_to_a_wildcard_even_without_paths() {
    let mut bare = ingress("bare");
    bare.rules.push(IngressRule { index: 0, host: Some("x.a.test".into()), paths: Vec::new() });
    let world = World::new([bare.object(), ingress("wild").path("*.a.test", "/", "wild").object()]);
    assert_eq!(world.serves("x.a.test", "/"), "404");
    assert_eq!(world.serves("y.a.test", "/"), "a/wild:80");
    assert!(world.reasons().contains(&("EmptyRule", "bare".into())));
}

#[test]
fn the_oldest_ingress_wins_a_path_and_the_loser_is_told() {
    let old = ingress("z-old").created(1).path("a.test", "/", "old").object();
    let young =
        ingress("a-young").created(2).path("A.test.", "/", "young").path("a.test", "/x", "x").object();
    let world = World::new([young, old]);
    assert_eq!(world.serves("a.test", "/"), "a/old:80");
    assert_eq!(world.serves("a.test", "/x"), "a/x:80", "other paths are merged");
    let conflicts = world.findings().into_iter().filter(|finding| finding.ends_with("(PathConflict)"));
    assert_eq!(
        conflicts.collect::<Vec<_>>(),
        [
            "Ingress a/a-young: spec.rules[0].http.paths[0].path: Path \"/\" of host a.test is served by the older \
          Ingress a/z-old. (PathConflict)"
        ]
    );
}

#[test]
fn different_spellings_of_a_path_are_one_path() {
    let world = World::new([ingress("one")
        .path("a.test", "/a%2Db", "first")
        .path("a.test", "/x/../a-b", "second")
        .path_of(PathType::ImplementationSpecific, "a.test", "/a-b", service_backend("third"))
        .object()]);
    assert_eq!(world.serves("a.test", "/a-b"), "a/first:80");
    let of = |reason| world.reasons().iter().filter(|(found, _)| *found == reason).count();
    assert_eq!((of("DuplicatePath"), of("PathNormalised")), (2, 2));
}

#[test]
fn default_backends_take_what_no_rule_takes() {
    let world = World::new([
        ingress("alone").default_service("fallback").object(),
        ingress("with").created(1).path("a.test", "/x", "x").default_service("rest").object(),
        ingress("root").created(2).path("b.test", "/", "explicit").object(),
        ingress("older").created(1).path("b.test", "/y", "y").default_service("not-reached").object(),
    ]);
    assert_eq!(world.serves("unknown.test", "/x"), "a/fallback:80");
    assert_eq!(world.serves("a.test", "/x"), "a/x:80");
    assert_eq!(world.serves("a.test", "/other"), "a/rest:80");
    assert_eq!(world.serves("b.test", "/other"), "a/explicit:80", "a rule comes before any default backend");
}

#[test]
fn bad_rules_are_named_and_left_out() {
    let world = World::new([ingress("bad")
        .path("no host!", "/", "web")
        .path("*.*.test", "/", "web")
        .path("a.test", "relative", "web")
        .path("a.test", "/back\\slash", "web")
        .path("a.test", "/good", "web")
        .path_of(PathType::Prefix, "a.test", "/bucket", Backend::Resource)
        .object()]);
    assert_eq!(world.serves("a.test", "/good"), "a/web:80");
    assert_eq!(world.serves("a.test", "/bucket"), "404");
    assert!(world.route("a.test", "/bucket").is_some(), "a resource backend is a route that answers 404");
    let findings = world.findings();
    for expected in [
        "spec.rules[0].host: \"no host!\" is not a host",
        "spec.rules[1].host: \"*.*.test\" is not a host",
        "spec.rules[2].http.paths[0].path: \"relative\" is not a path",
        "spec.rules[2].http.paths[1].path: \"/back\\\\slash\" is not a path",
        "spec.rules[2].http.paths[3].backend.resource: Resource backends are not supported",
    ] {
        assert!(findings.iter().any(|found| found.contains(expected)), "{expected} in {findings:#?}");
    }
}

#[test]
fn findings_name_a_place_as_it_was_written() {
    let mut ingress = ingress("a").created(1).path("a.test", "/", "gone").path("a.test", "/", "gone");
    ingress = ingress.path_of(PathType::Prefix, "a.test", "/bucket", Backend::Resource);
    // What stood before them could not be used.
    ingress.rules[0].index = 4;
    ingress.rules[0].paths.iter_mut().for_each(|path| path.index += 3);
    let findings = World::new([ingress.object()]).findings();
    for expected in [
        "spec.rules[4].http.paths[3].backend.service: There is no Service",
        "spec.rules[4].http.paths[4].path: Path \"/\" of host a.test occurs before",
        "spec.rules[4].http.paths[5].backend.resource: Resource backends are not supported",
    ] {
        assert!(findings.iter().any(|found| found.contains(expected)), "{expected} in {findings:#?}");
    }
}

#[test]
fn an_ingress_without_any_valid_host_is_still_reported_and_forgotten() {
    let mut world = World::new([ingress("bad").path("no host!", "/", "web").object()]);
    assert!(world.reasons().contains(&("InvalidHost", "bad".into())));
    world.delete(crate::store::objects::Kind::Ingress, "a", "bad");
    assert!(world.compiled.report.is_empty());
}

#[test]
fn tls_is_of_a_host_and_never_of_rules_without_one() {
    let world = World::new([
        ingress("plain").created(1).path("a.test", "/", "web").path("b.test", "/", "web").object(),
        ingress("secure").created(2).path("a.test", "/x", "web").path("", "/", "web").tls().object(),
    ]);
    let has_tls = |host: &str| world.compiled.snapshot.hosts.find(host).unwrap().has_tls;
    assert!(has_tls("a.test"), "one Ingress of the host with a tls section is enough");
    assert!(!has_tls("b.test"));
    assert!(!has_tls("unknown.test"));
}

#[test]
fn policies_come_from_annotations_and_spare_the_acme_path() {
    let world = World::new([ingress("one")
        .annotation("nginx.ingress.kubernetes.io/proxy-body-size", "8m")
        .path("a.test", "/", "web")
        .path("a.test", "/.well-known/acme-challenge/token", "solver")
        .path("b.test", "/", "web")
        .object()]);
    let policy = |host, path| &world.route(host, path).unwrap().policy;
    assert_eq!(policy("a.test", "/").max_body, Some(8 << 20));
    assert_eq!(policy("a.test", "/").redirect, HttpsRedirect::IfTls);
    assert_eq!(policy("a.test", "/.well-known/acme-challenge/token").redirect, HttpsRedirect::Exempt);
    assert!(Arc::ptr_eq(policy("a.test", "/"), policy("b.test", "/")), "an Ingress has one policy");
}

#[test]
fn an_ingress_that_asks_for_an_unsupported_protection_is_closed_and_others_are_not() {
    const AUTH_URL: &str = "nginx.ingress.kubernetes.io/auth-url";
    let open = ingress("open").path("a.test", "/open", "web");
    let closed = ingress("closed").annotation(AUTH_URL, "http://auth.test").path("a.test", "/", "web");
    let mut world = World::new([open.clone().object(), closed.object()]);
    assert_eq!(world.serves("a.test", "/x"), "503 auth-url");
    assert_eq!(world.serves("a.test", "/open"), "a/web:80");
    assert!(world.reasons().contains(&("UnsupportedAnnotation", "closed".into())));

    world.apply([ingress("closed").path("a.test", "/", "web").object()]);
    assert_eq!(world.serves("a.test", "/x"), "a/web:80");

    let snippet = ingress("closed").annotation("nginx.ingress.kubernetes.io/server-snippet", "deny all;");
    world.apply([snippet.path("a.test", "/", "web").path("b.test", "/", "web").object()]);
    assert_eq!(world.serves("a.test", "/open"), "503 server-snippet", "it is of the whole host");
    assert_eq!(world.serves("b.test", "/"), "503 server-snippet");

    // Only its own Ingress can close the path of a challenge.
    let challenge = |name| ingress(name).path("a.test", "/.well-known/acme-challenge/x", "web");
    world.apply([challenge("solver").object()]);
    assert_eq!(world.serves("a.test", "/.well-known/acme-challenge/x"), "a/web:80");
    assert_eq!(world.serves("a.test", "/.well-known/acme-challenge/y"), "503 server-snippet");
    world.apply([challenge("solver").annotation(AUTH_URL, "http://auth.test").object()]);
    assert_eq!(world.serves("a.test", "/.well-known/acme-challenge/x"), "503 auth-url");
}

#[test]
fn an_ingress_with_a_list_that_cannot_be_read_is_closed_and_others_are_not() {
    const LIST: &str = "nginx.ingress.kubernetes.io/whitelist-source-range";
    let open = ingress("open").path("a.test", "/open", "web");
    let listed = |list| ingress("listed").annotation(LIST, list).path("a.test", "/", "web").object();
    let mut world = World::new([open.object(), listed("10.0.0.0/8")]);
    let sources = |world: &World, path| world.route("a.test", path).unwrap().policy.sources.clone();
    let admits = |world: &World, client: &str| sources(world, "/").unwrap().admit(client.parse().unwrap());
    assert!(admits(&world, "10.1.1.1") && !admits(&world, "192.0.2.1"));
    assert_eq!(sources(&world, "/open"), None);

    world.apply([listed("10.0.0.0/8, x")]);
    assert_eq!(world.serves("a.test", "/"), "503 whitelist-source-range");
    assert_eq!(world.serves("a.test", "/open"), "a/web:80");
    assert!(world.reasons().contains(&("InvalidAnnotation", "listed".into())));

    world.apply([listed("192.0.2.0/24")]);
    assert!(!admits(&world, "10.1.1.1") && admits(&world, "192.0.2.1"));
    let settings =
        Settings { denylist_source_range: vec!["10.0.0.0/8".parse().unwrap()], ..Settings::default() };
    let world = World::with(settings, [ingress("open").path("a.test", "/", "web").object()]);
    assert!(!admits(&world, "10.1.1.1") && admits(&world, "192.0.2.1"));
}

#[test]
fn routes_have_the_users_of_the_secret_of_their_ingress() {
    const SECRET: &str = "nginx.ingress.kubernetes.io/auth-secret";
    let users = |lines: &str| {
        let list = Users::of_file(lines.as_bytes());
        let users = Some(Arc::new(UserLists { file: Some(Arc::new(list)), map: None }));
        let (kind, origin) = ("Opaque".into(), SecretOrigin::Object);
        let (pair, fields, ticket_keys, authorities, client_ca) =
            (None, Default::default(), None, None, None);
        let metadata = metadata("users");
        Object::Secret(Secret {
            metadata,
            kind,
            origin,
            pair,
            fields,
            ticket_keys,
            authorities,
            client_ca,
            users,
        })
    };
    let asks = |value| ingress("asks").annotation(SECRET, value).path("a.test", "/", "web");
    let other = ingress("other").path("b.test", "/", "web").object();
    let mut world = World::new([asks("users").object(), other]);
    let auth = |world: &World| world.route("a.test", "/").unwrap().policy.auth.clone();
    let said = |world: &World| -> Vec<&str> {
        let reasons = world.reasons().into_iter().map(|(reason, _)| reason);
        reasons.filter(|reason| *reason != "ServiceNotFound").collect()
    };
    assert_eq!(world.serves("a.test", "/"), "503 auth-secret");
    assert_eq!(said(&world), ["SecretNotFound"]);

    // Whatever comes later: only the routes of that Ingress are others.
    let unconcerned = world.route("b.test", "/").unwrap().clone();
    world.apply([users("ann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=")]);
    assert_eq!((world.serves("a.test", "/"), said(&world)), ("a/web:80".into(), vec![]));
    assert!(auth(&world).unwrap().users.find(b"ann").is_some_and(|(_, known)| known));
    assert!(Arc::ptr_eq(&unconcerned, world.route("b.test", "/").unwrap()));
    let before = world.route("a.test", "/").unwrap().clone();
    world.apply([users("ann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=")]);
    assert!(Arc::ptr_eq(&before, world.route("a.test", "/").unwrap()), "nothing has changed");
    world.apply([users("ann:secret")]);
    assert_eq!(world.serves("a.test", "/"), "503 auth-secret");
    assert_eq!(said(&world), ["NoUsers"]);
    world.apply([users("ann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\nben:x")]);
    assert_eq!(said(&world), ["UnusableUsers"]);
    world.delete(Kind::Secret, "a", "users");
    assert_eq!(world.serves("a.test", "/"), "503 auth-secret");
    for (value, serves) in
        [("other/users", "503 auth-secret"), ("a/users", "503 auth-secret"), ("", "a/web:80")]
    {
        world.apply([asks(value).object()]);
        assert_eq!(world.serves("a.test", "/"), serves, "{value}");
    }
}

#[test]
fn the_class_decides_what_is_served() {
    let objects = || {
        [
            class("portcullis", OURS, false),
            class("mine", OURS, false),
            class("other", "example.com/controller", false),
            ingress("by-name").class("portcullis").path("by-name.test", "/", "web").object(),
            ingress("by-controller").class("mine").path("by-controller.test", "/", "web").object(),
            ingress("foreign").class("other").path("foreign.test", "/", "web").object(),
            ingress("unknown").class("nothing").path("unknown.test", "/", "web").object(),
            ingress("legacy")
                .annotation(CLASS_ANNOTATION, "portcullis")
                .path("legacy.test", "/", "web")
                .object(),
            ingress("legacy-foreign")
                .annotation(CLASS_ANNOTATION, "nginx")
                .path("legacy-foreign.test", "/", "web")
                .object(),
            ingress("none").path("none.test", "/", "web").object(),
        ]
    };
    let served = |world: &World, name: &str| world.serves(&format!("{name}.test"), "/") != "404";
    let cluster = World::in_cluster(objects());
    let directory = World::new(objects());
    for (name, in_cluster, in_directory) in [
        ("by-name", true, true),
        ("by-controller", true, true),
        ("foreign", false, false),
        ("unknown", false, false),
        ("legacy", true, true),
        ("legacy-foreign", false, false),
        ("none", false, true),
    ] {
        assert_eq!(served(&cluster, name), in_cluster, "{name} in a cluster");
        assert_eq!(served(&directory, name), in_directory, "{name} from a directory");
    }
    let about = |world: &World, reason| {
        let mut found = world.reasons();
        found.retain(|(found, _)| *found == reason);
        found.into_iter().map(|(_, name)| name).collect::<Vec<_>>()
    };
    assert_eq!(about(&cluster, "IngressClassNotFound"), ["unknown"]);
    assert_eq!(about(&cluster, "NoIngressClass"), ["none"]);
    assert_eq!(about(&cluster, "OtherIngressClass"), [""; 0]);
    assert_eq!(about(&directory, "OtherIngressClass"), ["foreign", "legacy-foreign"]);
}

#[test]
fn a_class_takes_hosts_in_and_out_while_running() {
    let mut world = World::in_cluster([ingress("none").path("none.test", "/", "web").object()]);
    assert_eq!(world.serves("none.test", "/"), "404");
    world.apply([class("portcullis", OURS, true)]);
    assert_eq!(world.serves("none.test", "/"), "a/web:80", "our class is the default one");
    world.apply([class("portcullis", "example.com/controller", true)]);
    assert_eq!(world.serves("none.test", "/"), "404");

    let named = ingress("named").class("portcullis").path("named.test", "/", "web");
    world.apply([named.object()]);
    assert_eq!(world.serves("named.test", "/"), "404", "the IngressClass of our name is not ours");
}

#[test]
fn manifests_written_for_ingress_nginx_can_be_taken_over() {
    let settings = Settings {
        ingress_class: "nginx".into(),
        controller_class: "k8s.io/ingress-nginx".into(),
        ..Settings::default()
    };
    let world = World::with(
        settings,
        [
            ingress("spec").class("nginx").path("spec.test", "/", "web").object(),
            ingress("old").annotation(CLASS_ANNOTATION, "nginx").path("old.test", "/", "web").object(),
        ],
    );
    assert_eq!(world.serves("spec.test", "/"), "a/web:80");
    assert_eq!(world.serves("old.test", "/"), "a/web:80");
}
