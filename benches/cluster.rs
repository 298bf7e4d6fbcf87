//! How long a change takes from the API server to the first request that is served by it, among 5,000 Ingresses: with
//! a real API server, and the gateway as a process. Left out where the control plane was not built.
//!
//! `cargo bench --bench cluster` prints one line. Making the Ingresses takes a minute or two.

#![allow(dead_code, reason = "the modules are shared with tests that need more of them")]

#[path = "../tests/cluster/backend.rs"]
mod backend;
#[path = "../tests/cluster/certificates.rs"]
mod certificates;
#[path = "../tests/cluster/control_plane.rs"]
mod control_plane;
#[path = "../tests/cluster/gateway.rs"]
mod gateway;

use std::time::{Duration, Instant};

use k8s_openapi::api::networking::v1::Ingress;
use kube::api::{Api, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;

use backend::Backend;
use control_plane::ControlPlane;
use gateway::Gateway;

const INGRESSES: usize = 5_000;
const CHANGES: usize = 50;

fn main() {
    // `cargo test --benches` only wants to know that it builds.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let Some(plane) = ControlPlane::start() else { return };
    plane.namespace("bench");
    plane.apply(&Backend::start("bench").manifest("bench", "web"));
    let all: Vec<_> = (0..INGRESSES).map(ingress).collect();
    // Few enough at once for what kubectl prints to fit into a pipe.
    for some in all.chunks(500) {
        plane.kubectl_with(&["create", "-f", "-"], &some.join("---\n"));
    }
    let gateway = Gateway::start(&plane.kubeconfig(), &["--log-level=warn"]);
    gateway.expect_http(&host(INGRESSES - 1), 200);

    portcullis::tls::install_provider();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let ingresses: Api<Ingress> = runtime.block_on(async {
        let file = Kubeconfig::read_from(plane.kubeconfig()).expect("a kubeconfig");
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
        Api::namespaced(Client::try_from(config.expect("a configuration")).expect("a client"), "bench")
    });
    let before = cpu(&gateway);
    let mut times: Vec<Duration> = (0..CHANGES)
        .map(|turn| {
            let number = turn * (INGRESSES / CHANGES);
            let host = format!("changed-{turn}.example.com");
            let path = json!({
                "path": "/",
                "pathType": "Prefix",
                "backend": { "service": { "name": "web", "port": { "name": "http" } } },
            });
            let rules = json!([{ "host": host, "http": { "paths": [path] } }]);
            let patch = Patch::Merge(json!({ "spec": { "rules": rules } }));
            let begun = Instant::now();
            let (name, params) = (name(number), PatchParams::default());
            runtime.block_on(ingresses.patch(&name, &params, &patch)).expect("a changed Ingress");
            while gateway.http(&host).map(|answer| answer.status) != Ok(200) {
                std::thread::sleep(Duration::from_millis(1));
            }
            begun.elapsed()
        })
        .collect();
    let spent = cpu(&gateway) - before;
    times.sort();
    println!(
        "{INGRESSES} Ingresses: a change is served after {:?} (median), {:?} (slowest of {CHANGES}), write \
         included; {:.1} ms of CPU each, probing included",
        times[CHANGES / 2],
        times[CHANGES - 1],
        spent * 1000.0 / CHANGES as f64,
    );
}

fn name(number: usize) -> String {
    format!("web-{number}")
}

fn host(number: usize) -> String {
    format!("host-{number}.example.com")
}

fn ingress(number: usize) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{ namespace: bench, name: {} }}\nspec:\n  \
         ingressClassName: portcullis\n  rules:\n  - host: {}\n    http: {{ paths: [{{ path: /, pathType: \
         Prefix, backend: {{ service: {{ name: web, port: {{ name: http }} }} }} }}] }}\n",
        name(number),
        host(number),
    )
}

/// Processor time of the gateway so far, in seconds.
fn cpu(gateway: &Gateway) -> f64 {
    let metrics = gateway.admin("/metrics").expect("metrics").body;
    let line = metrics.lines().find(|line| line.starts_with("process_cpu_seconds_total "));
    line.and_then(|line| line.split(' ').nth(1)?.parse().ok()).expect("a number")
}

/// Asks until the answer is `Ok`.
fn eventually<T>(what: &str, mut ask: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + Duration::from_secs(300);
    loop {
        match ask() {
            Ok(answer) => return answer,
            Err(reason) if Instant::now() > deadline => panic!("{what}: {reason}"),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}
