//! Puts a worker generation together and owns every part of it: the control loop on this thread, a thread for
//! each worker, the admin port, and the order in which they start and end.
//!
//! Start: the supervisor gives sockets, sources list, the first snapshot is compiled, and only then, at the
//! supervisor's word, do workers accept: no client ever meets a gateway that knows half of its certificates.
//! End: readiness goes first, then the workers drain. Signals are the supervisor's business.

mod config_map;
mod drain;
mod edits;
mod findings;
mod handover;
mod kept;
mod publish;
mod replaced;
mod sockets;
mod source_state;
mod stapler;
mod start;
mod view;
mod webhook;
mod workers;
mod workload_ca;

use std::future::pending;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use crate::admin::view::View;
use crate::api_server::Api;
use crate::clock::now;
use crate::compile::Compiled;
use crate::net::drain::Closing;
use crate::pod::PodIdentity;
use crate::settings::load::{Inputs, Loaded};
use crate::settings::reload::Reloader;
use crate::settings::{ChangeCounts, Settings};
use crate::snapshot::shared::Shared;
use crate::sources::mesh_files::MeshPaths;
use crate::status::Outbox;
use crate::store::Store;
use crate::supervisor::link::Link;
use crate::supervisor::messages::{FromGeneration, Start, ToGeneration};
use crate::telemetry::histogram::{APPLY_BOUNDS, Histogram};
use crate::telemetry::logging::Logging;
use crate::tls::client::MeshTls;
use crate::tls::own_identity::OwnIdentity;
use crate::tls::tickets::Tickets;
use edits::Edits;
use findings::Findings;
use handover::Handover;
use kept::Kept;
use sockets::Sockets;
use source_state::SourceState;
use stapler::Stapler;
pub use start::NoManifests;
use webhook::Webhook;
use workers::Workers;
use workload_ca::WorkloadCa;

/// Batches of events that may wait for the control loop.
const BATCHES: usize = 64;
/// Ticket keys change this often, or as often as sessions last where that is longer.
const TICKET_ROTATION: Duration = Duration::from_secs(3600);

/// Runs a worker generation until its supervisor tells it to end, or is gone itself.
///
/// # Errors
/// It could not start: a port in use, a setting that cannot be honoured.
pub fn serve(
    mut inputs: Inputs,
    loaded: Loaded,
    logging: Logging,
    link: Rc<Link>,
    start: &Start,
) -> anyhow::Result<()> {
    raise_file_limit();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default())?;
    if let Some(name) = config_map::name(&loaded.settings) {
        // For the case that it takes too long.
        link.tell(&FromGeneration::Waiting { reason: format!("waiting for ConfigMap {name}") });
    }
    let loaded = runtime.block_on(config_map::load(&mut inputs, loaded, start))?;
    logging.set(&loaded.settings);
    let settings = Arc::new(loaded.settings.clone());
    edits::log_notices(&loaded.notices);
    start::make_state_dir(&settings);
    let sockets = Sockets::from_supervisor(&settings, &link)?;
    let tickets = Tickets::new(settings.ssl_session_timeout)?;
    if let Some(keys) = &start.tickets {
        tickets.take_over(keys.as_str());
    }
    let mut compiled = Compiled::empty(&settings, &tickets, now())?;
    let kept = Kept::from_predecessor(&link);
    kept.hand_to(&mut compiled);
    let handover = Handover::new(link, start);
    let mut control = Control::new(settings, compiled, tickets, sockets, logging, handover)?;
    control.changes = start.changes;
    control.kept = kept;
    control.edits.file = inputs.file.clone().map(Arc::new);
    runtime.block_on(control.run(inputs, loaded))
}

/// The control loop's own state: all that is mutable above the data plane.
struct Control {
    store: Store,
    settings: Arc<Settings>,
    /// The same, for sources that go by them.
    settings_sender: watch::Sender<Arc<Settings>>,
    compiled: Compiled,
    tickets: Arc<Tickets>,
    stapler: Stapler,
    /// Where the settings ask for one.
    ca: Option<WorkloadCa>,
    shared: Shared,
    /// How long changes took to be in a snapshot, in microseconds.
    applied: Arc<Histogram>,
    logging: Logging,
    /// What sources told beside objects.
    sources: SourceState,
    /// What is written to the API server, where there is one.
    outbox: Option<Outbox>,
    /// Where certificates of the mesh are in files.
    mesh_paths: watch::Sender<MeshPaths>,
    draining: bool,
    /// How much has changed, in this generation and those before.
    changes: ChangeCounts,
    edits: Edits,
    findings: Findings,
    /// Certificates for the next generation.
    kept: Kept,
    /// When the process started, in seconds since the Unix epoch.
    started: i64,
    view: watch::Sender<Arc<View>>,
    workers: Workers,
    pod: PodIdentity,
    admin: Option<TcpListener>,
    admin_task: Option<tokio::task::JoinHandle<()>>,
    /// The source of objects.
    source: Option<tokio::task::AbortHandle>,
    /// Whether the ConfigMap with settings was passed on, or that there is none.
    config_map_known: bool,
    /// The API server, where there is one.
    api: Option<Api>,
    webhook: Webhook,
    handover: Handover,
}

impl Control {
    fn new(
        settings: Arc<Settings>,
        compiled: Compiled,
        tickets: Arc<Tickets>,
        sockets: Sockets,
        logging: Logging,
        handover: Handover,
    ) -> anyhow::Result<Self> {
        let shared = Shared::new(Arc::new(compiled.snapshot.clone()));
        let (identity, pod) = (OwnIdentity::default(), PodIdentity::from_environment());
        let workers = Workers::new(sockets.workers, &shared, MeshTls::new(&identity))?;
        let (view, _) = watch::channel(Arc::new(View::default()));
        let (mesh_paths, _) = watch::channel(MeshPaths::of(&settings));
        Ok(Self {
            store: Store::new(),
            stapler: Stapler::new(&settings),
            ca: WorkloadCa::new(&settings, sockets.ca, &identity, &pod),
            settings_sender: watch::channel(settings.clone()).0,
            settings,
            compiled,
            tickets,
            shared,
            applied: Arc::new(Histogram::new(&APPLY_BOUNDS)),
            logging,
            sources: SourceState::new(now()),
            outbox: None,
            mesh_paths,
            draining: false,
            changes: ChangeCounts::default(),
            edits: Edits::new(now()),
            findings: Findings::default(),
            kept: Kept::default(),
            started: now(),
            view,
            workers,
            pod,
            admin: Some(sockets.admin),
            admin_task: None,
            source: None,
            config_map_known: false,
            api: None,
            webhook: Webhook::new(sockets.webhook),
            handover,
        })
    }

    async fn run(mut self, inputs: Inputs, loaded: Loaded) -> anyhow::Result<()> {
        let _ignored = ignore_signals()?;
        let supervisor = self.handover.link.messages()?;
        let (batches, mut batch) = mpsc::channel(BATCHES);
        let (reloads, mut reload) = mpsc::channel(4);
        let (config_map_sender, mut config_map) = watch::channel(inputs.config_map.clone());
        if !self.handover.takes_over {
            self.start_admin()?;
        }
        self.stapler.start(batches.clone());
        self.handover.tell_tickets(&self.tickets);
        self.start_mesh_files(batches.clone());
        self.start_source(batches).await?;
        let awaited = config_map::name(&self.settings).is_some() && inputs.config_map.is_none();
        let reloader = Reloader::new(inputs, loaded);
        tokio::task::spawn_local(async move {
            // Settings that are in force, after a crash, would be taken back without the ConfigMap they are from.
            if !awaited || config_map.changed().await.is_ok() {
                reloader.run(config_map, reloads).await;
            }
        });
        let mut rotate_tickets = Instant::now() + TICKET_ROTATION;
        let mut ca_problem = self.ca.as_ref().map(WorkloadCa::problem);
        self.publish_view();

        let closing = loop {
            let recheck = Instant::now() + next_look(self.compiled.recheck_at(), now());
            tokio::select! {
                message = supervisor.next() => match message {
                    Some(ToGeneration::Serve) => self.start_serving()?,
                    Some(ToGeneration::Status(status)) => self.publish_generations(status),
                    Some(ToGeneration::Drain { closing }) => break closing,
                    Some(_) => {}
                    None => {
                        tracing::error!("the supervisor has gone: this generation ends as well");
                        break Closing::All;
                    }
                },
                Some(first) = batch.recv() => {
                    let (begun, before) = (Instant::now(), self.shared.load().generation);
                    self.apply(first);
                    // What has come in meanwhile is compiled with it.
                    while let Ok(next) = batch.try_recv() {
                        self.apply(next);
                    }
                    self.pass_on_config_map(&config_map_sender);
                    self.compile();
                    if self.shared.load().generation != before {
                        self.applied.observe(u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX));
                    }
                }
                Some(reload) = reload.recv() => self.reload(reload),
                Some(question) = self.webhook.questions.recv() => self.answer(question),
                () = outbox_changed(self.outbox.as_mut()) => self.publish_view(),
                () = changed(ca_problem.as_mut()) => self.publish_view(),
                () = sleep_until(recheck) => self.recheck(),
                () = sleep_until(rotate_tickets) => {
                    // Keys that replicas share are rotated by whoever writes their Secret.
                    if self.compiled.ticket_keys.is_none() {
                        self.tickets.rotate()?;
                        self.handover.tell_tickets(&self.tickets);
                    }
                    rotate_tickets = Instant::now() + TICKET_ROTATION.max(self.settings.ssl_session_timeout);
                }
                Some(name) = self.workers.ended.recv() => bail!("{name} ended by itself"),
            }
        };
        self.drain(closing).await;
        Ok(())
    }

    /// Puts the sockets to use: the supervisor has heard that this generation is ready, and has agreed.
    fn start_serving(&mut self) -> anyhow::Result<()> {
        self.workers.start()?;
        self.start_admin()?;
        if let Some(ca) = &mut self.ca {
            ca.start()?;
        }
        self.start_webhook()?;
        self.handover.serving = true;
        self.handover.link.tell(&FromGeneration::Serving);
        self.kept.leave(&self.handover.link);
        if !self.handover.wanted.is_empty() {
            self.handover.tell_wanted();
        }
        self.publish_view();
        Ok(())
    }
}

/// For how long nothing has to be looked at, at `now`, where something is due at `due`, both in seconds since the Unix
/// epoch. The clock can be set, and sleeps do not count the time of a suspended machine: it is looked at again before.
fn next_look(due: Option<i64>, now: i64) -> Duration {
    const NEVER: Duration = Duration::from_secs(24 * 3600);
    const AT_MOST: Duration = Duration::from_secs(30);
    let wait = |due: i64| Duration::from_secs(u64::try_from(due.saturating_sub(now)).unwrap_or(0));
    due.map_or(NEVER, |due| wait(due).min(AT_MOST))
}

async fn outbox_changed(outbox: Option<&mut Outbox>) {
    match outbox {
        Some(outbox) => outbox.changed().await,
        None => pending().await,
    }
}

/// Waits for another value; for ever where there is none to come.
async fn changed<T>(value: Option<&mut watch::Receiver<T>>) {
    let alive = match value {
        Some(value) => value.changed().await.is_ok(),
        None => false,
    };
    if !alive {
        pending().await
    }
}

/// Keeps signals that are meant for the supervisor, as Ctrl-C sends them to every process of a terminal, from
/// ending this one. For as long as the answer lives.
fn ignore_signals() -> std::io::Result<[Signal; 3]> {
    Ok([signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?, signal(SignalKind::hangup())?])
}

/// As many open files as the system lets us have: each connection is one, each backend connection another.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_later_is_looked_at_before_for_the_clock_may_be_set() {
        let seconds = Duration::from_secs;
        assert_eq!(next_look(Some(1_005), 1_000), seconds(5));
        assert_eq!(next_look(Some(5_000), 1_000), seconds(30));
        assert_eq!(next_look(Some(900), 1_000), Duration::ZERO);
        assert_eq!(next_look(Some(i64::MIN), i64::MAX), Duration::ZERO);
        assert!(next_look(None, 1_000) > seconds(3_600));
    }
}
