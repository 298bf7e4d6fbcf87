//! The threads of the data plane: each gets its sockets, its counters and its way to the backends, and all are told
//! to end at once.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use anyhow::Context;
use tokio::sync::{mpsc, watch};

use super::sockets::WorkerSockets;
use crate::net::drain::Closing;
use crate::proxy::limiter::Limiter;
use crate::proxy::worker::{self, WorkerParts};
use crate::snapshot::shared::Shared;
use crate::telemetry::access_log::AccessLogs;
use crate::telemetry::worker_stats::WorkerStats;
use crate::tls::client::{ClientTls, MeshTls};

/// The threads of the data plane.
pub(super) struct Workers {
    sockets: Vec<WorkerSockets>,
    shared: Shared,
    mesh_tls: MeshTls,
    pub stats: Vec<Arc<WorkerStats>>,
    pub access_logs: Arc<AccessLogs>,
    threads: Vec<JoinHandle<()>>,
    stop: watch::Sender<Option<Closing>>,
    /// The names of those that ended.
    pub ended: mpsc::UnboundedReceiver<String>,
    end: mpsc::UnboundedSender<String>,
}

impl Workers {
    pub fn new(sockets: Vec<WorkerSockets>, shared: &Shared, mesh_tls: MeshTls) -> anyhow::Result<Self> {
        let (end, ended) = mpsc::unbounded_channel();
        Ok(Self {
            stats: sockets.iter().map(|_| Arc::default()).collect(),
            sockets,
            shared: shared.clone(),
            mesh_tls,
            access_logs: Arc::new(AccessLogs::start(std::io::stdout())?),
            threads: Vec::new(),
            stop: watch::channel(None).0,
            ended,
            end,
        })
    }

    pub fn running(&self) -> bool {
        !self.threads.is_empty()
    }

    /// Starts them the first time it is called.
    pub fn start(&mut self) -> anyhow::Result<()> {
        let limiter = Arc::<Limiter>::default();
        // All sockets before any worker: a connection that comes in by one of them is soon taken.
        self.sockets.iter().try_for_each(WorkerSockets::start)?;
        for (index, (sockets, stats)) in self.sockets.drain(..).zip(&self.stats).enumerate() {
            let parts = WorkerParts {
                http: sockets.http,
                https: sockets.https,
                mesh: sockets.mesh,
                hbone: sockets.hbone,
                shared: self.shared.clone(),
                stats: stats.clone(),
                access_log: self.access_logs.for_worker(),
                limiter: limiter.clone(),
                // What ingress-nginx does: a backend's certificate is checked where an annotation says so.
                upstream_tls: ClientTls::unverified(),
                mesh_tls: self.mesh_tls.clone(),
                stop: self.stop.subscribe(),
            };
            let name = format!("worker-{index}");
            let ended = Ended(name.clone(), self.end.clone());
            let thread = thread::Builder::new().name(name).spawn(move || {
                let ended = ended;
                if let Err(error) = worker::run(parts) {
                    tracing::error!(%error, worker = ended.0, "worker failed");
                }
            });
            self.threads.push(thread.context("no thread for a worker")?);
        }
        Ok(())
    }

    /// Tells all to end, and waits for them and for what they have logged.
    pub async fn drain(&mut self, closing: Closing) {
        self.stop.send_replace(Some(closing));
        for _ in 0..self.threads.len() {
            self.ended.recv().await;
        }
        self.access_logs.finish();
    }
}

/// Says that a worker has ended, in whatever way it did.
struct Ended(String, mpsc::UnboundedSender<String>);

impl Drop for Ended {
    fn drop(&mut self) {
        // Nobody listens any more when the whole process is ending.
        let _ = self.1.send(std::mem::take(&mut self.0));
    }
}
