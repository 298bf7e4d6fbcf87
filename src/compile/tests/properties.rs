use std::sync::{Arc, LazyLock};

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::World;
use super::objects::{class, metadata};
use crate::settings::{Settings, choices::Source};
use crate::store::Event;
use crate::store::objects::{
    Backend, EndpointPort, EndpointSlice, Ingress, IngressPath, IngressRule, IngressTls, Kind, Object,
    ObjectName, PathType, Secret, SecretOrigin, Service, ServiceKind, ServicePort, ServicePortRef, TlsHost,
    TlsSecret,
};
use crate::testing::certificates::Authority;
use crate::tls::client_auth::ClientCa;
use crate::tls::keys::KeyPair;

/// What can happen: few names, so that events meet.
#[derive(Clone, Debug)]
enum Step {
    Apply(Object),
    Delete(Kind, ObjectName),
    Settings(usize),
    Compile,
}

fn settings(number: usize) -> Settings {
    match number {
        0 => Settings::default(),
        1 => Settings { source: Source::Kubernetes, ..Settings::default() },
        2 => Settings {
            annotations_prefix: "x.test".into(),
            allow_external_name: false,
            ..Settings::default()
        },
        _ => Settings { ingress_class: "other".into(), ssl_redirect: false, ..Settings::default() },
    }
}

fn pick(choices: &'static [&'static str]) -> impl Strategy<Value = String> {
    proptest::sample::select(choices).prop_map(str::to_owned)
}

fn port() -> impl Strategy<Value = ServicePortRef> {
    prop_oneof![
        Just(ServicePortRef::Number(80)),
        Just(ServicePortRef::Number(8080)),
        Just(ServicePortRef::Name("http".into())),
    ]
}

fn backend() -> impl Strategy<Value = Backend> {
    prop_oneof![
        9 => (pick(&["s", "t"]), port()).prop_map(|(name, port)| Backend::Service { name, port }),
        1 => Just(Backend::Resource),
    ]
}

fn path() -> impl Strategy<Value = IngressPath> {
    const KINDS: &[PathType] = &[PathType::Exact, PathType::Prefix, PathType::ImplementationSpecific];
    let path = pick(&["/", "", "/a", "/a/", "/a/b", "/a//b", "bad", "/a(.*)", "/(?!a)"]);
    (path, proptest::sample::select(KINDS), backend()).prop_map(|(path, kind, backend)| IngressPath {
        index: 0,
        path,
        kind,
        backend,
    })
}

fn rule() -> impl Strategy<Value = IngressRule> {
    let host = option::weighted(0.8, pick(&["a.test", "A.test", "b.test", "*.a.test", "bad host", ""]));
    (host, vec(path(), 0..4)).prop_map(|(host, paths)| IngressRule { index: 0, host, paths })
}

fn ingress() -> impl Strategy<Value = Ingress> {
    let annotation = (
        pick(&[
            "portcullis.dev/ssl-redirect",
            "x.test/proxy-body-size",
            "kubernetes.io/ingress.class",
            "portcullis.dev/auth-tls-secret",
            "x.test/auth-tls-secret",
            "portcullis.dev/auth-tls-match-cn",
            "portcullis.dev/use-regex",
            "portcullis.dev/rewrite-target",
            "portcullis.dev/server-alias",
            "x.test/server-alias",
            "portcullis.dev/service-upstream",
            "portcullis.dev/default-backend",
            "portcullis.dev/from-to-www-redirect",
            "portcullis.dev/canary",
        ]),
        pick(&[
            "false",
            "true",
            "1m",
            "portcullis",
            "other",
            "b.test",
            "*.a.test,c.test",
            "/a",
            "/$1",
            "s",
            "ca",
            "a/ca",
        ]),
    );
    let secret = prop_oneof![
        4 => Just(TlsSecret::Named("tls".into())),
        1 => Just(TlsSecret::Default),
        1 => Just(TlsSecret::Unusable),
    ];
    let tls = vec(secret.prop_map(|secret| IngressTls { index: 0, hosts: Vec::new(), secret }), 0..2);
    (
        pick(&["i", "j", "k"]),
        option::of(0..3_i64),
        option::weighted(0.4, pick(&["portcullis", "other", "none"])),
        vec(annotation, 0..3),
        option::weighted(0.3, backend()),
        tls,
        vec(rule(), 0..4),
    )
        .prop_map(|(name, created, class, annotations, default_backend, tls, rules)| {
            let mut metadata = metadata(&name);
            metadata.created = created;
            metadata.annotations.extend(annotations);
            Ingress { metadata, class, default_backend, tls, rules }
        })
}

fn service() -> impl Strategy<Value = Service> {
    let kind = prop_oneof![
        3 => Just(ServiceKind::Cluster),
        1 => pick(&["example.com", "localhost", "bad name"]).prop_map(ServiceKind::ExternalName),
    ];
    let address = option::of((0..3_u8).prop_map(|number| [10, 96, 0, number].into()));
    let port = option::of(Just("http".to_owned())).prop_map(|name| ServicePort {
        name,
        port: 80,
        target: Some(ServicePortRef::Number(8080)),
        app_protocol: None,
    });
    (pick(&["s", "t"]), kind, address, vec(port, 0..3)).prop_map(|(name, kind, address, ports)| Service {
        metadata: metadata(&name),
        kind,
        addresses: address.into_iter().collect(),
        ports,
    })
}

fn slice() -> impl Strategy<Value = EndpointSlice> {
    let endpoint = (0..4_u8, any::<[bool; 3]>()).prop_map(|(number, [ready, serving, terminating])| {
        let address = if number == 0 { "127.0.0.1".to_owned() } else { format!("10.0.0.{number}") };
        super::objects::endpoint(&address, ready, serving, terminating)
    });
    let port = option::of(Just("http".to_owned())).prop_map(|name| EndpointPort {
        name,
        port: Some(8080),
        app_protocol: None,
    });
    (pick(&["x", "y"]), option::weighted(0.9, pick(&["s", "t"])), vec(port, 0..2), vec(endpoint, 0..4))
        .prop_map(|(name, service, ports, endpoints)| EndpointSlice {
            metadata: metadata(&name),
            service,
            ports,
            endpoints,
        })
}

fn object() -> impl Strategy<Value = Object> {
    let controllers = &["portcullis.dev/ingress-controller", "other"];
    prop_oneof![
        6 => ingress().prop_map(Object::Ingress),
        2 => service().prop_map(Object::Service),
        3 => slice().prop_map(Object::EndpointSlice),
        2 => (0..4_usize).prop_map(|number| Object::Secret(client_ca(number))),
        1 => (pick(&["portcullis", "other"]), pick(controllers), any::<bool>())
            .prop_map(|(name, controller, default)| class(&name, &controller, default)),
    ]
}

static PAIRS: LazyLock<Vec<Arc<KeyPair>>> = LazyLock::new(|| {
    let authority = Authority::new("root");
    let names: [&[&str]; 3] = [&["a.test", "b.test"], &["*.a.test"], &["other.test"]];
    names.iter().map(|names| Arc::new(authority.pair(names))).collect()
});

static AUTHORITIES: LazyLock<[String; 2]> =
    LazyLock::new(|| ["one", "two"].map(|name| Authority::new(name).pem()));

/// A Secret with authorities, with ones that cannot be read or without any.
fn client_ca(number: usize) -> Secret {
    let text = AUTHORITIES.get(number).cloned().or((number == 2).then(String::new));
    Secret {
        metadata: metadata("ca"),
        kind: "Opaque".into(),
        origin: SecretOrigin::Object,
        pair: None,
        fields: Default::default(),
        ticket_keys: None,
        authorities: None,
        users: Default::default(),
        client_ca: text.map(|text| ClientCa::new(text.as_bytes(), None)),
    }
}

fn secret() -> impl Strategy<Value = Secret> {
    let origins = proptest::sample::select(&[SecretOrigin::Object, SecretOrigin::PemPair]);
    (pick(&["tls", "pem", "more"]), origins, option::weighted(0.9, 0..PAIRS.len())).prop_map(
        |(name, origin, pair)| Secret {
            metadata: metadata(&name),
            kind: "kubernetes.io/tls".into(),
            origin,
            pair: pair.map(|pair| Ok(PAIRS[pair].clone())),
            fields: Default::default(),
            ticket_keys: None,
            authorities: None,
            users: Default::default(),
            client_ca: None,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => object().prop_map(Step::Apply),
        4 => object().prop_map(|object| Step::Delete(object.kind(), object.metadata().name.clone())),
        1 => (0..4_usize).prop_map(Step::Settings),
        4 => Just(Step::Compile),
    ]
}

fn event(step: &Step) -> Option<Event> {
    match step.clone() {
        Step::Apply(object) => Some(Event::Apply(object)),
        Step::Delete(kind, name) => Some(Event::Delete(kind, name)),
        Step::Settings(_) | Step::Compile => None,
    }
}

/// Any text, and what breaks out of other formats.
fn hostile() -> impl Strategy<Value = String> {
    prop_oneof![
        20 => "(?s).{0,40}",
        20 => "\\PC{0,40}",
        20 => "/(?s).{0,20}",
        20 => pick(&[
            "\"}\n", ";", "{", "$", "`id`", "../", "#", "\r\n", "\0", "%00", "*.", ".", "[::1", "*.*", "0x1"
        ]),
        1 => Just("a".repeat(1 << 20)),
    ]
}

fn hostile_ingress() -> impl Strategy<Value = Ingress> {
    (vec(hostile(), 16), port()).prop_map(|(text, port)| {
        let text = |index: usize| text[index].clone();
        let service = || Backend::Service { name: text(0), port: port.clone() };
        let mut metadata = metadata("hostile");
        metadata.annotations = [
            (text(1), text(2)),
            (format!("portcullis.dev/{}", text(3)), text(4)),
            ("portcullis.dev/proxy-body-size".into(), text(5)),
            ("portcullis.dev/auth-tls-secret".into(), text(3)),
            ("portcullis.dev/auth-tls-match-cn".into(), text(4)),
            ("portcullis.dev/auth-tls-error-page".into(), text(5)),
            ("portcullis.dev/backend-protocol".into(), text(6)),
            ("portcullis.dev/rewrite-target".into(), text(12)),
            ("portcullis.dev/server-alias".into(), text(13)),
            ("portcullis.dev/upstream-vhost".into(), text(14)),
            ("portcullis.dev/x-forwarded-prefix".into(), text(15)),
        ]
        .into();
        let paths = vec![
            IngressPath { index: 0, path: text(7), kind: PathType::Prefix, backend: service() },
            IngressPath {
                index: 1,
                path: "/".into(),
                kind: PathType::Exact,
                backend: Backend::Service { name: "s".into(), port: ServicePortRef::Name(text(8)) },
            },
        ];
        Ingress {
            metadata,
            class: Some("portcullis".into()),
            default_backend: Some(service()),
            tls: vec![IngressTls {
                index: 0,
                hosts: vec![TlsHost { index: 0, host: text(9) }],
                secret: TlsSecret::Named(text(10)),
            }],
            rules: vec![
                IngressRule { index: 0, host: Some(text(11)), paths: paths.clone() },
                IngressRule { index: 1, host: Some("hostile.test".into()), paths },
            ],
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn compiling_step_by_step_is_compiling_from_scratch(steps in vec(step(), 1..40)) {
        let mut world = World::new([]);
        let mut last = 0;
        for step in &steps {
            match step {
                Step::Settings(number) => {
                    last = *number;
                    world.set(settings(last));
                }
                Step::Compile => world.compile(),
                _ => world.store.apply(event(step).unwrap()),
            }
        }
        world.compile();

        let mut scratch = World::with(settings(last), []);
        steps.iter().filter_map(event).for_each(|event| scratch.store.apply(event));
        scratch.compile();
        prop_assert_eq!(world.view(), scratch.view());
    }

    #[test]
    fn the_order_of_arrival_does_not_matter(
        mut objects in vec(object(), 1..16),
        secrets in vec(secret(), 0..4),
        seed in any::<u64>(),
    ) {
        objects.extend(secrets.into_iter().map(Object::Secret));
        // One version of each object: which of two versions is the last does depend on the order.
        let mut distinct = std::collections::HashMap::new();
        for object in objects {
            distinct.insert((object.kind(), object.metadata().name.clone()), object);
        }
        let mut objects: Vec<_> = distinct.into_values().collect();
        objects.sort_by_key(|object| (object.kind(), object.metadata().name.clone()));
        let in_order = World::new(objects.clone());

        let middle = usize::try_from(seed).unwrap_or_default() % objects.len();
        objects.rotate_left(middle);
        objects[..middle].reverse();
        let mut in_pieces = World::new([]);
        for object in objects {
            in_pieces.apply([object]);
        }
        prop_assert_eq!(in_order.view(), in_pieces.view());
    }

    #[test]
    fn hostile_text_anywhere_harms_nobody_else(ingress in hostile_ingress(), names in vec(hostile(), 4)) {
        let good = || super::objects::ingress("good").created(1).path("good.test", "/", "s").object();
        let mut world = World::new([good(), Object::Service(super::objects::service("s"))]);
        let before = world.compiled.snapshot.hosts.find("good.test").unwrap().clone();

        let mut odd = super::objects::service("odd");
        odd.kind = ServiceKind::ExternalName(names[0].clone());
        odd.ports[0].name = Some(names[1].clone());
        let mut odd_slice = super::objects::slice("odd", &names[2], &["10.0.0.1"]);
        odd_slice.ports[0].name = Some(names[3].clone());
        world.apply([
            Object::Ingress(ingress),
            super::objects::ingress("odd").path("odd.test", "/", "odd").object(),
            Object::Service(odd),
            Object::EndpointSlice(odd_slice),
            class(&names[0], &names[1], true),
        ]);
        let after = world.compiled.snapshot.hosts.find("good.test").unwrap();
        prop_assert!(Arc::ptr_eq(&before, after));
        for finding in world.compiled.report.all() {
            prop_assert!(finding.message.len() < 2_000, "{}", finding.message.len());
            prop_assert!(!finding.message.chars().any(char::is_control), "{:?}", finding.message);
            prop_assert!(!finding.field.chars().any(char::is_control), "{:?}", finding.field);
        }
    }
}
