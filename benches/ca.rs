//! Signing requests, from PEM to PEM, and Secrets of a fleet: what one core can do.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use portcullis::ca::accounts::{AccountOptions, reconcile_all};
use portcullis::ca::csr::{self, PublicKey};
use portcullis::ca::identity::WorkloadNames;
use portcullis::ca::key::{KeyAlgorithm, PrivateKey};
use portcullis::ca::roots::{RootOptions, load_or_create};
use portcullis::ca::store::Account;
use portcullis::ca::store::directory::Directory;
use portcullis::ca::store::memory::Memory;
use portcullis::store::objects::ObjectName;
use portcullis::tls::spiffe::SpiffeId;
use time::OffsetDateTime;

fn sign(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ca");
    group.throughput(Throughput::Elements(1));
    for algorithm in [KeyAlgorithm::EcdsaP256, KeyAlgorithm::Rsa2048] {
        let folder = tempfile::tempdir().unwrap();
        let store = Directory::new(folder.path(), Vec::new());
        let options = RootOptions { key: algorithm, ..RootOptions::default() };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let now = OffsetDateTime::now_utc();
        let authority = runtime.block_on(load_or_create(&store, &options, now)).unwrap().authority;
        let names = WorkloadNames::of(SpiffeId::new("cluster.local", "shop", "web").unwrap());
        let csr = csr::create(&PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap()).unwrap();
        group.bench_function(format!("sign with {algorithm}"), |bencher| {
            bencher.iter(|| {
                let key = PublicKey::from_csr(black_box(csr.as_bytes())).unwrap();
                let issued = authority.issue(&key, &names, Duration::from_secs(3600), now).unwrap();
                black_box(authority.answer(&issued.leaf))
            });
        });
    }
    group.finish();
}

/// A fleet of 10,000 accounts: every Secret made, then a pass that finds nothing to do.
fn accounts(criterion: &mut Criterion) {
    let store = Memory::default();
    store.contents().accounts = (0..10_000)
        .map(|number| Account { name: ObjectName::new("shop", format!("a{number}")), uid: String::new() })
        .collect();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let now = OffsetDateTime::now_utc();
    let root = runtime.block_on(load_or_create(&store, &RootOptions::default(), now)).unwrap();
    let options = AccountOptions::default();
    let pass = || runtime.block_on(reconcile_all(&store, &root.authority, &options, now)).unwrap();
    let mut group = criterion.benchmark_group("10,000 accounts");
    group.sample_size(10);
    group.bench_function("all Secrets made", |bencher| {
        bencher.iter_batched(
            || store.contents().secrets.retain(|name, _| &*name.namespace != "shop"),
            |()| assert_eq!(pass().created, 10_000),
            BatchSize::PerIteration,
        );
    });
    group.bench_function("nothing to do", |bencher| {
        pass();
        bencher.iter(|| assert!(pass().changed_nothing()));
    });
    group.finish();
}

criterion_group!(benches, sign, accounts);
criterion_main!(benches);
