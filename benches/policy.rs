//! What a policy decision costs. The aim is below 1 µs with 100 policies, in the worst case: all of them apply
//! to the workload, and none but the last one matches.

use std::hint::black_box;
use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine;
use criterion::{Criterion, criterion_group, criterion_main};
use portcullis::snapshot::policies::{Authorization, Connection, WorkloadPolicies};
use portcullis::store::objects::document;
use portcullis::tls::spiffe::SpiffeId;
use serde_json::{Value, json};

/// Two ports, and one of two kinds of peer.
fn policy(action: &str, at: usize) -> Arc<Authorization> {
    let peers = json!([
        {"principals": [{"exact": format!("cluster.local/ns/app/sa/web-{at}")}]},
        {"namespaces": [{"prefix": format!("team-{at}-")}]},
    ]);
    with_rules(action, json!([{"matches": [{"destinationPorts": [80, 8080]}]}, {"matches": peers}]))
}

/// An address block that the connection doesn't come from.
fn block(at: u8) -> Arc<Authorization> {
    let address = base64::prelude::BASE64_STANDARD.encode([192, 168, at, 0]);
    with_rules("DENY", json!([{"matches": [{"sourceIps": [{"address": address, "length": 24}]}]}]))
}

fn with_rules(action: &str, rules: Value) -> Arc<Authorization> {
    let document = json!({"name": "policy", "action": action, "groups": [{"rules": rules}]});
    Arc::new(document::from_value(&document).expect("a document that reads"))
}

fn decide(c: &mut Criterion) {
    let peer = SpiffeId::new("cluster.local", "app", "web-99").expect("an identity");
    let address: IpAddr = [10, 0, 0, 5].into();
    let connection = Connection { principal: Some(&peer), source: address, destination: address, port: 8080 };
    let workloads = [
        ("no policy", WorkloadPolicies::default()),
        ("1 ALLOW", WorkloadPolicies::new([policy("ALLOW", 99)])),
        ("100 ALLOW", WorkloadPolicies::new((0..100).map(|at| policy("ALLOW", at)))),
        ("100 address blocks", WorkloadPolicies::new((0..100).map(block))),
        ("50 DENY, 50 ALLOW", {
            let deny = (0..50).map(|at| policy("DENY", at));
            WorkloadPolicies::new(deny.chain((50..100).map(|at| policy("ALLOW", at))))
        }),
    ];
    for (name, workload) in &workloads {
        assert!(workload.decide(&connection).allowed);
        c.bench_function(&format!("decide/{name}"), |b| {
            b.iter(|| workload.decide(black_box(&connection)).allowed)
        });
    }
}

criterion_group!(benches, decide);
criterion_main!(benches);
