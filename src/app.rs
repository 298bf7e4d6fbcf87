//! Puts a worker generation together and owns every part of it: the control loop on this thread, a thread for
//! each worker, the admin port, and the order in which they start and end.
//!
//! Start: the supervisor gives sockets, sources list, the first snapshot is compiled, and only then, at the
//! supervisor's word, do workers accept: no client ever meets a gateway that knows half of its certificates.
//! End: readiness goes first, then the workers drain. Signals are the supervisor's business.

mod config_map;
mod sockets;
mod stapler;
mod workload_ca;

use std::collections::BTreeMap;
use std::future::pending;
use std::net::TcpListener;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use prometheus_client::registry::Registry;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use crate::admin::view::{PendingRestart, SettingsStatus, SourceStatus, View};
use crate::admin::{self, AdminState};
use crate::admission::{self, Admission, Answer, Question, Review, judge};
use crate::compile::{Compiled, compile};
use crate::diagnostics::{Diagnostic, ObjectRef, Severity};
use crate::net::drain::Closing;
use crate::proxy::worker::{self, WorkerParts};
use crate::settings::choices::{RestartMode, Source};
use crate::settings::load::{Inputs, Loaded};
use crate::settings::reload::{Applied, Reload, Reloader};
use crate::settings::{Change, ChangeCounts, Settings};
use crate::snapshot::shared::Shared;
use crate::sources::directory::Directory;
use crate::sources::kubernetes::{self, Keep, Kubernetes};
use crate::sources::mesh_files::{MeshFiles, MeshPaths};
use crate::sources::origins::Origins;
use crate::sources::{Batch, ObjectFindings, WatchState};
use crate::status::Outbox;
use crate::store::objects::ConfigMap;
use crate::store::{Event, Store};
use crate::supervisor::link::Link;
use crate::supervisor::messages::{FromGeneration, Start, Status, TicketKeys, ToGeneration};
use crate::telemetry::access_log::AccessLogs;
use crate::telemetry::logging::Logging;
use crate::telemetry::worker_stats::WorkerStats;
use crate::tls::client::ClientTls;
use crate::tls::own_identity::OwnIdentity;
use crate::tls::tickets::Tickets;
use sockets::{Sockets, WorkerSockets};
use stapler::Stapler;
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

/// How this generation stands to its supervisor and to the generation before it.
struct Succession {
    link: Rc<Link>,
    generation: u64,
    /// Another generation serves until this one does, and has the admin port.
    succeeds: bool,
    /// The number of the last snapshot before this generation.
    snapshot: u64,
    /// The supervisor knows that this one is ready.
    offered: bool,
    /// The supervisor has said that this one shall serve.
    serving: bool,
    /// Why this one is not ready, as the supervisor was told last.
    waiting: Option<String>,
    /// What all generations are doing, as the supervisor told last.
    status: Status,
    /// The restart-requiring changes that the supervisor was told of last, and whether it may act on them. While
    /// this generation does not serve it would not listen.
    wanted: Vec<Change>,
    mode: RestartMode,
}

impl Succession {
    fn new(link: Rc<Link>, start: &Start) -> Self {
        let mode = RestartMode::Automatic;
        let (offered, serving, waiting) = (false, false, None);
        let (status, wanted) = (Status::default(), Vec::new());
        let (generation, succeeds, snapshot) = (start.generation, start.succeeds, start.snapshot);
        Self { link, generation, succeeds, snapshot, offered, serving, waiting, status, wanted, mode }
    }

    fn tell_settings(&self, settings: &Settings) {
        self.link.tell(&FromGeneration::Settings { settings: Box::new(settings.clone()) });
    }

    fn tell_tickets(&self, tickets: &Tickets) {
        self.link.tell(&FromGeneration::Tickets { keys: TicketKeys::new(tickets.keys_for_successor()) });
    }

    /// Tells that what is pending, or whether it may be restarted for it, has changed.
    fn tell_pending(&mut self, pending: &[Change], mode: RestartMode) {
        if self.wanted != pending || self.mode != mode {
            (self.wanted, self.mode) = (pending.to_vec(), mode);
            if self.serving {
                self.tell_wanted();
            }
        }
    }

    fn tell_wanted(&self) {
        let keys = self.wanted.iter().map(|change| change.key.to_owned()).collect();
        self.link.tell(&FromGeneration::RestartWanted { keys });
    }

    /// Tells what is waited for, for the case that it never comes.
    fn tell_waiting(&mut self, reason: Option<String>) {
        if let Some(reason) = reason.filter(|_| !self.offered)
            && self.waiting.as_ref() != Some(&reason)
        {
            self.link.tell(&FromGeneration::Waiting { reason: reason.clone() });
            self.waiting = Some(reason);
        }
    }
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
    logging: Logging,
    /// What is wrong with files, by file.
    findings: BTreeMap<Arc<PathBuf>, Vec<Diagnostic>>,
    /// What is wrong with objects that don't come from files.
    object_findings: BTreeMap<ObjectRef, Vec<Diagnostic>>,
    /// How the watches of the source are doing, by name.
    watches: BTreeMap<Arc<str>, WatchState>,
    /// What is written to the API server, where there is one.
    outbox: Option<Outbox>,
    origins: Origins,
    /// Where certificates of the mesh are in files.
    mesh_paths: watch::Sender<MeshPaths>,
    synced: bool,
    /// Since when `synced` is as it is, in seconds since the Unix epoch.
    synced_since: i64,
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
    /// The socket of the admission webhook, until it is put to use.
    webhook: Option<TcpListener>,
    webhook_stop: watch::Sender<bool>,
    /// What the webhook asks, and where it does.
    questions: mpsc::Receiver<Question>,
    question_sender: mpsc::Sender<Question>,
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
        let workers = Workers::new(sockets.workers, &shared, ClientTls::mesh(&identity))?;
        let (view, _) = watch::channel(Arc::new(View::default()));
        let (mesh_paths, _) = watch::channel(MeshPaths::of(&settings));
        let (question_sender, questions) = admission::questions();
        Ok(Self {
            store: Store::new(),
            stapler: Stapler::new(&settings),
            ca: WorkloadCa::new(&settings, sockets.ca, &identity),
            settings_sender: watch::channel(settings.clone()).0,
            settings,
            compiled,
            tickets,
            shared,
            logging,
            findings: BTreeMap::new(),
            object_findings: BTreeMap::new(),
            watches: BTreeMap::new(),
            outbox: None,
            origins: Origins::default(),
            mesh_paths,
            synced: false,
            synced_since: now(),
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
            webhook: sockets.webhook,
            webhook_stop: watch::channel(false).0,
            questions,
            question_sender,
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
                    self.apply(first);
                    // What has come in meanwhile is compiled with it.
                    while let Ok(next) = batch.try_recv() {
                        self.apply(next);
                    }
                    self.pass_on_config_map(&config_map_sender);
                    self.compile()?;
                }
                Some(reload) = reload.recv() => self.reload(reload)?,
                Some(question) = self.questions.recv() => self.answer(question),
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
        // What has been asked is answered, and nothing more.
        self.webhook_stop.send_replace(true);
        self.questions.close();
        while let Ok(question) = self.questions.try_recv() {
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

    fn start_admin(&mut self) -> anyhow::Result<()> {
        let Some(listener) = self.admin.take() else { return Ok(()) };
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let mut registry = Registry::default();
        self.stapler.metrics().register(registry.sub_registry_with_prefix("portcullis"));
        if let Some(ca) = &self.ca {
            // Under the names that dashboards for Istio's CA know.
            ca.metrics().register(&mut registry);
        }
        let state = AdminState {
            shared: self.shared.clone(),
            workers: self.workers.stats.clone(),
            access_logs: Some(self.workers.access_logs.clone()),
            registry: Some(Arc::new(registry)),
            view: self.view.subscribe(),
        };
        self.admin_task = Some(tokio::task::spawn_local(admin::serve(listener, Arc::new(state))));
        Ok(())
    }

    /// The first look comes before everything else, so that the first handshake can be verified.
    fn start_mesh_files(&mut self, batches: mpsc::Sender<Batch>) {
        let mut files = MeshFiles::default();
        let paths = self.mesh_paths.subscribe();
        let first = files.look(&paths.borrow());
        self.apply(first);
        tokio::task::spawn_local(files.run(paths, batches));
    }

    fn start_webhook(&mut self) -> anyhow::Result<()> {
        let (Some(listener), Some(api), Some(outbox)) = (self.webhook.take(), &self.api, &self.outbox) else {
            return Ok(());
        };
        let admission = Admission {
            listener: tokio::net::TcpListener::from_std(listener)?,
            api: api.clone(),
            namespace: outbox.namespace().to_owned(),
            settings: self.settings_sender.subscribe(),
            leader: outbox.leader(),
            stop: self.webhook_stop.subscribe(),
        };
        tokio::task::spawn_local(admission.run(self.question_sender.clone()));
        Ok(())
    }

    /// Judges an Ingress that is about to be written. Nothing changes by it.
    fn answer(&mut self, question: Question) {
        let answer = match Review::parse(&question.body) {
            _ if !self.succession.offered => Answer::NotReady,
            Err(error) => Answer::Malformed(error),
            Ok(review) => {
                let verdict = judge(&review, &mut self.store, &self.compiled, &self.settings, now());
                Answer::Review(review.answer(&verdict))
            }
        };
        // Whoever asked may have given up.
        let _ = question.answer.send(answer);
    }

    async fn start_source(&mut self, batches: mpsc::Sender<Batch>) -> anyhow::Result<()> {
        match self.settings.source {
            Source::Directory => {
                if self.settings.manifests.is_empty() {
                    bail!("no manifests: name a folder with --manifests DIR");
                }
                let mut roots = self.settings.manifests.clone();
                roots.extend(self.ca.iter().flat_map(WorkloadCa::source_folders));
                let source = Directory { roots, pem_namespace: self.settings.pem_namespace.clone() };
                self.source = Some(tokio::task::spawn_local(source.run(batches)).abort_handle());
            }
            Source::Kubernetes => {
                let api = kubernetes::connect(self.settings.kubeconfig.as_deref()).await?;
                self.outbox = Some(Outbox::start(api.client().clone(), self.settings.clone()));
                self.api = Some(api.clone());
                let keep =
                    self.kept_objects().map(|folder| Keep { folder, restore: !self.succession.succeeds });
                let source = Kubernetes { api, keep, settings: self.settings_sender.subscribe() };
                self.source = Some(tokio::task::spawn_local(source.run(batches)).abort_handle());
            }
        }
        Ok(())
    }

    /// Where objects are kept on disk.
    fn kept_objects(&self) -> Option<PathBuf> {
        let kept = self.settings.keep_objects && self.settings.source == Source::Kubernetes;
        self.settings.state_dir.as_deref().filter(|_| kept).map(config_map::objects_folder)
    }

    fn apply(&mut self, batch: Batch) {
        if self.synced {
            let objects = |event: &&Event| !matches!(event, Event::Staple(_) | Event::StapleGone(_));
            self.changes.dynamic += batch.events.iter().filter(objects).count() as u64;
        }
        if let Some(outbox) = &mut self.outbox {
            outbox.observe(&batch.events, batch.ingress_statuses, batch.policy_statuses);
        }
        for event in batch.events {
            self.store.apply(event);
        }
        batch.origins.into_iter().for_each(|origin| self.origins.apply(origin));
        for file in batch.findings {
            match file.diagnostics.is_empty() {
                true => drop(self.findings.remove(&file.file)),
                false => drop(self.findings.insert(file.file, file.diagnostics)),
            }
        }
        for ObjectFindings { about, diagnostics } in batch.object_findings {
            match diagnostics.is_empty() {
                true => drop(self.object_findings.remove(&about)),
                false => drop(self.object_findings.insert(about, diagnostics)),
            }
        }
        batch.ended.iter().for_each(|name| drop(self.watches.remove(name)));
        self.watches.extend(batch.states.into_iter().map(|state| (state.name.clone(), state)));
        if batch.synced && !self.synced {
            (self.synced, self.synced_since) = (true, now());
        }
    }

    /// Hands the ConfigMap with settings to whoever reads settings.
    fn pass_on_config_map(&mut self, sender: &watch::Sender<Option<ConfigMap>>) {
        // Before everything is listed, that it is not there means nothing.
        let Some(name) = config_map::name(&self.settings).filter(|_| self.synced) else { return };
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
        if self.synced {
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
            self.tell_published();
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

    /// Tells what the next generation has to count on from.
    fn tell_published(&self) {
        let snapshot = self.shared.load().generation;
        self.succession.link.tell(&FromGeneration::Published { snapshot, changes: self.changes });
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
                self.tell_published();
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

    /// As the supervisor told them. The rest of the view stays as it is: there may be thousands of findings.
    fn publish_generations(&mut self, status: Status) {
        if status.generations.len() == 1
            && self.kept_objects().is_none()
            && let Some(state_dir) = &self.settings.state_dir
        {
            // Now that no generation is left that may have kept some.
            kubernetes::forget(&config_map::objects_folder(state_dir));
        }
        self.view.send_modify(|view| {
            let mut next = View::clone(view);
            next.last_restart_error.clone_from(&status.last_restart_error);
            next.supervisor = status.supervisor;
            next.generations = status.generations.clone();
            *view = Arc::new(next);
        });
        self.succession.status = status;
    }

    fn publish_view(&mut self) {
        let decoding = self.findings.values().chain(self.object_findings.values()).flatten().cloned();
        let compiled = self.compiled.report.all().cloned().map(|finding| self.origins.locate(finding));
        let watches = self.watches.values().filter_map(not_watched);
        let config_map = config_map::name(&self.settings).into_iter();
        let settings = config_map
            .flat_map(|name| config_map::findings(name, &self.succession.wanted, self.rejected.as_deref()));
        let ca = self.ca.as_ref().and_then(|ca| ca.problem().borrow().clone()).map(ca_is_down);
        let mut diagnostics: Vec<_> =
            decoding.chain(compiled).chain(watches).chain(settings).chain(ca).collect();
        diagnostics.sort();
        // What is wrong with a pair is found where it is read and where it is used.
        diagnostics.dedup();
        let diagnostics: Arc<[Diagnostic]> = diagnostics.into();
        if let Some(outbox) = &self.outbox {
            outbox.diagnosed(&diagnostics);
        }
        let view = Arc::new(View {
            ready: self.workers.running() && !self.draining,
            draining: self.draining,
            pending_restart: self.pending.clone(),
            changes: self.changes,
            last_restart_error: self.succession.status.last_restart_error.clone(),
            supervisor: self.succession.status.supervisor,
            generations: self.succession.status.generations.clone(),
            settings: SettingsStatus { loaded: self.loaded, error: self.rejected.clone() },
            started: self.started,
            diagnostics,
            leader: self.outbox.as_ref().map(Outbox::is_leader),
            sources: self.source_status(),
            ..View::default()
        });
        self.succession.tell_waiting(view.unready());
        self.view.send_replace(view);
    }

    fn source_status(&self) -> Vec<SourceStatus> {
        if self.watches.is_empty() {
            let name = self.settings.source.as_str().into();
            return vec![SourceStatus {
                name,
                synced: self.synced,
                since: self.synced_since,
                last_error: None,
                stale_since: None,
            }];
        }
        let status = |watch: &WatchState| SourceStatus {
            name: watch.name.clone(),
            synced: watch.synced,
            since: watch.since,
            last_error: watch.last_error.clone(),
            stale_since: watch.stale_since,
        };
        self.watches.values().map(status).collect()
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

fn ca_is_down(problem: String) -> Diagnostic {
    Diagnostic {
        severity: Severity::Error,
        file: None,
        object: None,
        field: String::new(),
        reason: "WorkloadCaDown",
        message: format!("The workload CA is not up: {problem}."),
    }
}

/// A watch that brings nothing is worth a word: what is served may be old.
fn not_watched(watch: &WatchState) -> Option<Diagnostic> {
    let name = &watch.name;
    let stale = watch.stale_since.and_then(|since| OffsetDateTime::from_unix_timestamp(since).ok());
    let (severity, reason, message) = match (&watch.last_error, stale) {
        (Some(error), Some(since)) => {
            let since = since.format(&Rfc3339).unwrap_or_default();
            let message = format!("{name} are served as they were kept on disk at {since}: {error}.");
            (Severity::Warning, "StaleObjects", message)
        }
        (Some(error), None) => {
            let severity = if watch.synced { Severity::Warning } else { Severity::Error };
            (severity, "NotWatched", format!("Changes to {name} do not arrive: {error}."))
        }
        (None, _) if watch.absent => {
            let message = format!("The API server has no {name}; they are followed once it has.");
            (Severity::Info, "KindNotFound", message)
        }
        (None, _) => return None,
    };
    Some(Diagnostic { severity, file: None, object: None, field: String::new(), reason, message })
}

/// The threads of the data plane.
struct Workers {
    sockets: Vec<WorkerSockets>,
    shared: Shared,
    mesh_tls: ClientTls,
    stats: Vec<Arc<WorkerStats>>,
    access_logs: Arc<AccessLogs>,
    threads: Vec<JoinHandle<()>>,
    stop: watch::Sender<Option<Closing>>,
    /// The names of those that ended.
    ended: mpsc::UnboundedReceiver<String>,
    end: mpsc::UnboundedSender<String>,
}

impl Workers {
    fn new(sockets: Vec<WorkerSockets>, shared: &Shared, mesh_tls: ClientTls) -> anyhow::Result<Self> {
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

    fn running(&self) -> bool {
        !self.threads.is_empty()
    }

    /// Starts them the first time it is called.
    fn start(&mut self) -> anyhow::Result<()> {
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

    /// Tells all to end, and waits for them.
    async fn drain(&mut self, closing: Closing) {
        self.stop.send_replace(Some(closing));
        for _ in 0..self.threads.len() {
            self.ended.recv().await;
        }
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
