//! What is untouched stays the very same.

use std::sync::Arc;

use super::World;
use super::objects::*;
use crate::settings::Settings;
use crate::snapshot::hosts::{Action, Host};
use crate::store::objects::{Kind, Object};

fn host(world: &World, name: &str) -> Arc<Host> {
    world.compiled.snapshot.hosts.find_named(name).unwrap().clone()
}

#[test]
fn a_change_to_one_host_leaves_the_others_alone() {
    let mut world = World::new((0..50).map(|number| {
        let name = format!("h{number}");
        ingress(&name).path(&format!("{name}.test"), "/", "web").object()
    }));
    let (one, two) = (host(&world, "h1.test"), host(&world, "h2.test"));
    let earlier = world.compiled.clone();

    world.apply([ingress("h1").path("h1.test", "/new", "web").object()]);
    assert!(Arc::ptr_eq(&two, &host(&world, "h2.test")));
    assert!(!Arc::ptr_eq(&one, &host(&world, "h1.test")));
    let kept = earlier.snapshot.hosts.find("h1.test").unwrap();
    assert!(Arc::ptr_eq(&one, kept), "whoever holds the earlier snapshot still sees the earlier host");
}

#[test]
fn a_host_that_comes_out_the_same_is_the_same() {
    let objects = || [ingress("one").path("a.test", "/", "web").object(), Object::Service(service("web"))];
    let mut world = World::new(objects());
    let before = host(&world, "a.test");
    world.apply(objects());
    assert!(Arc::ptr_eq(&before, &host(&world, "a.test")));
    world.set(Settings { http_redirect_code: 301, ..Settings::default() });
    assert!(Arc::ptr_eq(&before, &host(&world, "a.test")), "a setting that no route depends on");
}

#[test]
fn counters_survive_a_new_policy_and_a_new_backend() {
    let mut world =
        World::new([ingress("one").path("a.test", "/", "web").path("a.test", "/x", "x").object()]);
    let (root, other) =
        (world.route("a.test", "/").unwrap().clone(), world.route("a.test", "/x").unwrap().clone());
    world.apply([ingress("one").path("a.test", "/", "moved").path("a.test", "/x", "x").object()]);
    let moved = world.route("a.test", "/").unwrap();
    assert!(!Arc::ptr_eq(&root, moved) && Arc::ptr_eq(&root.stats, &moved.stats));
    assert!(Arc::ptr_eq(&other, world.route("a.test", "/x").unwrap()));

    world.set(Settings { proxy_body_size: None, ..Settings::default() });
    let limited = world.route("a.test", "/").unwrap();
    assert_eq!(limited.policy.max_body, None);
    assert!(Arc::ptr_eq(&root.stats, &limited.stats));

    world.apply([ingress("two").path("a.test", "/", "web").object()]);
    world.delete(Kind::Ingress, "a", "one");
    let taken_over = world.route("a.test", "/").unwrap();
    assert!(!Arc::ptr_eq(&root.stats, &taken_over.stats), "another Ingress counts for itself");
}

#[test]
fn routes_share_the_key_of_their_cluster() {
    let world = World::new([ingress("one").path("a.test", "/", "web").path("b.test", "/", "web").object()]);
    let key = |host| match &world.route(host, "/").unwrap().action {
        Action::Forward(key) => key.clone(),
        other => panic!("{other:?}"),
    };
    assert!(Arc::ptr_eq(&key("a.test"), &key("b.test")));
    let cluster = world.compiled.snapshot.clusters.get(&key("a.test")).unwrap();
    assert!(Arc::ptr_eq(&cluster.key, &key("a.test")));
}

#[test]
fn findings_leave_with_their_cause() {
    let bad = ingress("one").annotation("portcullis.dev/ssl-redirekt", "true").path("a.test", "/", "web");
    let mut world = World::new([bad.object()]);
    assert_eq!(world.reasons().len(), 2, "{:?}", world.findings());
    world.apply([ingress("one").path("a.test", "/", "web").object()]);
    assert_eq!(world.reasons(), [("ServiceNotFound", "one".into())]);
    world.delete(Kind::Ingress, "a", "one");
    assert!(world.compiled.report.is_empty());
    assert!(world.view().is_empty());
}

#[test]
fn one_object_cannot_flood_the_report() {
    let mut flood = ingress("flood").path("a.test", "/", "web");
    for number in 0..5_000 {
        flood = flood.annotation(&format!("portcullis.dev/nothing-{number}"), "x");
    }
    let world = World::new([flood.object(), Object::Service(service("web"))]);
    assert!(world.findings().len() < 110);
    assert!(
        world.findings().iter().any(|found| found.contains("There are 4900 more")),
        "{:?}",
        world.findings()
    );
}
