//! Signing requests: what one core can do, from PEM to PEM.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use portcullis::ca::csr::{self, PublicKey};
use portcullis::ca::identity::WorkloadNames;
use portcullis::ca::key::{KeyAlgorithm, PrivateKey};
use portcullis::ca::roots::{RootOptions, load_or_create};
use portcullis::ca::store::directory::Directory;
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

criterion_group!(benches, sign);
criterion_main!(benches);
