use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

use super::*;
use crate::diagnostics::ObjectRef;
use crate::store::Event;
use crate::tls::keys::KeyPairError;

/// Decodes an object; findings as "reason field".
fn decode(value: &Value) -> (Option<Object>, Vec<String>) {
    let node = Node::deserialize(value).unwrap();
    let mut findings = Findings::new();
    let text = |key| node.get_str(key).unwrap_or_default();
    let object = match Object::decode(text("apiVersion"), text("kind"), &node, &mut findings) {
        Decoded::Object(object) => Some(object),
        Decoded::Unusable(..) => None,
        Decoded::Unknown(unknown) => panic!("{unknown:?}"),
    };
    let findings = findings.into_list().into_iter().map(|it| format!("{} {}", it.reason, it.field));
    (object, findings.collect())
}

fn fine(value: &Value) -> Object {
    let (object, findings) = decode(value);
    assert_eq!(findings, [""; 0]);
    object.unwrap()
}

fn ingress(spec: Value) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": "web", "namespace": "shop"}, "spec": spec,
    })
}

fn decode_ingress(spec: Value) -> (Option<Ingress>, Vec<String>) {
    match decode(&ingress(spec)) {
        (Some(Object::Ingress(ingress)), findings) => (Some(ingress), findings),
        (_, findings) => (None, findings),
    }
}

fn config_map(metadata: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
}

#[test]
fn metadata() {
    let object = fine(&config_map(json!({
        "name": "a.b-1", "creationTimestamp": "2024-02-29T13:00:00.5+01:00",
        "labels": {"team": "web"}, "annotations": {"x/y": "z"}, "resourceVersion": "7",
    })));
    let metadata = object.metadata();
    assert_eq!(metadata.name, ObjectName::new("default", "a.b-1"));
    assert_eq!(metadata.created, Some(1_709_208_000));
    assert_eq!((&*metadata.labels["team"], &*metadata.annotations["x/y"]), ("web", "z"));

    let named = |metadata| decode(&config_map(metadata)).0.map(|it| it.metadata().name.to_string());
    assert_eq!(named(json!({"name": "a", "namespace": "n", "creationTimestamp": null})), Some("n/a".into()));
    assert_eq!(named(json!({"name": "a", "namespace": ""})), Some("default/a".into()));
    for name in ["", "A", "a/b", "-a", "a-", "a..b", "a\nb", "../a", &"a".repeat(254)] {
        assert_eq!(decode(&config_map(json!({"name": name}))).1, ["InvalidName metadata.name"], "{name}");
    }
    for namespace in ["A", "a.b", "a/b", &"a".repeat(64)] {
        let (object, findings) = decode(&config_map(json!({"name": "a", "namespace": namespace})));
        assert!(object.is_none());
        assert_eq!(findings, ["InvalidName metadata.namespace"], "{namespace}");
    }
}

#[test]
fn a_wrong_value_in_metadata_leaves_the_object() {
    let (object, findings) = decode(&config_map(json!({
        "name": "a", "creationTimestamp": "yesterday", "labels": [1],
        "annotations": {"nginx.ingress.kubernetes.io/ssl-redirect": false, "b": "1"},
    })));
    let expected = [
        "InvalidTime metadata.creationTimestamp",
        "WrongType metadata.labels",
        "WrongType metadata.annotations[nginx.ingress.kubernetes.io/ssl-redirect]",
    ];
    assert_eq!(findings, expected);
    assert_eq!(object.unwrap().metadata().annotations.len(), 1);
    for metadata in [json!(null), json!("x"), json!([]), json!({"name": 7}), json!({"name": null})] {
        let (object, findings) = decode(&config_map(metadata));
        assert!(object.is_none() && findings.len() == 1, "{findings:?}");
    }
}

#[test]
fn the_table_knows_versions_and_leaves_strangers() {
    let decode = |api_version, kind| {
        let node = Node::Map(Vec::new());
        let mut findings = Findings::new();
        match Object::decode(api_version, kind, &node, &mut findings) {
            Decoded::Unknown(_) => "unknown",
            _ => findings.into_list()[0].reason,
        }
    };
    assert_eq!(decode("v1", "LimitRange"), "unknown");
    assert_eq!(decode("security.istio.io/v1beta1", "PeerAuthentication"), "MissingField");
    assert_eq!(decode("security.istio.io/v1alpha1", "PeerAuthentication"), "UnsupportedVersion");
    assert_eq!(decode("serving.knative.dev/v1", "Service"), "unknown");
    assert_eq!(decode("extensions/v1beta1", "Ingress"), "UnsupportedVersion");
    assert_eq!(decode("discovery.k8s.io/v1beta1", "EndpointSlice"), "UnsupportedVersion");
    assert_eq!(decode("v1", "Service"), "MissingField");
}

#[test]
fn what_cannot_be_used_is_known_by_its_name_and_says_that_it_stays() {
    let decode = |value: Value| {
        let node = Node::deserialize(&value).unwrap();
        let text = |key| node.get_str(key).unwrap_or_default();
        let mut findings = Findings::new();
        match Object::decode(text("apiVersion"), text("kind"), &node, &mut findings) {
            Decoded::Unusable(kind, name) => {
                (name.map(|name| ObjectRef::new(kind, &name)), findings.into_list())
            }
            _ => panic!("{value} can be used"),
        }
    };
    let mut beta = ingress(json!({"rules": [{"host": "a.test"}]}));
    beta["apiVersion"] = json!("networking.k8s.io/v1beta1");
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "FQDN",
        "metadata": {"name": "web", "namespace": "shop"},
    });
    for (value, field) in [(beta, "apiVersion"), (ingress(json!(null)), ""), (slice, "addressType")] {
        let (object, findings) = decode(value);
        let [finding] = &findings[..] else { panic!("{findings:?}") };
        assert_eq!((finding.object.as_ref(), &*finding.field), (object.as_ref(), field));
        assert_eq!(object.map(|it| it.to_string().ends_with(" shop/web")), Some(true));
        assert!(finding.message.ends_with("; the object stays as it was, where it was there before"));
    }
    let (object, findings) = decode(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": 7}}));
    assert!(object.is_none() && !findings[0].message.contains("stays"), "{findings:?}");
}

#[test]
fn an_ingress() {
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    let object = fine(&ingress(json!({
        "ingressClassName": "portcullis",
        "defaultBackend": {"service": {"name": "fallback", "port": {"name": "http"}}},
        "tls": [{"hosts": ["*.a.test"], "secretName": "tls"}, {}],
        "rules": [
            {"host": "a.test", "http": {"paths": [
                {"path": "/x", "pathType": "Exact", "backend": backend},
                {"pathType": "Prefix", "backend": backend},
            ]}},
            {"host": "", "http": null},
        ],
    })));
    let Object::Ingress(ingress) = object else { panic!() };
    let web = Backend::Service { name: "web".into(), port: ServicePortRef::Number(80) };
    let path = |index, path: &str, kind| IngressPath { index, path: path.into(), kind, backend: web.clone() };
    let fallback = Backend::Service { name: "fallback".into(), port: ServicePortRef::Name("http".into()) };
    assert_eq!(ingress.class.as_deref(), Some("portcullis"));
    assert_eq!(ingress.default_backend, Some(fallback));
    let tls = [
        IngressTls {
            index: 0,
            hosts: vec![TlsHost { index: 0, host: "*.a.test".into() }],
            secret: TlsSecret::Named("tls".into()),
        },
        IngressTls { index: 1, hosts: Vec::new(), secret: TlsSecret::Default },
    ];
    assert_eq!(ingress.tls, tls);
    let paths = vec![path(0, "/x", PathType::Exact), path(1, "", PathType::Prefix)];
    let rules = [
        IngressRule { index: 0, host: Some("a.test".into()), paths },
        IngressRule { index: 1, host: Some("".into()), paths: Vec::new() },
    ];
    assert_eq!(ingress.rules, rules);
}

#[test]
fn what_is_wrong_in_an_ingress_is_left_out_alone() {
    let good = json!({"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "web", "port": {"number": 80}}}});
    let path = |key: &str, value: Value| {
        let mut path = good.clone();
        path[key] = value;
        path
    };
    let port = |port: Value| path("backend", json!({"service": {"name": "web", "port": port}}));
    let (ingress, findings) = decode_ingress(json!({
        "rulez": [],
        "tls": [{"hosts": ["good.test", "bad host", 7], "secretName": "other/tls"}, "x"],
        "rules": [
            {"host": "good.test", "http": {"paths": [
                good, path("path", json!("x")), path("path", json!("/a//b")), path("path", json!("/a/../b")),
                path("path", json!("/%2Fa")), path("path", json!("/a\n")), path("pathType", json!("Regex")),
                path("backend", json!({})), port(json!({"number": 0})), port(json!({"number": "80"})),
                port(json!({"name": "a b"})), port(json!({})), path("backend", json!(null)), 7,
            ]}},
            {"host": "a.test:80", "http": {"paths": [good]}},
            {"host": "*.*.test", "http": {"paths": [good]}},
            {"host": "a\"; }\n", "http": {"paths": [good]}},
            {"host": 7, "http": {"paths": [good]}},
        ],
    }));
    let ingress = ingress.unwrap();
    assert_eq!(ingress.rules.len(), 1);
    assert_eq!(ingress.rules[0].paths.len(), 1);
    let hosts = vec![TlsHost { index: 0, host: "good.test".into() }];
    let unusable = |index, hosts| IngressTls { index, hosts, secret: TlsSecret::Unusable };
    assert_eq!(ingress.tls, [unusable(0, hosts), unusable(1, Vec::new())]);
    insta::assert_debug_snapshot!(findings);
}

#[test]
fn an_ingress_without_a_usable_rule_does_not_become_one_for_every_host() {
    let (ingress, findings) = decode_ingress(json!({
        "defaultBackend": {"service": {"name": "web", "port": {"number": 80}}},
        "rules": [{"host": "bad host"}],
    }));
    assert!(ingress.is_none());
    assert_eq!(findings, ["InvalidHost spec.rules[0].host", "NoUsableRule spec.rules"]);
    for spec in [json!({}), json!({"rules": []}), json!({"rules": null, "tls": [{"secretName": "tls"}]})] {
        let (ingress, findings) = decode_ingress(spec);
        assert!(ingress.is_none());
        assert_eq!(findings, ["EmptyIngress spec"]);
    }
}

#[test]
fn a_secret_name_that_is_none_is_no_wish_for_the_default_certificate() {
    let secrets = |tls: Value| {
        let (ingress, findings) = decode_ingress(json!({"rules": [{"host": "a.test"}], "tls": tls}));
        let secrets: Vec<_> = ingress.unwrap().tls.into_iter().map(|entry| entry.secret).collect();
        (secrets, findings.len())
    };
    let named = TlsSecret::Named("tls".into());
    assert_eq!(secrets(json!([{"secretName": "tls"}])), (vec![named], 0));
    for none in [json!([{}]), json!([{"secretName": ""}]), json!([{"secretName": null}])] {
        assert_eq!(secrets(none.clone()), (vec![TlsSecret::Default], 0), "{none}");
    }
    for bad in [json!([{"secretName": "certs/tls"}]), json!([{"secretName": 7}]), json!([7]), json!({"a": 1})]
    {
        assert_eq!(secrets(bad.clone()), (vec![TlsSecret::Unusable], 1), "{bad}");
    }
}

#[test]
fn what_is_left_keeps_its_place_in_the_list_as_written() {
    let path = |path: &str| json!({"path": path, "pathType": "Prefix", "backend": {"resource": {}}});
    let rule = |host: &str| json!({"host": host, "http": {"paths": [path("x"), path("/")]}});
    let hosts = ["*.*.com", "a:80", "10.0.0.1:1", "ünï.com", "a.test"];
    let (ingress, _) = decode_ingress(json!({
        "tls": [7, {"hosts": hosts, "secretName": "tls"}], "rules": hosts.map(rule),
    }));
    let ingress = ingress.unwrap();
    let [rule] = &ingress.rules[..] else { panic!("{ingress:?}") };
    assert_eq!((rule.index, rule.paths[0].index), (4, 1));
    assert_eq!((ingress.tls[1].index, ingress.tls[1].hosts[0].index), (1, 4));
}

#[test]
fn messages_are_short_and_escaped() {
    let hostile = format!("{}\u{1b}[31m\r\n", "x".repeat(1 << 20));
    let node = ingress(json!({"rules": [{"host": hostile}, {"host": "\u{1b}[31m\r\n"}], hostile.clone(): 1}));
    let node = Node::deserialize(&node).unwrap();
    let mut findings = Findings::new();
    Object::decode("networking.k8s.io/v1", "Ingress", &node, &mut findings);
    for finding in findings.into_list() {
        let text = finding.to_string();
        assert!(text.len() < 400 && !text.contains(['\u{1b}', '\r', '\n']), "{text}");
    }
}

#[test]
fn services() {
    let service = |spec: Value| {
        decode(&json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec}))
    };
    let (object, findings) = service(json!({"clusterIP": "None", "ports": [
        {"port": 80}, {"name": "h", "port": 81, "targetPort": "web", "appProtocol": "kubernetes.io/h2c"},
        {"port": 53, "protocol": "UDP"}, {"port": 70000}, {"name": "none"}, {"port": 82, "targetPort": 8082},
    ]}));
    let Some(Object::Service(it)) = object else { panic!() };
    assert_eq!(it.kind, ServiceKind::Cluster);
    let port = |name: Option<&str>, port, target| ServicePort {
        name: name.map(Into::into),
        port,
        target,
        app_protocol: name.map(|_| "kubernetes.io/h2c".into()),
    };
    let expected = [
        port(None, 80, None),
        port(Some("h"), 81, Some(ServicePortRef::Name("web".into()))),
        port(None, 82, Some(ServicePortRef::Number(8082))),
    ];
    assert_eq!(it.ports, expected);
    assert_eq!(findings, ["InvalidPort spec.ports[3].port", "MissingField spec.ports[4]"]);

    for (name, expected) in [("Example.TEST.", "example.test"), ("127.0.0.1", "127.0.0.1"), ("::1", "::1")] {
        let (object, findings) = service(json!({"type": "ExternalName", "externalName": name}));
        let Some(Object::Service(it)) = object else { panic!("{findings:?}") };
        assert_eq!(it.kind, ServiceKind::ExternalName(expected.into()));
    }
    for name in [json!("a b"), json!("a.test:80"), json!(""), json!(7), json!(null)] {
        let (object, findings) = service(json!({"type": "ExternalName", "externalName": name}));
        assert!(object.is_none() && findings.len() == 1, "{name}");
    }
}

#[test]
fn endpoint_slices() {
    let slice = |kind: &str, endpoints: Value| {
        let (object, findings) = decode(&json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": kind,
            "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
            "ports": [{"name": "", "port": 8080}, {"name": "open"}, {"port": 53, "protocol": "UDP"}],
            "endpoints": endpoints,
        }));
        match object {
            Some(Object::EndpointSlice(slice)) => (Some(slice), findings),
            _ => (None, findings),
        }
    };
    let (it, findings) = slice(
        "IPv4",
        json!([
            {"addresses": ["127.0.0.1", "x", "169.254.1.1"]},
            {"addresses": ["10.0.0.1"], "conditions": {"ready": false, "terminating": true}},
            {"addresses": ["10.0.0.2"], "conditions": {"ready": null, "serving": false}},
            {"addresses": []},
        ]),
    );
    let it = it.unwrap();
    assert_eq!(it.service.as_deref(), Some("web"));
    assert_eq!(it.ports[0], EndpointPort { name: None, port: Some(8080), app_protocol: None });
    assert_eq!((it.ports.len(), it.ports[1].port), (2, None));
    let states: Vec<_> = it.endpoints.iter().map(|e| (e.ready, e.serving, e.terminating)).collect();
    assert_eq!(states, [(true, true, false), (false, false, true), (true, false, false)]);
    assert_eq!(it.endpoints[0].addresses.len(), 2);
    assert_eq!(findings, ["InvalidAddress endpoints[0].addresses[1]", "NoAddress endpoints[3]"]);

    let (it, _) = slice("IPv6", json!([{"addresses": ["::1", "fe80::1"]}]));
    assert_eq!(it.unwrap().endpoints[0].addresses.len(), 2);
    let (it, findings) = slice("FQDN", json!([{"addresses": ["a.test"]}]));
    assert!(it.is_none());
    assert_eq!(findings, ["UnsupportedAddressType addressType"]);
}

#[test]
fn classes() {
    let class = |annotation: Option<&str>| {
        let object = fine(&json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass",
            "metadata": {"name": "x", "namespace": "ignored",
                "annotations": {"ingressclass.kubernetes.io/is-default-class": annotation}},
            "spec": {"controller": "portcullis.dev/ingress-controller"},
        }));
        let Object::IngressClass(class) = object else { panic!() };
        (class.metadata.name, class.controller, class.default)
    };
    let name = ObjectName::new("", "x");
    assert_eq!(class(None), (name.clone(), "portcullis.dev/ingress-controller".into(), false));
    assert!(class(Some("true")).2);
    let (object, findings) = decode(
        &json!({"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": "x"}}),
    );
    assert!(object.is_none());
    assert_eq!(findings, ["MissingField "]);
}

fn secret(fields: Value) -> (Secret, Vec<String>) {
    let mut value = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tls"}});
    value.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    match decode(&value) {
        (Some(Object::Secret(secret)), findings) => (secret, findings),
        (_, findings) => panic!("{findings:?}"),
    }
}

#[test]
fn secrets() {
    let key = rcgen::KeyPair::generate().unwrap();
    let parameters = rcgen::CertificateParams::new(vec!["a.test".into()]).unwrap();
    let certificate = parameters.self_signed(&key).unwrap().pem();
    let key = key.serialize_pem();
    let base64 = |text: &str| STANDARD.encode(text);

    let wrapped = base64(&certificate)
        .as_bytes()
        .chunks(76)
        .fold(String::new(), |text, line| text + std::str::from_utf8(line).unwrap() + "\r\n");
    let data = json!({"type": "Opaque", "data": {"tls.crt": wrapped, "tls.key": base64(&key)}});
    let (it, findings) = secret(data.clone());
    assert_eq!(findings, [""; 0]);
    assert_eq!((&*it.kind, it.origin), ("Opaque", SecretOrigin::Object));
    let serial = |secret: &Secret| secret.pair.clone().unwrap().unwrap().serial.clone();

    let (other, _) = secret(json!({"stringData": {"tls.crt": certificate, "tls.key": key}}));
    assert_eq!(serial(&it), serial(&other));
    let (other, _) = secret(json!({
        "data": {"tls.crt": "AAAA", "tls.key": base64(&key)}, "stringData": {"tls.crt": certificate},
    }));
    assert_eq!(serial(&it), serial(&other), "stringData wins");

    let (it, findings) = secret(json!({"stringData": {"tls.crt": certificate}}));
    assert!(it.pair.unwrap().is_err());
    assert_eq!(findings, ["KeyMissing stringData.tls.key"]);
    let (_, findings) = secret(json!({"data": {"tls.key": base64(&key)}, "stringData": {"tls.crt": "x"}}));
    assert_eq!(findings, ["CertificateMissing stringData.tls.crt"]);

    let (it, findings) = secret(json!({"data": {"ca.crt": "AAAA"}}));
    assert!(it.pair.is_none() && findings.is_empty());
    let (it, findings) = secret(json!({"data": {"tls.crt": base64(&certificate)}}));
    assert_eq!(it.pair.unwrap().unwrap_err(), KeyPairError::KeyMissing);
    assert_eq!(findings, ["KeyMissing data.tls.key"]);
    for bad in [json!("!"), json!("AAA"), json!(7), json!(["AAAA"])] {
        let (it, findings) = secret(json!({"data": {"tls.crt": bad, "tls.key": base64(&key)}}));
        assert!(matches!(it.pair, Some(Err(_))));
        assert!(findings[0].ends_with(" data.tls.crt"), "{findings:?}");
    }
}

#[test]
fn nothing_that_is_secret_is_kept_beside_the_pair_or_shown() {
    let canary = "CANARYCANARY";
    let applied = json!({"kubectl.kubernetes.io/last-applied-configuration": format!("{{\"stringData\":\"{canary}\"}}")});
    let value = json!({
        "apiVersion": "v1", "kind": "Secret", "type": TICKET_KEYS_TYPE,
        "metadata": {"name": "tls", "annotations": applied},
        "stringData": {"tls.crt": canary, "tls.key": canary, "root-cert.pem": canary, "other": canary},
    });
    let (object, _) = decode(&value);
    let object = object.unwrap();
    assert!(object.metadata().annotations.is_empty());
    let Object::Secret(secret) = object.clone() else { panic!() };
    for shown in [format!("{secret:?}"), format!("{object:?}"), format!("{:?}", Event::Apply(object))] {
        assert!(!shown.contains("CANARY") && shown.contains("tls"), "{shown}");
    }
}

#[test]
fn secrets_of_workloads_as_citadel_writes_them() {
    let authority = crate::testing::certificates::Authority::new("mesh");
    let pem = authority.workload("spiffe://cluster.local/ns/shop/sa/web").issue();
    let layout = |key: &str| {
        secret(json!({"type": "istio.io/key-and-cert", "stringData": {
            "cert-chain.pem": pem.certificates_pem(), "key.pem": key, "root-cert.pem": authority.pem(),
            "ca-crl.pem": "a list",
        }}))
    };
    let (whole, findings) = layout(&pem.key_pem);
    assert!(findings.is_empty(), "{findings:?}");
    assert!(matches!(whole.pair, Some(Ok(_))));
    let authorities = whole.authorities.unwrap();
    assert_eq!((&*authorities.roots, &*authorities.revocations), (authority.pem().as_str(), "a list"));
    let (_, findings) = layout("nothing");
    assert!(findings[0].ends_with("stringData.key.pem"), "the field is named as it is: {findings:?}");
    let of_ca =
        json!({"cert-chain.pem": authority.pem(), "ca-cert.pem": authority.pem(), "ca-key.pem": "a key"});
    let (of_ca, findings) = secret(json!({"type": "istio.io/ca-root", "stringData": of_ca}));
    assert!(of_ca.pair.is_none() && findings.is_empty(), "a chain by itself is no broken pair: {findings:?}");

    let (roots, _) = secret(json!({"stringData": {"ca.crt": "roots"}}));
    assert_eq!(&*roots.authorities.unwrap().roots, "roots");
    let tls = json!({"tls.crt": pem.certificates_pem(), "tls.key": pem.key_pem, "ca.crt": authority.pem()});
    let (tls, _) = secret(json!({"stringData": tls}));
    assert!(tls.pair.is_some() && tls.authorities.is_none(), "nobody asks for it there");
}

#[test]
fn pods_say_how_they_are_reached() {
    let pod = |metadata: Value, spec: Value| {
        let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec,
            "status": {"podIPs": [{"ip": "10.0.0.1"}]}});
        match fine(&object) {
            Object::Pod(pod) => (pod.host_network, pod.hbone),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(pod(json!({"name": "a"}), json!({})), (false, false));
    assert_eq!(pod(json!({"name": "a"}), json!({"hostNetwork": true})), (true, false));
    let redirected = json!({"name": "a", "annotations": {"ambient.istio.io/redirection": "enabled"}});
    assert_eq!(pod(redirected, json!({"hostNetwork": false})), (false, true));
    let by_itself = json!({"name": "a", "labels": {"networking.istio.io/tunnel": "http"}});
    assert_eq!(pod(by_itself, json!({})), (false, true));
    let off = json!({"name": "a", "annotations": {"ambient.istio.io/redirection": "disabled"}});
    assert_eq!(pod(off, json!({})), (false, false));
}

#[test]
fn services_have_the_addresses_that_pods_know() {
    let addresses = |spec: Value| {
        let object =
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec});
        match fine(&object) {
            Object::Service(service) => service.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        }
    };
    let both = json!({"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00::1"]});
    assert_eq!(addresses(both), ["10.96.0.1", "fd00::1"]);
    assert_eq!(addresses(json!({"clusterIP": "10.96.0.1"})), ["10.96.0.1"]);
    assert!(addresses(json!({"clusterIP": "None", "clusterIPs": ["None"]})).is_empty());
    assert!(addresses(json!({})).is_empty());
}
