//! Puts a worker generation together and owns every part of it: the control loop on this thread, a thread for
//! each worker, the admin port, and the order in which they start and end.
//!
//! Start: the supervisor gives sockets, sources list, the first snapshot is compiled, and only then, at the
//! supervisor's word, do workers accept: no client ever meets a gateway that knows half of its certificates.
//! End: readiness goes first, then the workers drain. Signals are the supervisor's business.

mod config_map;
mod sockets;
mod source_state;
mod stapler;
mod start;
mod succession;
mod view;
mod webhook;
mod workers;
mod workload_ca;

use std::future::pending;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::bail;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use crate::admin::view::{PendingRestart, View};
use crate::compile::{Compiled, compile};
use crate::net::drain::Closing;
use crate::settings::load::{Inputs, Loaded};
use crate::settings::reload::{Applied, Reload, Reloader};
use crate::settings::{ChangeCounts, Settings};
use crate::snapshot::shared::Shared;
use crate::sources::Batch;
use crate::sources::kubernetes;
use crate::sources::mesh_files::MeshPaths;
use crate::status::Outbox;
use crate::store::objects::ConfigMap;
use crate::store::{Event, Store};
use crate::supervisor::ledger::Entry;
use crate::supervisor::link::Link;
use crate::supervisor::messages::{FromGeneration, Start, ToGeneration};
use crate::telemetry::histogram::{APPLY_BOUNDS, Histogram};
use crate::telemetry::logging::Logging;
use crate::tls::client::MeshTls;
use crate::tls::own_identity::OwnIdentity;
use crate::tls::tickets::Tickets;
use sockets::Sockets;
use source_state::SourceState;
use stapler::Stapler;
use succession::Succession;
use webhook::Webhook;
use workers::Workers;
use workload_ca::WorkloadCa;

/// Batches of events that may wait for the control loop.
const BATCHES: usize = 64;
/// Ticket keys change this often, or as often as sessions last where that is longer.
const TICKET_ROTATION: Duration = Duration::from_secs(3600);

/// How often the supervisor is told what is left to drain.
const DRAIN_REPORT: Duration = Duration::from_millis(500);

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
    for notice in &loaded.notices {
        tracing::warn!(key = notice.key, origin = %notice.origin, "{}", notice.message);
    }
    let sockets = Sockets::from_supervisor(&settings, &link)?;
    let tickets = Tickets::new(settings.ssl_session_timeout)?;
    if let Some(keys) = &start.tickets {
        tickets.take_over(keys.as_str());
    }
    let compiled = Compiled::empty(&settings, &tickets, now())?;
    let succession = Succession::new(link, start);
    let mut control = Control::new(settings, compiled, tickets, sockets, logging, succession)?;
    control.changes = start.changes;
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
    pending: Vec<PendingRestart>,
    /// How much has changed, in this generation and those before.
    changes: ChangeCounts,
    rejected: Option<String>,
    /// When the process started and when settings were last taken over, in seconds since the Unix epoch.
    started: i64,
    loaded: i64,
    view: watch::Sender<Arc<View>>,
    workers: Workers,
    admin: Option<TcpListener>,
    admin_task: Option<tokio::task::JoinHandle<()>>,
    /// The source of objects.
    source: Option<tokio::task::AbortHandle>,
    /// Whether the ConfigMap with settings was passed on, or that there is none.
    config_map_known: bool,
    /// The API server, where there is one.
    api: Option<kubernetes::Api>,
    webhook: Webhook,
    succession: Succession,
}

impl Control {
    fn new(
        settings: Arc<Settings>,
        compiled: Compiled,
        tickets: Arc<Tickets>,
        sockets: Sockets,
        logging: Logging,
        succession: Succession,
    ) -> anyhow::Result<Self> {
        let shared = Shared::new(Arc::new(compiled.snapshot.clone()));
        let identity = OwnIdentity::default();
        let workers = Workers::new(sockets.workers, &shared, MeshTls::new(&identity))?;
        let (view, _) = watch::channel(Arc::new(View::default()));
        let (mesh_paths, _) = watch::channel(MeshPaths::of(&settings));
        Ok(Self {
            store: Store::new(),
            stapler: Stapler::new(&settings),
            ca: WorkloadCa::new(&settings, sockets.ca, &identity),
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
            pending: Vec::new(),
            changes: ChangeCounts::default(),
            rejected: None,
            started: now(),
            loaded: now(),
            view,
            workers,
            admin: Some(sockets.admin),
            admin_task: None,
            source: None,
            config_map_known: false,
            api: None,
            webhook: Webhook::new(sockets.webhook),
            succession,
        })
    }

    async fn run(mut self, inputs: Inputs, loaded: Loaded) -> anyhow::Result<()> {
        let _ignored = ignore_signals()?;
        let supervisor = self.succession.link.messages()?;
        let (batches, mut batch) = mpsc::channel(BATCHES);
        let (reloads, mut reload) = mpsc::channel(4);
        let (config_map_sender, mut config_map) = watch::channel(inputs.config_map.clone());
        if !self.succession.succeeds {
            self.start_admin()?;
        }
        self.stapler.start(batches.clone());
        self.succession.tell_tickets(&self.tickets);
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
            let recheck = self.recheck_at();
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
                    self.compile()?;
                    if self.shared.load().generation != before {
                        self.applied.observe(u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX));
                    }
                }
                Some(reload) = reload.recv() => self.reload(reload)?,
                Some(question) = self.webhook.questions.recv() => self.answer(question),
                () = leader_changed(self.outbox.as_mut()) => self.publish_view(),
                () = changed(ca_problem.as_mut()) => self.publish_view(),
                () = sleep_until(recheck) => self.compile()?,
                () = sleep_until(rotate_tickets) => {
                    // Keys that replicas share are rotated by whoever writes their Secret.
                    if self.compiled.ticket_keys.is_none() {
                        self.tickets.rotate()?;
                        self.succession.tell_tickets(&self.tickets);
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
        self.succession.serving = true;
        self.succession.link.tell(&FromGeneration::Serving);
        if !self.succession.wanted.is_empty() {
            self.succession.tell_wanted();
        }
        self.publish_view();
        Ok(())
    }

    /// Lets connections finish. The supervisor ends it if it takes too long.
    async fn drain(&mut self, closing: Closing) {
        tracing::info!(generation = self.succession.generation, "draining: connections are let finish");
        self.draining = true;
        // Nothing is compiled any more, and what is kept on disk is the next generation's to keep.
        if let Some(source) = self.source.take() {
            source.abort();
        }
        self.publish_view();
        if closing != Closing::All
            && let Some(admin) = self.admin_task.take()
        {
            // The next generation answers there.
            admin.abort();
        }
        self.webhook.stop();
        while let Ok(question) = self.webhook.questions.try_recv() {
            self.answer(question);
        }
        if let Some(outbox) = self.outbox.take() {
            outbox.end(closing == Closing::All).await;
        }
        let ca = self.ca.take();
        let stats = self.workers.stats.clone();
        let connections = || stats.iter().map(|worker| worker.connections.get()).sum();
        let link = &self.succession.link;
        let ended = async move {
            if let Some(ca) = ca {
                ca.end().await;
            }
        };
        let mut drained = std::pin::pin!(async { tokio::join!(ended, self.workers.drain(closing)) });
        loop {
            link.tell(&FromGeneration::Draining { connections: connections() });
            if tokio::time::timeout(DRAIN_REPORT, &mut drained).await.is_ok() {
                return;
            }
        }
    }

    fn apply(&mut self, mut batch: Batch) {
        if self.sources.synced {
            let objects = |event: &&Event| !matches!(event, Event::Staple(_) | Event::StapleGone(_));
            self.changes.dynamic += batch.events.iter().filter(objects).count() as u64;
        }
        self.sources.take(&mut batch, now());
        if let Some(outbox) = &mut self.outbox {
            outbox.observe(&batch.events, batch.ingress_statuses, batch.policy_statuses);
        }
        for event in batch.events {
            self.store.apply(event);
        }
    }

    /// Hands the ConfigMap with settings to whoever reads settings.
    fn pass_on_config_map(&mut self, sender: &watch::Sender<Option<ConfigMap>>) {
        // Before everything is listed, that it is not there means nothing.
        let Some(name) = config_map::name(&self.settings).filter(|_| self.sources.synced) else { return };
        let now = self.store.config_map(name).map(|config_map| ConfigMap::clone(config_map));
        let first = !std::mem::replace(&mut self.config_map_known, true);
        sender.send_if_modified(|before| {
            let changed = *before != now;
            *before = now;
            changed || first
        });
    }

    /// Brings what workers serve up to date. Until every source has listed once, nothing is served at all.
    fn compile(&mut self) -> anyhow::Result<()> {
        if self.sources.synced {
            self.compile_changes();
            if !self.succession.offered {
                let staples = self.stapler.restore(self.compiled.wanted_staples());
                staples.into_iter().for_each(|staple| self.store.apply(staple));
                self.compile_changes();
            }
            self.share_ticket_keys();
            if self.shared.load().generation != self.compiled.snapshot.generation {
                self.shared.publish(Arc::new(self.compiled.snapshot.clone()));
            }
            self.note_published();
            self.offer();
        }
        self.publish_view();
        Ok(())
    }

    /// Sessions are encrypted with the keys that replicas share, where they do.
    fn share_ticket_keys(&self) {
        if let Some(keys) = &self.compiled.ticket_keys
            && self.tickets.share(keys)
        {
            tracing::info!(keys = keys.len(), "session ticket keys of the Secret are in use");
            self.succession.tell_tickets(&self.tickets);
        }
    }

    /// Notes what the next generation has to count on from.
    fn note_published(&self) {
        let snapshot = self.shared.load().generation;
        self.succession.link.note(&Entry { snapshot, changes: self.changes });
    }

    fn compile_changes(&mut self) {
        let (changes, now) = (self.store.take_changes(), now());
        if !self.compiled.is_current(&changes, &self.settings, now) {
            let first = self.compiled.snapshot.generation == 0;
            self.compiled = compile(&self.store, &changes, &self.settings, &self.compiled, now);
            if first {
                // Numbers go on where the generation before has got to.
                self.compiled.snapshot.generation += self.succession.snapshot;
            }
            self.stapler.follow(&self.compiled.staple_demand);
        }
        if let Some(outbox) = &mut self.outbox {
            outbox.compiled(&self.store, &self.settings, &changes, self.compiled.policies());
        }
    }

    /// Tells the supervisor, once, that this generation could serve.
    fn offer(&mut self) {
        if !std::mem::replace(&mut self.succession.offered, true) {
            self.succession.tell_settings(&self.settings);
            self.succession.link.tell(&FromGeneration::Ready);
        }
    }

    fn reload(&mut self, reload: Reload) -> anyhow::Result<()> {
        match reload {
            Reload::Applied(Applied { settings, changes, pending, notices }) => {
                for change in &changes {
                    tracing::info!(key = change.key, old = %change.old, new = %change.new, "setting changed");
                }
                for notice in &notices {
                    tracing::warn!(key = notice.key, origin = %notice.origin, "{}", notice.message);
                }
                self.changes.add(&changes);
                // Before anything is said that a new generation may be started for.
                self.note_published();
                self.rejected = None;
                self.loaded = now();
                self.pending = pending.iter().map(PendingRestart::from).collect();
                self.logging.set(&settings);
                self.succession.tell_settings(&settings);
                self.succession.tell_pending(&pending, settings.restart);
                self.tickets.set_lifetime(settings.ssl_session_timeout);
                self.stapler.set(&settings);
                self.mesh_paths.send_replace(MeshPaths::of(&settings));
                self.settings_sender.send_replace(settings.clone());
                self.settings = settings;
                self.compile()
            }
            Reload::Rejected(error) => {
                tracing::error!(%error, "settings not changed: the last good ones stay");
                self.rejected = Some(error.to_string());
                self.changes.rejected += 1;
                self.note_published();
                self.publish_view();
                Ok(())
            }
        }
    }

    fn recheck_at(&self) -> Instant {
        const NEVER: Duration = Duration::from_secs(24 * 3600);
        let wait = self.compiled.recheck_at().map(|at| u64::try_from(at - now()).unwrap_or(0));
        Instant::now() + wait.map_or(NEVER, Duration::from_secs)
    }
}

async fn leader_changed(outbox: Option<&mut Outbox>) {
    match outbox {
        Some(outbox) => outbox.leader_changed().await,
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

/// Seconds since the Unix epoch.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
