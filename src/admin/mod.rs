//! The admin port: health, metrics, a JSON API and a web page, all of them read-only.
//!
//! The app runs [`serve`] on the control runtime, so that nothing asked here can delay a request. There is no
//! authentication: the port listens on the loopback address unless told otherwise, answers no host name that
//! it was not told, and has neither keys nor Secret values to give away.

mod api;
mod certificates;
#[cfg(test)]
mod fixtures;
mod metrics;
mod page;
mod policies;
mod server;
#[cfg(test)]
mod tests;
pub mod view;

use std::sync::Arc;

use prometheus_client::registry::Registry;
use tokio::sync::watch;

pub use self::server::serve;
use self::view::View;
use crate::snapshot::Snapshot;
use crate::snapshot::hosts::{Host, Route};
use crate::snapshot::shared::Shared;
use crate::telemetry::access_log::AccessLogs;
use crate::telemetry::histogram::Histogram;
use crate::telemetry::worker_stats::WorkerStats;

/// What the admin port shows.
pub struct AdminState {
    pub shared: Shared,
    pub workers: Vec<Arc<WorkerStats>>,
    pub access_logs: Option<Arc<AccessLogs>>,
    /// How long changes took from when they were taken up to the snapshot that holds them, in microseconds.
    pub applied: Arc<Histogram>,
    /// Metrics of parts that keep their own, such as the workload CA.
    pub registry: Option<Arc<Registry>>,
    pub view: watch::Receiver<Arc<View>>,
}

impl AdminState {
    fn view(&self) -> Arc<View> {
        self.view.borrow().clone()
    }
}

fn hosts(snapshot: &Snapshot) -> impl Iterator<Item = &Host> {
    let map = &snapshot.hosts;
    map.exact.values().chain(map.wildcard.values()).chain(&map.any).map(|host| &**host)
}

fn routes(snapshot: &Snapshot) -> impl Iterator<Item = &Route> {
    hosts(snapshot).flat_map(|host| host.routes.iter()).map(|route| &**route)
}
