use std::sync::Arc;

use super::World;
use super::objects::*;
use crate::store::objects::{
    Backend, EndpointPort, EndpointSlice, Kind, Object, PathType, Service, ServiceKind, ServicePort,
    ServicePortRef,
};

/// A world whose host `a.test` leads to `service` by `port`.
fn world_of(port: ServicePortRef, objects: impl IntoIterator<Item = Object>) -> World {
    let backend = Backend::Service { name: "web".into(), port };
    let ingress = ingress("one").path_of(PathType::Prefix, "a.test", "/", backend).object();
    World::new([ingress].into_iter().chain(objects))
}

fn number(port: u16) -> ServicePortRef {
    ServicePortRef::Number(port)
}

fn name(port: &str) -> ServicePortRef {
    ServicePortRef::Name(port.into())
}

#[test]
fn endpoints_come_from_all_slices_once_and_in_order() {
    let world = world_of(
        number(80),
        [
            Object::Service(service("web")),
            Object::EndpointSlice(slice("web-2", "web", &["10.0.0.9", "10.0.0.1", "fd00::1"])),
            Object::EndpointSlice(slice("web-1", "web", &["10.0.0.1", "10.0.0.2"])),
            Object::EndpointSlice(slice("other-1", "other", &["10.0.0.77"])),
        ],
    );
    let expected = ["10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.9:8080", "[fd00::1]:8080"];
    assert_eq!(world.endpoints("a/web:80"), expected);
    assert!(world.compiled.report.is_empty(), "{:?}", world.findings());
}

#[test]
fn a_port_is_found_by_number_name_or_target() {
    for port in [number(80), name("http"), name("80"), number(8080)] {
        let key = format!(
            "a/web:{}",
            match &port {
                ServicePortRef::Number(port) => port.to_string(),
                ServicePortRef::Name(port) => port.clone(),
                ServicePortRef::First => unreachable!("no Ingress names it"),
            }
        );
        let objects =
            [Object::Service(service("web")), Object::EndpointSlice(slice("web-1", "web", &["10.0.0.1"]))];
        assert_eq!(world_of(port, objects).endpoints(&key), ["10.0.0.1:8080"], "{key}");
    }
}

#[test]
fn a_named_target_port_has_the_number_that_each_slice_gives_it() {
    let mut web = service("web");
    web.ports[0].target = Some(name("container-http"));
    let mut second = slice("web-2", "web", &["10.0.0.2"]);
    second.ports[0].port = Some(9090);
    let slices = [slice("web-1", "web", &["10.0.0.1"]), second].map(Object::EndpointSlice);
    let world = world_of(number(80), [Object::Service(web)].into_iter().chain(slices));
    assert_eq!(world.endpoints("a/web:80"), ["10.0.0.1:8080", "10.0.0.2:9090"]);
}

#[test]
fn only_the_named_port_of_a_slice_counts() {
    let mut web = service("web");
    web.ports.push(ServicePort { name: Some("metrics".into()), port: 9, ..web.ports[0].clone() });
    let mut both = slice("web-1", "web", &["10.0.0.1"]);
    both.ports.push(EndpointPort { name: Some("metrics".into()), port: Some(9100), app_protocol: None });
    both.ports.push(EndpointPort { name: Some("http".into()), port: None, app_protocol: None });
    let world = world_of(number(9), [Object::Service(web), Object::EndpointSlice(both)]);
    assert_eq!(world.endpoints("a/web:9"), ["10.0.0.1:9100"]);
}

#[test]
fn a_headless_service_without_ports_is_reached_by_number() {
    let headless = Service { ports: Vec::new(), ..service("web") };
    let objects = [Object::Service(headless), Object::EndpointSlice(slice("web-1", "web", &["10.0.0.1"]))];
    assert_eq!(world_of(number(3000), objects).endpoints("a/web:3000"), ["10.0.0.1:3000"]);
}

#[test]
fn terminating_endpoints_serve_only_when_no_other_does() {
    let with = |endpoints| {
        let slice = EndpointSlice { endpoints, ..slice("web-1", "web", &[]) };
        world_of(number(80), [Object::Service(service("web")), Object::EndpointSlice(slice)])
    };
    let draining = endpoint("10.0.0.1", false, true, true);
    let dead = endpoint("10.0.0.2", false, false, true);
    let starting = endpoint("10.0.0.3", false, false, false);
    let ready = endpoint("10.0.0.4", true, true, false);
    let world = with(vec![draining.clone(), dead.clone(), starting.clone(), ready]);
    assert_eq!(world.endpoints("a/web:80"), ["10.0.0.4:8080"]);
    let world = with(vec![draining, dead.clone(), starting.clone()]);
    assert_eq!(world.endpoints("a/web:80"), ["10.0.0.1:8080"]);
    let world = with(vec![dead, starting]);
    assert_eq!(world.endpoints("a/web:80"), [""; 0]);
    assert_eq!(world.reasons(), [("NoEndpoints", "one".into())]);
}

#[test]
fn a_missing_backend_is_empty_with_its_reason_until_it_appears() {
    let unavailable = |world: &World| {
        let (_, cluster) = world.compiled.snapshot.clusters.0.iter().next().unwrap();
        cluster.unavailable
    };
    let mut world = world_of(name("http"), []);
    assert_eq!(world.serves("a.test", "/"), "a/web:http", "the route is there; requests get 503");
    assert_eq!(unavailable(&world), Some("the Service does not exist"));
    assert_eq!(
        world.findings(),
        [
            "Ingress a/one: spec.rules[0].http.paths[0].backend.service: There is no Service \"web\" in namespace \
          \"a\". (ServiceNotFound)"
        ]
    );

    world.apply([Object::Service(Service { ports: Vec::new(), ..service("web") })]);
    assert_eq!(world.reasons(), [("ServicePortNotFound", "one".into())]);
    world.apply([Object::Service(service("web"))]);
    assert_eq!(world.reasons(), [("NoEndpoints", "one".into())]);
    world.apply([Object::EndpointSlice(EndpointSlice {
        ports: Vec::new(),
        ..slice("s", "web", &["10.0.0.1"])
    })]);
    assert!(world.findings()[0].contains("has a port named \"http\""), "{:?}", world.findings());
    world.apply([Object::EndpointSlice(slice("s", "web", &["10.0.0.1"]))]);
    assert_eq!(unavailable(&world), None);
    assert!(world.compiled.report.is_empty());

    world.delete(Kind::Ingress, "a", "one");
    assert!(world.compiled.snapshot.clusters.0.is_empty(), "nobody leads there any more");
}

#[test]
fn backends_of_foreign_ingresses_are_none_of_ours() {
    let world = World::new([ingress("foreign").class("other").path("a.test", "/", "web").object()]);
    assert!(world.compiled.snapshot.clusters.0.is_empty());
    assert_eq!(world.reasons(), [("IngressClassNotFound", "foreign".into())]);
}

#[test]
fn at_most_a_hundred_ingresses_hear_of_the_same_backend() {
    let world = World::new((0..300).map(|number| {
        let name = format!("i{number}");
        ingress(&name).path(&format!("{name}.test"), "/", "gone").object()
    }));
    assert_eq!(world.findings().len(), 100);
}

#[test]
fn external_names_are_resolved_later_and_guarded_in_a_cluster() {
    let objects = |target: &str| {
        [ingress("one").class("portcullis").path("a.test", "/", "web").object(), external("web", target)]
    };
    assert_eq!(World::in_cluster(objects("api.example.com")).endpoints("a/web:80"), ["api.example.com:8080"]);
    assert_eq!(World::new(objects("localhost")).endpoints("a/web:80"), ["localhost:8080"]);
    let refused = World::in_cluster(objects("localhost"));
    assert_eq!(refused.endpoints("a/web:80"), [""; 0]);
    assert_eq!(refused.reasons(), [("ExternalNameRefused", "one".into())]);

    let bare = |port| {
        let kind = ServiceKind::ExternalName("api.example.com".into());
        let web = Object::Service(Service { kind, ports: Vec::new(), ..service("web") });
        world_of(port, [web])
    };
    assert_eq!(bare(number(443)).endpoints("a/web:443"), ["api.example.com:443"]);
    assert_eq!(bare(name("https")).reasons(), [("ServicePortNotFound", "one".into())]);
}

#[test]
fn local_addresses_in_slices_are_for_one_machine_only() {
    let objects = || {
        [
            ingress("one").class("portcullis").path("a.test", "/", "web").object(),
            Object::Service(service("web")),
            Object::EndpointSlice(slice("s", "web", &["127.0.0.1", "169.254.169.254", "10.0.0.1"])),
        ]
    };
    assert_eq!(World::in_cluster(objects()).endpoints("a/web:80"), ["10.0.0.1:8080"]);
    assert_eq!(World::new(objects()).endpoints("a/web:80").len(), 3);
}

#[test]
fn endpoints_that_stay_are_the_same_ones() {
    let mut world = world_of(
        number(80),
        [
            Object::Service(service("web")),
            Object::EndpointSlice(slice("s", "web", &["10.0.0.1", "10.0.0.2"])),
        ],
    );
    let cluster = |world: &World| world.compiled.snapshot.clusters.0.values().next().unwrap().clone();
    let before = cluster(&world);
    world.apply([Object::Service(service("web"))]);
    assert!(Arc::ptr_eq(&before, &cluster(&world)), "nothing changed");
    world.apply([Object::EndpointSlice(slice("s", "web", &["10.0.0.2", "10.0.0.3"]))]);
    let after = cluster(&world);
    assert!(Arc::ptr_eq(&before.key, &after.key));
    assert!(Arc::ptr_eq(&before.endpoints[1], &after.endpoints[0]));
}
