pub mod view;
use crate::snapshot::shared::Shared;
use crate::telemetry::access_log::AccessLogs;
use crate::telemetry::worker_stats::WorkerStats;
use std::sync::Arc;
pub struct AdminState {
    pub shared: Shared,
    pub workers: Vec<Arc<WorkerStats>>,
    pub access_logs: Option<Arc<AccessLogs>>,
    pub view: tokio::sync::watch::Receiver<Arc<view::View>>,
}
pub async fn serve(_l: tokio::net::TcpListener, _s: Arc<AdminState>) {
    std::future::pending::<()>().await
}
