//! Every field of every kind of object, changed in turn: it is noticed, and it is applied at once. A field that is
//! added to a kind does not compile here before somebody has said what a change of it does.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use super::workloads::decode;
use super::*;
use crate::settings::places::TrustPlace;
use crate::store::objects::{
    AuthorizationPolicy, Backend, Clause, ConfigMap, Endpoint, EndpointPort, EndpointSlice, Ingress,
    IngressClass, IngressPath, IngressRule, IngressTls, Metadata, Namespace, PeerAuthentication, Pod,
    PolicyRule, ReadyPolicy, Secret, Service, ServicePort, TlsHost,
};
use crate::testing::certificates::Authority;

/// Pairs of `tls.crt` and `tls.key`: the first two for the same name.
static PAIRS: LazyLock<[(String, String); 3]> = LazyLock::new(|| {
    let authority = Authority::new("root");
    [["a.test"], ["a.test"], ["b.test"]].map(|names| {
        let pem = authority.leaf(&names).issue();
        (pem.certificates_pem(), pem.key_pem.clone())
    })
});
/// Root certificates of two meshes.
static ROOTS: LazyLock<[String; 2]> = LazyLock::new(|| ["one", "two"].map(|name| Authority::new(name).pem()));

fn object(api: &str, kind: &str, name: &str, rest: Value) -> Value {
    let mut object = json!({
        "apiVersion": api, "kind": kind,
        "metadata": { "name": name, "namespace": "a", "creationTimestamp": "2026-01-02T00:00:00Z" },
    });
    let entries = rest.as_object().unwrap().clone();
    object.as_object_mut().unwrap().extend(entries);
    object
}

fn tls_secret(name: &str, (certificates, key): &(String, String)) -> Value {
    let data = json!({ "tls.crt": certificates, "tls.key": key });
    object("v1", "Secret", name, json!({ "type": "kubernetes.io/tls", "stringData": data }))
}

fn one_ingress(name: &str, class: Option<&str>, host: &str, path: &str) -> Value {
    let backend = json!({ "service": { "name": "web", "port": { "number": 80 } } });
    let path = json!({ "path": path, "pathType": "Prefix", "backend": backend });
    object(
        "networking.k8s.io/v1",
        "Ingress",
        name,
        json!({ "spec": {
            "ingressClassName": class,
            "tls": [{ "hosts": ["a.test"], "secretName": "tls" }],
            "rules": [{ "host": host, "http": { "paths": [path] } }],
        }}),
    )
}

/// Objects of every kind, each field of which makes a difference.
fn base() -> Vec<Value> {
    let istio = "security.istio.io/v1";
    let mut rival = one_ingress("rival", Some("edge"), "a.test", "/");
    rival["metadata"]["creationTimestamp"] = json!("2026-01-03T00:00:00Z");
    rival["spec"]["tls"] = json!([]);
    vec![
        object(
            "networking.k8s.io/v1",
            "IngressClass",
            "edge",
            json!({ "spec": { "controller": "portcullis.dev/ingress-controller" } }),
        ),
        one_ingress("web", Some("edge"), "a.test", "/"),
        rival,
        one_ingress("classless", None, "classless.test", "/"),
        object(
            "networking.k8s.io/v1",
            "Ingress",
            "fallback",
            json!({ "spec": {
                "ingressClassName": "edge",
                "defaultBackend": { "service": { "name": "web", "port": { "number": 80 } } },
            }}),
        ),
        tls_secret("tls", &PAIRS[0]),
        tls_secret("tls2", &PAIRS[1]),
        object(
            "v1",
            "Service",
            "web",
            json!({ "spec": { "type": "ClusterIP", "ports": [
                { "name": "http", "port": 80, "targetPort": 8080, "appProtocol": "http" },
            ] }}),
        ),
        object("v1", "Service", "web2", json!({ "spec": { "ports": [{ "name": "http", "port": 80 }] }})),
        // By its target port, which is another way to name a port.
        {
            let mut by_target = one_ingress("by-target", Some("edge"), "target.test", "/");
            by_target["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]["port"]["number"] =
                json!(8080);
            by_target
        },
        object(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            "web-1",
            json!({
                "addressType": "IPv4",
                "ports": [{ "name": "http", "port": 8080, "appProtocol": "http" }],
                "endpoints": [
                    { "addresses": ["10.0.0.1"], "conditions": { "ready": true } },
                    { "addresses": ["10.0.0.9"], "conditions":
                        { "ready": false, "serving": true, "terminating": true } },
                ],
            }),
        ),
        object(
            "v1",
            "Pod",
            "web-1",
            json!({
                "spec": { "serviceAccountName": "web" },
                "status": { "podIP": "10.0.0.1", "podIPs": [{ "ip": "10.0.0.1" }] },
            }),
        ),
        object(
            istio,
            "PeerAuthentication",
            "strict",
            json!({ "spec": {
                "selector": { "matchLabels": { "app": "web" } },
                "mtls": { "mode": "STRICT" },
                "portLevelMtls": { "8080": { "mode": "PERMISSIVE" } },
            }}),
        ),
        object(
            istio,
            "AuthorizationPolicy",
            "some",
            json!({ "spec": {
                "selector": { "matchLabels": { "app": "web" } },
                "action": "ALLOW",
                "rules": [{
                    "from": [{ "source": { "namespaces": ["b"] } }],
                    "to": [{ "operation": { "ports": ["80"] } }],
                    "when": [{ "key": "source.namespace", "values": ["b"] }],
                }],
            }}),
        ),
        object("v1", "ConfigMap", "roots", json!({ "data": { "root-cert.pem": &ROOTS[0] } })),
        object("v1", "Namespace", "a", json!({})),
    ]
    .into_iter()
    .map(|mut object| {
        match object["kind"].as_str().unwrap() {
            "EndpointSlice" => {
                object["metadata"]["labels"] = json!({ "kubernetes.io/service-name": "web" });
            }
            "Pod" => object["metadata"]["labels"] = json!({ "app": "web" }),
            "IngressClass" | "Namespace" => {
                object["metadata"].as_object_mut().unwrap().remove("namespace");
            }
            _ => {}
        }
        object
    })
    .collect()
}

/// A field, the object that has it, where it stands, and another value for it.
type Mutation = (&'static str, &'static str, &'static str, Value);

fn mutations() -> Vec<Mutation> {
    vec![
        ("Metadata.created", "Ingress/rival", "/metadata/creationTimestamp", json!("2026-01-01T00:00:00Z")),
        ("Metadata.labels", "Pod/web-1", "/metadata/labels/app", json!("other")),
        (
            "Metadata.annotations",
            "Ingress/web",
            "/metadata/annotations",
            json!({ "nginx.ingress.kubernetes.io/proxy-body-size": "7m" }),
        ),
        ("IngressClass.controller", "IngressClass/edge", "/spec/controller", json!("example.com/other")),
        (
            "IngressClass.default",
            "IngressClass/edge",
            "/metadata/annotations",
            json!({ "ingressclass.kubernetes.io/is-default-class": "true" }),
        ),
        ("Ingress.class", "Ingress/web", "/spec/ingressClassName", json!("other")),
        ("Ingress.default_backend", "Ingress/fallback", "/spec/defaultBackend/service/name", json!("web2")),
        ("IngressTls.hosts", "Ingress/web", "/spec/tls/0/hosts", json!(["b.test"])),
        ("TlsHost.host", "Ingress/web", "/spec/tls/0/hosts/0", json!("b.test")),
        ("IngressTls.secret", "Ingress/web", "/spec/tls/0/secretName", json!("tls2")),
        ("IngressRule.host", "Ingress/web", "/spec/rules/0/host", json!("c.test")),
        ("IngressPath.path", "Ingress/web", "/spec/rules/0/http/paths/0/path", json!("/x")),
        ("IngressPath.kind", "Ingress/web", "/spec/rules/0/http/paths/0/pathType", json!("Exact")),
        ("Backend.name", "Ingress/web", "/spec/rules/0/http/paths/0/backend/service/name", json!("web2")),
        ("Backend.port", "Ingress/web", "/spec/rules/0/http/paths/0/backend/service/port/number", json!(81)),
        ("Secret.pair", "Secret/tls", "/stringData", json!({ "tls.crt": PAIRS[1].0, "tls.key": PAIRS[1].1 })),
        ("Service.addresses", "Service/web", "/spec/clusterIP", json!("10.96.0.7")),
        ("Service.kind", "Service/web", "/spec/type", json!("ExternalName")),
        ("ServicePort.name", "Service/web", "/spec/ports/0/name", json!("other")),
        ("ServicePort.port", "Service/web", "/spec/ports/0/port", json!(81)),
        ("ServicePort.target", "Service/web", "/spec/ports/0/targetPort", json!(9090)),
        (
            "EndpointSlice.service",
            "EndpointSlice/web-1",
            "/metadata/labels/kubernetes.io~1service-name",
            json!("web2"),
        ),
        ("EndpointPort.name", "EndpointSlice/web-1", "/ports/0/name", json!("other")),
        ("EndpointPort.port", "EndpointSlice/web-1", "/ports/0/port", json!(8081)),
        ("Endpoint.addresses", "EndpointSlice/web-1", "/endpoints/0/addresses/0", json!("10.0.0.2")),
        ("Endpoint.ready", "EndpointSlice/web-1", "/endpoints/0/conditions/ready", json!(false)),
        ("Pod.addresses", "Pod/web-1", "/status", json!({ "podIP": "10.0.0.7" })),
        ("Pod.host_network", "Pod/web-1", "/spec/hostNetwork", json!(true)),
        ("Pod.hbone", "Pod/web-1", "/metadata/labels/networking.istio.io~1tunnel", json!("http")),
        ("Pod.service_account", "Pod/web-1", "/spec/serviceAccountName", json!("other")),
        (
            "PeerAuthentication.selector",
            "PeerAuthentication/strict",
            "/spec/selector/matchLabels/app",
            json!("other"),
        ),
        ("PeerAuthentication.mode", "PeerAuthentication/strict", "/spec/mtls/mode", json!("PERMISSIVE")),
        (
            "PeerAuthentication.ports",
            "PeerAuthentication/strict",
            "/spec/portLevelMtls",
            json!({ "8081": { "mode": "PERMISSIVE" } }),
        ),
        (
            "AuthorizationPolicy.selector",
            "AuthorizationPolicy/some",
            "/spec/selector/matchLabels/app",
            json!("other"),
        ),
        ("AuthorizationPolicy.action", "AuthorizationPolicy/some", "/spec/action", json!("DENY")),
        (
            "AuthorizationPolicy.dry_run",
            "AuthorizationPolicy/some",
            "/metadata/annotations",
            json!({ "istio.io/dry-run": "true" }),
        ),
        (
            "AuthorizationPolicy.targeted",
            "AuthorizationPolicy/some",
            "/spec/targetRefs",
            json!([{ "group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "g" }]),
        ),
        ("PolicyRule.from", "AuthorizationPolicy/some", "/spec/rules/0/from", json!([])),
        ("PolicyRule.to", "AuthorizationPolicy/some", "/spec/rules/0/to", json!([])),
        ("PolicyRule.when", "AuthorizationPolicy/some", "/spec/rules/0/when", json!([])),
        ("Clause.values", "AuthorizationPolicy/some", "/spec/rules/0/to/0/operation/ports/0", json!("81")),
        (
            "Clause.negated",
            "AuthorizationPolicy/some",
            "/spec/rules/0/to/0/operation",
            json!({ "notPorts": ["80"] }),
        ),
        ("ConfigMap.data", "ConfigMap/roots", "/data/root-cert.pem", json!(&ROOTS[1])),
        // What a whole list stands for is in its items; that the list itself counts is seen by its last item.
        ("Ingress.tls", "Ingress/web", "/spec/tls", json!([])),
        ("Ingress.rules", "Ingress/web", "/spec/rules", json!([{ "host": "d.test" }])),
        ("IngressRule.paths", "Ingress/web", "/spec/rules/0/http/paths", json!([])),
        ("Service.ports", "Service/web", "/spec/ports", json!([])),
        ("EndpointSlice.ports", "EndpointSlice/web-1", "/ports", json!([])),
        ("EndpointSlice.endpoints", "EndpointSlice/web-1", "/endpoints", json!([])),
        ("AuthorizationPolicy.rules", "AuthorizationPolicy/some", "/spec/rules", json!([])),
    ]
}

/// Fields whose change changes nothing, and why.
const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("Metadata.name", "another name is another object: it comes and goes, which is tested for every kind"),
    ("Secret.fields", "it is for messages"),
    ("Secret.kind", "it is for messages; what is in `data` decides what a Secret is"),
    ("Secret.ticket_keys", "they seal sessions and are in no snapshot; replicas that share them are tested"),
    (
        "Secret.authorities",
        "roots count where a setting names their Secret, which is tested with the roots of the mesh",
    ),
    ("Secret.users", "they count where an annotation names their Secret, which is tested with routes"),
    (
        "Secret.client_ca",
        "it counts where an annotation names the Secret, which is tested with client certificates",
    ),
    ("Secret.origin", "it says which source a Secret is from; no object has it"),
    ("ServicePort.app_protocol", "the protocol of a backend is an annotation's to say"),
    ("EndpointPort.app_protocol", "the protocol of a backend is an annotation's to say"),
    ("Endpoint.serving", "it counts where nothing is ready, which is tested with backends"),
    ("Endpoint.terminating", "it counts where nothing is ready, which is tested with backends"),
    ("Pod.listed", "no API server has it; it is tested with ready policies"),
    ("ReadyPolicy.policy", "no API server has the kind; it is tested by itself"),
    ("ReadyPolicy.refused", "it says that the policy could not be read"),
    ("PeerAuthentication.refused", "it says that the others could not be read"),
    ("AuthorizationPolicy.refused", "it says that the others could not be read"),
];

/// All fields there are. Patterns without `..`, so that none can be forgotten.
fn fields() -> BTreeSet<&'static str> {
    macro_rules! fields {
        ($($kind:ident { $($field:ident),+ })+) => {{
            $(let _ = |value: &$kind| { let $kind { $($field: _),+ } = value; };)+
            [$($(concat!(stringify!($kind), ".", stringify!($field))),+),+]
        }};
    }
    let mut all = BTreeSet::from(fields! {
        Metadata { name, created, labels, annotations }
        IngressClass { metadata, controller, default }
        Ingress { metadata, class, default_backend, tls, rules }
        IngressTls { index, hosts, secret }
        TlsHost { index, host }
        IngressRule { index, host, paths }
        IngressPath { index, path, kind, backend }
        Secret { metadata, kind, origin, pair, fields, ticket_keys, authorities, client_ca, users }
        Service { metadata, kind, addresses, ports }
        ServicePort { name, port, target, app_protocol }
        EndpointSlice { metadata, service, ports, endpoints }
        EndpointPort { name, port, app_protocol }
        Endpoint { addresses, ready, serving, terminating }
        Pod { metadata, addresses, service_account, host_network, hbone, listed }
        ReadyPolicy { metadata, policy, refused }
        PeerAuthentication { metadata, selector, mode, ports, refused }
        AuthorizationPolicy { metadata, selector, action, rules, targeted, dry_run, refused }
        PolicyRule { from, to, when }
        Clause { negated, values }
        ConfigMap { metadata, data }
        Namespace { metadata }
    });
    let _ = |backend: &Backend| match backend {
        Backend::Service { name: _, port: _ } | Backend::Resource => {}
    };
    all.extend(["Backend.name", "Backend.port"]);
    // Their own fields are listed.
    all.retain(|field| !field.ends_with(".metadata") && *field != "IngressPath.backend");
    // Where something stands in its list is for findings to say.
    all.retain(|field| !field.ends_with(".index"));
    all
}

fn world(objects: &[Value]) -> World {
    let settings = Settings {
        source: Source::Kubernetes,
        mesh_port: Some(0),
        mesh_trust_bundle: TrustPlace::ConfigMap(ObjectName::new("a", "roots")),
        ..Settings::default()
    };
    World::with(settings, objects.iter().map(decode))
}

/// All that the data plane and the operator would see, workloads and roots of the mesh included.
fn seen(world: &World) -> Vec<String> {
    let mut seen = world.view();
    let workloads = &world.compiled.snapshot.workloads;
    let mut by_address: Vec<_> =
        workloads.by_address.iter().map(|(address, workloads)| format!("{address} {workloads:?}")).collect();
    by_address.sort();
    seen.extend(by_address);
    let mut services: Vec<_> = workloads.services.iter().map(|service| format!("{service:?}")).collect();
    services.sort();
    seen.extend(services);
    seen.push(format!("{:?}", world.compiled.snapshot.trust.as_ref().map(Arc::as_ptr)));
    seen
}

fn is(object: &Value, name: &str) -> bool {
    name.split_once('/') == object["kind"].as_str().zip(object["metadata"]["name"].as_str())
}

/// Puts a value where the pointer leads, making the last step where it is not there yet.
fn set(object: &mut Value, pointer: &str, value: Value) {
    let (parent, last) = pointer.rsplit_once('/').unwrap();
    let parent = object.pointer_mut(parent).unwrap_or_else(|| panic!("nothing at {pointer}"));
    let last = last.replace("~1", "/");
    match parent {
        Value::Array(items) => items[last.parse::<usize>().unwrap()] = value,
        parent => parent[last] = value,
    }
}

#[test]
fn a_change_of_any_field_is_noticed_and_applied() {
    let objects = base();
    let (mut covered, mut missed) = (BTreeSet::new(), Vec::new());
    for (field, name, pointer, value) in mutations() {
        assert!(covered.insert(field), "{field} twice");
        let mut world = world(&objects);
        let before = seen(&world);
        let mut changed = objects.iter().find(|object| is(object, name)).expect(name).clone();
        set(&mut changed, pointer, value);
        if field == "Service.kind" {
            changed["spec"]["externalName"] = json!("elsewhere.example.com");
        }
        world.store.apply(Event::Apply(decode(&changed)));
        let changes = world.store.take_changes();
        if changes.is_empty() {
            missed.push(format!("{field}: not noticed"));
            continue;
        }
        world.compiled = compile(&world.store, &changes, &world.settings, &world.compiled, world.now);
        if seen(&world) == before {
            missed.push(format!("{field}: not applied"));
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
    covered.extend(WITHOUT_EFFECT.iter().map(|(field, _)| *field));
    assert_eq!(covered, fields());
}

#[test]
fn an_object_of_any_kind_is_noticed_and_applied_as_it_comes_and_goes() {
    let objects = base();
    for name in [
        "IngressClass/edge",
        "Ingress/web",
        "Secret/tls",
        "Service/web",
        "EndpointSlice/web-1",
        "Pod/web-1",
        "PeerAuthentication/strict",
        "AuthorizationPolicy/some",
    ] {
        let object = objects.iter().find(|object| is(object, name)).unwrap();
        let others: Vec<_> = objects.iter().filter(|object| !is(object, name)).cloned().collect();
        let mut world = world(&others);
        let without = seen(&world);
        world.apply([decode(object)]);
        let with = seen(&world);
        assert_ne!(with, without, "{name} came unnoticed");
        let decoded = decode(object);
        let ObjectName { namespace, name: own } = &decoded.metadata().name;
        world.delete(decoded.kind(), namespace, own);
        assert_ne!(seen(&world), with, "{name} went unnoticed");
    }
}
