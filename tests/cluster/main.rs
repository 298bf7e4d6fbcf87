//! The gateway in a cluster: against a real API server with etcd, driven with kubectl.
//!
//! The control plane is built by `e2e/controlplane/build.sh`. Where it is missing these tests say so and are left
//! out; in CI they fail. Tests share one control plane and keep to a namespace each; those that break it have one
//! of their own.

mod backend;
mod balancer;
mod certificates;
mod control_plane;
mod gateway;

mod admission;
mod ca;
mod classes;
mod client_certificates;
mod conformance;
mod hbone;
mod kept;
mod ocsp;
mod outage;
mod policies;
mod proxy;
mod replicas;
mod rights;
mod rotation;
mod scope;
mod secrets;
mod settings;
mod shipping;
mod status;

use std::time::{Duration, Instant};

/// Asks until the answer is `Ok`, for as long as the slowest machine may take; the last `Err` is the reason.
fn eventually<T>(what: &str, ask: impl FnMut() -> Result<T, String>) -> T {
    within(Duration::from_secs(60), what, ask)
}

/// The same, for what takes longer by design.
fn within<T>(patience: Duration, what: &str, mut ask: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + patience;
    loop {
        match ask() {
            Ok(answer) => return answer,
            Err(reason) if Instant::now() > deadline => panic!("{what}: {reason}"),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}
