//! What one change costs among many hosts, and what a lookup costs: neither may grow with the number of hosts.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use portcullis::compile::{Compiled, compile};
use portcullis::settings::Settings;
use portcullis::snapshot::paths::patterns::PathPattern;
use portcullis::snapshot::paths::{PathMap, PathMatch, canonical_path};
use portcullis::snapshot::rewrites::Target;
use portcullis::store::objects::{
    Backend, Endpoint, EndpointPort, EndpointSlice, Ingress, IngressPath, IngressRule, Metadata, Object,
    ObjectName, PathType, Service, ServiceKind, ServicePort, ServicePortRef,
};
use portcullis::store::{Event, Store};
use portcullis::tls::tickets::Tickets;

const SIZES: [usize; 4] = [100, 1_000, 10_000, 100_000];

fn one_change(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("compile");
    for size in SIZES {
        let (mut store, settings, mut compiled) = world(size);
        let mut turn = 0_u8;
        group.bench_function(BenchmarkId::new("one EndpointSlice of", size), |bencher| {
            bencher.iter(|| {
                turn = turn.wrapping_add(1);
                store.apply(Event::Apply(slice(size / 2, turn)));
                let changes = store.take_changes();
                compiled = compile(&store, &changes, &settings, &compiled, 0);
            });
        });
        group.bench_function(BenchmarkId::new("one Ingress of", size), |bencher| {
            bencher.iter(|| {
                turn = turn.wrapping_add(1);
                store.apply(Event::Apply(ingress(size / 2, &format!("/{turn}"))));
                let changes = store.take_changes();
                compiled = compile(&store, &changes, &settings, &compiled, 0);
            });
        });
    }
    group.finish();
}

fn lookup(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("lookup");
    for size in SIZES {
        let (_, _, compiled) = world(size);
        let hosts = &compiled.snapshot.hosts;
        let mut number = 0;
        group.bench_function(BenchmarkId::new("host and path of", size), |bencher| {
            bencher.iter(|| {
                number = (number + 7_919) % size;
                let path = canonical_path("/api/v1/items/42").expect("a path");
                let host = hosts.find(black_box(&name(number))).expect("a host");
                black_box(host.routes.find(&path).expect("a route"));
            });
        });
    }
    group.finish();
}

/// What paths that are regular expressions cost: one of them, and the last of a hundred, by the text that they begin with
/// and where all begin alike.
fn patterns(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("pattern");
    let cases = [
        ("the only one", vec!["/api(/|$)(.*)".to_owned()], "/api/v1/items/42"),
        (
            "the last of 100 that begin otherwise",
            many(|at| format!("/service-{at:02}(/|$)(.*)")),
            "/service-00/items/42",
        ),
        ("the last of 100 that begin alike", many(|at| format!("/api/(v{at:02})/(.*)")), "/api/v00/items/42"),
    ];
    for (name, texts, path) in cases {
        let routes = texts.iter().map(|text| (PathMatch::Pattern, text.as_str().into(), ()));
        let map = PathMap::with_patterns(routes, |text| PathPattern::new(text).ok().map(Arc::new));
        group.bench_function(name, |bencher| {
            bencher.iter(|| black_box(map.find(black_box(path)).expect("a route")));
        });
    }
    let pattern = PathPattern::new("/api(/|$)(.*)").expect("a pattern");
    let target = Target::parse("/inner/$2").expect("a target");
    group.bench_function("rewrite", |bencher| {
        bencher.iter(|| target.fill(&pattern.captures(black_box("/api/v1/items/42")), None).expect("a path"));
    });
    group.finish();
}

fn many(text: impl Fn(usize) -> String) -> Vec<String> {
    (0..100).map(text).collect()
}

criterion_group!(benches, one_change, lookup, patterns);
criterion_main!(benches);

/// As many hosts as `size`, each with an Ingress, a Service and an endpoint of its own.
fn world(size: usize) -> (Store, Arc<Settings>, Compiled) {
    let mut store = Store::new();
    for number in 0..size {
        for object in [service(number), slice(number, 1), ingress(number, "/")] {
            store.apply(Event::Apply(object));
        }
    }
    let settings = Arc::new(Settings::default());
    let changes = store.take_changes();
    let tickets = Tickets::new(settings.ssl_session_timeout).expect("random bytes");
    let empty = Compiled::empty(&settings, &tickets, 0).expect("default settings");
    let compiled = compile(&store, &changes, &settings, &empty, 0);
    (store, settings, compiled)
}

fn name(number: usize) -> String {
    format!("host-{number}.example.com")
}

fn metadata(number: usize) -> Metadata {
    Metadata {
        name: ObjectName::new("bench", format!("web-{number}")),
        created: Some(0),
        labels: Default::default(),
        annotations: Default::default(),
    }
}

fn ingress(number: usize, last_path: &str) -> Object {
    let path = |index, path: &str| IngressPath {
        index,
        path: path.into(),
        kind: PathType::Prefix,
        backend: Backend::Service { name: format!("web-{number}"), port: ServicePortRef::Number(80) },
    };
    let paths = vec![path(0, "/api"), path(1, "/static"), path(2, last_path)];
    Object::Ingress(Ingress {
        metadata: metadata(number),
        class: None,
        default_backend: None,
        tls: Vec::new(),
        rules: vec![IngressRule { index: 0, host: Some(name(number)), paths }],
    })
}

fn service(number: usize) -> Object {
    let port = ServicePort { name: None, port: 80, target: None, app_protocol: None };
    Object::Service(Service {
        metadata: metadata(number),
        kind: ServiceKind::Cluster,
        addresses: Vec::new(),
        ports: vec![port],
    })
}

fn slice(number: usize, last_octet: u8) -> Object {
    let address = [10, 0, 0, last_octet].into();
    Object::EndpointSlice(EndpointSlice {
        metadata: metadata(number),
        service: Some(format!("web-{number}")),
        ports: vec![EndpointPort { name: None, port: Some(8080), app_protocol: None }],
        endpoints: vec![Endpoint {
            addresses: vec![address],
            ready: true,
            serving: true,
            terminating: false,
        }],
    })
}
