//! Pods and policies become workloads; what does not change stays the same.

use std::sync::Arc;

use rustls_pki_types::pem::PemObject;
use serde_json::{Value, json};

use super::*;
use crate::snapshot::workloads::Workload;
use crate::store::objects::{Decoded, Findings, Node};
use crate::tls::mesh::{MeshClient, Standing};

pub(super) fn decode(value: &Value) -> Object {
    let node: Node<'_> = serde::Deserialize::deserialize(value).unwrap();
    let text = |field: &str| value[field].as_str().unwrap();
    match Object::decode(text("apiVersion"), text("kind"), &node, &mut Findings::new()) {
        Decoded::Object(object) => object,
        _ => panic!("no object: {value}"),
    }
}

fn pod(name: &str, app: &str, address: &str) -> Object {
    decode(&json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "a", "labels": {"app": app}},
        "spec": {"serviceAccountName": app},
        "status": {"podIP": address, "podIPs": [{"ip": address}]},
    }))
}

fn strict(name: &str, spec: Value) -> Object {
    decode(&json!({
        "apiVersion": "security.istio.io/v1", "kind": "PeerAuthentication",
        "metadata": {"name": name, "namespace": "a"}, "spec": spec,
    }))
}

fn at<'a>(world: &'a World, address: &str) -> &'a [Workload] {
    world.compiled.snapshot.workloads.at(address.parse().unwrap(), "a")
}

fn names(world: &World, address: &str) -> Vec<String> {
    let policies = at(world, address).iter().flat_map(|workload| workload.policies.policies());
    policies.map(|policy| policy.name.to_string()).collect()
}

const STATIC: &str = "istio-system/istio_converted_static_strict";

#[test]
fn a_pod_gets_the_policies_that_select_it() {
    let mut world = World::new([
        pod("one", "web", "10.0.0.1"),
        pod("two", "web", "10.0.0.2"),
        pod("db", "db", "10.0.0.3"),
        strict("p", json!({"selector": {"matchLabels": {"app": "web"}}, "mtls": {"mode": "STRICT"}})),
    ]);
    assert_eq!(names(&world, "10.0.0.1"), [STATIC]);
    assert!(Arc::ptr_eq(&at(&world, "10.0.0.1")[0].policies, &at(&world, "10.0.0.2")[0].policies));
    assert!(names(&world, "10.0.0.3").is_empty());
    assert!(names(&world, "10.9.9.9").is_empty());
    let principal = at(&world, "10.0.0.3")[0].principal.clone().unwrap();
    assert_eq!(principal.principal(), "cluster.local/ns/a/sa/db");

    // Labels decide, and only those of this pod.
    let kept = at(&world, "10.0.0.1")[0].policies.clone();
    world.apply([pod("two", "db", "10.0.0.2")]);
    assert!(names(&world, "10.0.0.2").is_empty());
    assert!(Arc::ptr_eq(&kept, &at(&world, "10.0.0.1")[0].policies));

    world.delete(Kind::PeerAuthentication, "a", "p");
    assert!(names(&world, "10.0.0.1").is_empty());
    world.delete(Kind::Pod, "a", "one");
    assert!(at(&world, "10.0.0.1")[0].pod.is_none());
}

#[test]
fn unrelated_policies_leave_workloads_as_they_were() {
    let mut world = World::new([
        pod("one", "web", "10.0.0.1"),
        strict("p", json!({"selector": {"matchLabels": {"app": "web"}}, "mtls": {"mode": "STRICT"}})),
    ]);
    let before = at(&world, "10.0.0.1").as_ptr();
    world.apply([strict(
        "q",
        json!({"selector": {"matchLabels": {"app": "db"}}, "mtls": {"mode": "STRICT"}}),
    )]);
    assert_eq!(before, at(&world, "10.0.0.1").as_ptr());
}

#[test]
fn an_address_without_a_pod_follows_its_namespace_and_one_of_several_pods_all_of_them() {
    let world = World::new([
        strict("p", json!({"mtls": {"mode": "STRICT"}})),
        strict("open", json!({"selector": {"matchLabels": {"app": "open"}}, "mtls": {"mode": "PERMISSIVE"}})),
        pod("open", "open", "10.0.0.1"),
        pod("shared-1", "open", "10.0.0.2"),
        pod("shared-2", "web", "10.0.0.2"),
    ]);
    let plain = |address: &str| crate::snapshot::policies::Connection {
        principal: None,
        source: [192, 0, 2, 1].into(),
        destination: address.parse().unwrap(),
        port: 80,
    };
    let workloads = &world.compiled.snapshot.workloads;
    assert!(!workloads.decide("a", &plain("10.9.9.9")).allowed);
    assert!(workloads.decide("b", &plain("10.9.9.9")).allowed);
    assert!(workloads.decide("a", &plain("10.0.0.1")).allowed);
    assert!(workloads.decide("a", &plain("::ffff:10.0.0.1")).allowed);
    assert!(!workloads.decide("a", &plain("10.0.0.2")).allowed);
}

#[test]
fn the_ports_of_node_proxies_are_none_of_a_pod() {
    let world = World::new([pod("one", "web", "10.0.0.1")]);
    let reason = |address: &str, port| {
        let (principal, source) = (None, [192, 0, 2, 1].into());
        let destination = address.parse().unwrap();
        let connection = crate::snapshot::policies::Connection { principal, source, destination, port };
        world.compiled.snapshot.workloads.decide("a", &connection).reason.label()
    };
    for port in [15001, 15006, 15008] {
        assert_eq!(reason("10.0.0.1", port), "node_proxy");
        assert_eq!(reason("10.9.9.9", port), "no_allow_policy", "there is no pod of the mesh");
    }
    assert_eq!(reason("10.0.0.1", 15007), "no_allow_policy");
}

#[test]
fn a_version_that_cannot_be_read_leaves_the_last_good_one_in_force() {
    let mut world = World::new([pod("one", "web", "10.0.0.1")]);
    world.apply([strict("p", json!({"mtls": {"mode": "STRICT"}}))]);
    for broken in [json!({"mtls": {"mode": "OFF"}}), json!({"selector": 5})] {
        world.apply([strict("p", broken)]);
        assert_eq!(names(&world, "10.0.0.1"), [STATIC]);
        assert_eq!(world.reasons(), [("LastGoodStays", "p".to_string())]);
    }
    world.apply([strict("p", json!({"mtls": {"mode": "PERMISSIVE"}}))]);
    assert!(names(&world, "10.0.0.1").is_empty());
    assert!(world.reasons().is_empty());
    // Where there is nothing to go back to it is closed.
    world.apply([strict("new", json!({"mtls": {"mode": "OFF"}}))]);
    world.delete(Kind::PeerAuthentication, "a", "p");
    assert_eq!(names(&world, "10.0.0.1"), [STATIC]);
}

#[test]
fn one_pod_alone_says_who_is_at_an_address() {
    let mut world = World::new([pod("one", "web", "10.0.0.1")]);
    let only = |world: &World, address: &str| {
        let only = world.compiled.snapshot.workloads.only_at(address.parse().unwrap());
        only.map(|id| id.principal().to_owned())
    };
    assert_eq!(only(&world, "10.0.0.1").as_deref(), Some("cluster.local/ns/a/sa/web"));
    assert_eq!(only(&world, "10.9.9.9"), None);
    world.apply([pod("two", "db", "10.0.0.1")]);
    assert_eq!(only(&world, "10.0.0.1"), None);
}

#[test]
fn lists_that_the_ca_of_the_mesh_writes_beside_the_roots_count() {
    let map = |name: &str, key: &str, text: &str| {
        decode(&json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "istio-system"},
            "data": {key: text},
        }))
    };
    let authority = crate::testing::certificates::Authority::new("mesh");
    let settings = Settings { mesh_port: Some(0), ..Settings::default() };
    let mut world = World::with(settings, [map("istio-ca-root-cert", "root-cert.pem", &authority.pem())]);
    let revokes = |world: &World| {
        let pem = authority.leaf(&["web.test"]).serial(7).issue().leaf_pem;
        let leaf = rustls_pki_types::CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        let id = crate::tls::spiffe::SpiffeId::parse("spiffe://cluster.local/ns/a/sa/b").unwrap();
        let trust = world.compiled.snapshot.trust.as_ref().unwrap();
        MeshClient::new(id, &[leaf]).standing(trust) == Standing::Revoked
    };
    assert!(!revokes(&world));
    world.apply([map("istio-ca-crl", "ca-crl.pem", &authority.revocation_list(&[7]))]);
    assert!(revokes(&world));
    world.delete(Kind::ConfigMap, "istio-system", "istio-ca-crl");
    assert!(!revokes(&world));
}

#[test]
fn roots_that_cannot_be_used_leave_the_last_good_ones_in_force() {
    let roots = |pem: &str| {
        decode(&json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "istio-ca-root-cert", "namespace": "istio-system"},
            "data": {"root-cert.pem": pem},
        }))
    };
    let settings = Settings { mesh_port: Some(0), ..Settings::default() };
    let mut world = World::with(settings, []);
    assert!(world.compiled.snapshot.mesh.is_none());
    assert_eq!(world.reasons()[0].0, "TrustBundleNotFound");
    let authority = rcgen::CertifiedIssuer::self_signed(
        {
            let mut params = rcgen::CertificateParams::default();
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
            params
        },
        rcgen::KeyPair::generate().unwrap(),
    )
    .unwrap();
    world.apply([roots(&authority.pem())]);
    assert!(world.compiled.snapshot.mesh.is_some());
    assert!(world.reasons().is_empty());
    world.apply([roots("nothing")]);
    assert!(world.compiled.snapshot.mesh.is_some());
    assert_eq!(world.reasons()[0].0, "InvalidTrustBundle");
}

#[test]
fn the_addresses_of_services_are_known_with_their_namespaces() {
    let service = |name: &str, address: &str| {
        decode(&json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "a"},
            "spec": {"clusterIP": address, "ports": [{"port": 80}]},
        }))
    };
    let known = |world: &World, address: &str| {
        let at = world.compiled.snapshot.workloads.services.get(&address.parse().unwrap());
        at.map(|namespaces| namespaces.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let mut world = World::new([service("web", "10.96.0.1")]);
    assert_eq!(known(&world, "10.96.0.1"), Some(vec!["a".to_owned()]));
    world.apply([service("web", "10.96.0.2")]);
    assert_eq!((known(&world, "10.96.0.1"), known(&world, "10.96.0.2").is_some()), (None, true));
}
