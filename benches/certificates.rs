//! What it costs to parse a Secret, to replace one certificate among many, and to find one for a name.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use portcullis::compile::{Compiled, compile};
use portcullis::settings::Settings;
use portcullis::store::objects::{
    Ingress, IngressRule, IngressTls, Metadata, Object, ObjectName, Secret, SecretOrigin, TlsHost, TlsSecret,
};
use portcullis::store::{Event, Store};
use portcullis::tls::keys::KeyPair;
use portcullis::tls::tickets::Tickets;

const SIZES: [usize; 4] = [100, 1_000, 10_000, 100_000];

fn parse(criterion: &mut Criterion) {
    let (chain, key) = pem();
    criterion.bench_function("parse a P-256 pair", |bencher| {
        bencher
            .iter(|| KeyPair::parse(black_box(chain.as_bytes()), black_box(key.as_bytes())).expect("a pair"));
    });
}

fn replace(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("replace");
    let pairs = [pair(), pair()];
    for size in SIZES {
        let (mut store, settings, mut compiled) = world(size, &pairs[0]);
        let mut turn = 0;
        group.bench_function(BenchmarkId::new("one Secret of", size), |bencher| {
            bencher.iter(|| {
                turn += 1;
                store.apply(Event::Apply(secret(size / 2, &pairs[turn % 2])));
                let changes = store.take_changes();
                compiled = compile(&store, &changes, &settings, &compiled, 0);
            });
        });
    }
    group.finish();
}

fn find(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("find");
    let pair = pair();
    for size in SIZES {
        let (_, _, compiled) = world(size, &pair);
        let certificates = &compiled.snapshot.certificates;
        let names: Vec<_> = (0..size).map(name).collect();
        let mut number = 0;
        group.bench_function(BenchmarkId::new("one name of", size), |bencher| {
            bencher.iter(|| {
                number = (number + 7_919) % size;
                black_box(certificates.find(black_box(&names[number])).expect("a certificate"));
            });
        });
    }
    group.finish();
}

criterion_group!(benches, parse, replace, find);
criterion_main!(benches);

/// As many hosts as `size`, each with an Ingress and a Secret of its own.
fn world(size: usize, pair: &Arc<KeyPair>) -> (Store, Arc<Settings>, Compiled) {
    let mut store = Store::new();
    for number in 0..size {
        store.apply(Event::Apply(secret(number, pair)));
        store.apply(Event::Apply(ingress(number)));
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

fn pem() -> (String, String) {
    let made = rcgen::generate_simple_self_signed(["*.example.com".to_owned()]).expect("a certificate");
    (made.cert.pem(), made.signing_key.serialize_pem())
}

fn pair() -> Arc<KeyPair> {
    let (chain, key) = pem();
    Arc::new(KeyPair::parse(chain.as_bytes(), key.as_bytes()).expect("a pair"))
}

fn metadata(number: usize) -> Metadata {
    Metadata {
        name: ObjectName::new("bench", format!("web-{number}")),
        created: Some(0),
        labels: Default::default(),
        annotations: Default::default(),
    }
}

fn secret(number: usize, pair: &Arc<KeyPair>) -> Object {
    Object::Secret(Secret {
        metadata: metadata(number),
        kind: "kubernetes.io/tls".into(),
        origin: SecretOrigin::Object,
        pair: Some(Ok(pair.clone())),
        fields: Default::default(),
        ticket_keys: None,
        authorities: None,
        users: Default::default(),
        client_ca: None,
    })
}

fn ingress(number: usize) -> Object {
    Object::Ingress(Ingress {
        metadata: metadata(number),
        class: None,
        default_backend: None,
        tls: vec![IngressTls {
            index: 0,
            hosts: vec![TlsHost { index: 0, host: name(number) }],
            secret: TlsSecret::Named(format!("web-{number}")),
        }],
        rules: vec![IngressRule { index: 0, host: Some(name(number)), paths: Vec::new() }],
    })
}
