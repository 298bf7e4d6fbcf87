//! `portcullis serve`: a small process that owns the listening sockets and runs worker generations on them
//! (`docs/adr/0001-process-model.md`).
//!
//! It knows no objects, speaks no TLS and reads no settings but for its own log: a generation says which sockets
//! it needs and what it runs on. `lifecycle` decides, this module does, `sockets` never closes what is in use.
//! A restart loses nothing: the new generation takes connections from the same sockets before the old one stops.

pub mod channel;
mod generation;
mod image;
pub mod keepsake;
pub mod ledger;
mod lifecycle;
pub mod link;
mod memory;
pub mod messages;
mod retry;
mod service;
mod sockets;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant as Clock};

use anyhow::Context;
use rustix::process::{WaitOptions, wait};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use self::channel::{Channel, ChannelError};
use self::generation::{Generation, Heard};
use self::image::{Image, NextImage};
use self::keepsake::Keepsake;
use self::ledger::{Entry, Ledger};
use self::lifecycle::{Action, Exit, Lifecycle, Role};
use self::messages::{
    Closing, Crash, FromGeneration, GenerationState, GenerationStatus, Listener, Start, Status, TicketKeys,
    ToGeneration,
};
use self::retry::Retry;
use self::service::Service;
use self::sockets::Sockets;
use crate::clock;
use crate::net::inherit;
use crate::settings::Settings;
use crate::settings::choices::RestartMode;
use crate::telemetry::logging::Logging;

/// What a generation may take beyond the time that its settings give connections, before it is killed.
const LAST_MOMENTS: Duration = Duration::from_secs(10);

/// Runs the gateway until it is told to end. `arguments` are those of `serve`; every generation gets them.
///
/// # Errors
/// The system refused something that is needed from the start. Whatever is wrong with the settings is told by the
/// first generation, and ends this process with the same code.
pub fn run(arguments: Vec<OsString>, logging: Rc<Logging>) -> anyhow::Result<ExitCode> {
    let activated = inherit::activated().context("cannot take the sockets from systemd")?;
    let (image, path) = Image::own().context("cannot find this program in /proc")?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default())?;
    let exit = runtime.block_on(async move {
        let (heard, hear) = mpsc::unbounded_channel();
        let supervisor = Supervisor {
            arguments,
            path,
            image,
            next_image: NextImage::None,
            logging,
            lifecycle: Lifecycle::default(),
            generations: BTreeMap::new(),
            sockets: Sockets::new(activated),
            last_good: LastGood::default(),
            status: Status::default(),
            last_crash: None,
            replace_at: None,
            retry: Retry::default(),
            service: Service::default(),
            heard,
        };
        supervisor.run(hear).await
    })?;
    Ok(match exit {
        Exit::Stopped => ExitCode::SUCCESS,
        Exit::Failed(code) => ExitCode::from(code.max(1)),
    })
}

struct Supervisor {
    arguments: Vec<OsString>,
    /// Where an upgrade would lie.
    path: PathBuf,
    /// What a crashed generation is replaced with: the program of the last one that was ready.
    image: Image,
    /// The program of a candidate, until it is ready.
    next_image: NextImage,
    logging: Rc<Logging>,
    lifecycle: Lifecycle,
    generations: BTreeMap<u64, Generation>,
    sockets: Sockets,
    last_good: LastGood,
    /// As it was told last.
    status: Status,
    last_crash: Option<Crash>,
    replace_at: Option<Instant>,
    /// For settings that wait for a new generation.
    retry: Retry,
    service: Service,
    heard: mpsc::UnboundedSender<(u64, Heard)>,
}

/// What the generation that was ready last runs on, for the next one.
#[derive(Default)]
struct LastGood {
    settings: Box<Settings>,
    /// Whether a generation has said what it runs on; else those are the defaults.
    told: bool,
    listeners: Vec<Listener>,
    tickets: Option<TicketKeys>,
    keepsake: Option<Keepsake>,
    /// What was published by those that have gone.
    published: Entry,
}

impl Supervisor {
    async fn run(mut self, mut hear: mpsc::UnboundedReceiver<(u64, Heard)>) -> anyhow::Result<Exit> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hang_up = signal(SignalKind::hangup())?;
        let mut child = signal(SignalKind::child())?;
        let mut actions = self.lifecycle.start();
        loop {
            if let Some(exit) = self.act(actions) {
                return Ok(exit);
            }
            self.tell_status();
            let next = self.next_deadline();
            actions = tokio::select! {
                _ = terminate.recv() => self.stop("SIGTERM"),
                _ = interrupt.recv() => self.stop("SIGINT"),
                _ = hang_up.recv() => self.upgrade(),
                _ = child.recv() => self.reap(),
                Some((number, heard)) = hear.recv() => self.hear(number, heard),
                () = sleep_until(next) => self.time_out(),
            };
        }
    }

    fn stop(&mut self, signal: &str) -> Vec<Action> {
        tracing::info!(signal, "ending: open connections may finish");
        self.service.stopping();
        self.replace_at = None;
        // While the generations end nothing is queued for them any more.
        self.sockets.close();
        self.lifecycle.stop()
    }

    /// SIGHUP: the program on disk and the settings as they are now.
    fn upgrade(&mut self) -> Vec<Action> {
        // Whatever comes of it, systemd waits for the outcome.
        self.service.reloading();
        let begun = self.take_program().map(|()| self.lifecycle.restart());
        let actions = begun.unwrap_or_else(|reason| {
            tracing::error!("SIGHUP without effect: {reason}");
            self.lifecycle.refuse(&reason);
            Vec::new()
        });
        if actions.is_empty() {
            self.service.ready();
        }
        actions
    }

    /// Has the next generation run what lies on disk.
    fn take_program(&mut self) -> Result<(), String> {
        if self.last_good.settings.restart == RestartMode::Off {
            return Err("restarts are off (setting restart)".into());
        }
        let path = self.path.display();
        let image = Image::at(&self.path).map_err(|error| format!("cannot open {path}: {error}"))?;
        tracing::info!(program = %path, "SIGHUP: a new generation is started");
        self.next_image = NextImage::Waiting(image);
        Ok(())
    }

    /// Every child that has ended, also those that are not ours but came to us as process 1.
    fn reap(&mut self) -> Vec<Action> {
        let mut ended = Vec::new();
        while let Ok(Some((pid, exit))) = wait(WaitOptions::NOHANG) {
            let pid = u32::try_from(pid.as_raw_nonzero().get()).unwrap_or_default();
            let ours = self.generations.iter_mut().find(|(_, generation)| generation.pid == pid);
            if let Some((number, generation)) = ours {
                generation.exit = Some(exit);
                ended.push(*number);
            }
        }
        ended.into_iter().flat_map(|number| self.check_end(number)).collect()
    }

    fn hear(&mut self, number: u64, heard: Heard) -> Vec<Action> {
        let Some(generation) = self.generations.get_mut(&number) else { return Vec::new() };
        let (message, descriptors) = match heard {
            Heard::Message(message, descriptors) => (message, descriptors),
            Heard::End => {
                generation.heard_out = true;
                return self.check_end(number);
            }
        };
        match message {
            FromGeneration::Listen { listeners } => self.give_sockets(number, listeners),
            FromGeneration::Settings { settings } => {
                generation.settings = Some(settings);
                if self.lifecycle.state(number) == Some(GenerationState::Serving) {
                    self.take_over(number);
                }
            }
            FromGeneration::Waiting { reason } => generation.waiting_for = Some(reason),
            FromGeneration::Ready => return self.lifecycle.ready(number, Clock::now()),
            FromGeneration::Serving => {
                tracing::info!(generation = number, pid = generation.pid, "serving");
                self.service.ready();
                return self.lifecycle.accepts(number);
            }
            FromGeneration::RestartWanted { keys } => return self.restart_wanted(number, &keys),
            FromGeneration::Tickets { keys } => {
                // One that drains has nothing to say about what comes after it.
                if self.lifecycle.state(number) != Some(GenerationState::Draining) {
                    self.last_good.tickets = Some(keys);
                }
            }
            FromGeneration::Keepsake => {
                // One that starts or drains has nothing that the one that serves does not know better.
                if self.lifecycle.state(number) == Some(GenerationState::Serving) {
                    self.last_good.keepsake = descriptors.into_iter().next().map(Keepsake::from);
                }
            }
            FromGeneration::Draining { connections } => generation.connections = Some(connections),
            FromGeneration::Failed { reason } => generation.failure = Some(reason),
            FromGeneration::Unknown => {}
        }
        Vec::new()
    }

    fn restart_wanted(&mut self, number: u64, keys: &[String]) -> Vec<Action> {
        let serves = self.lifecycle.state(number) == Some(GenerationState::Serving);
        if !serves {
            return Vec::new();
        }
        self.retry = Retry::default();
        if self.last_good.settings.restart != RestartMode::Automatic {
            return Vec::new();
        }
        if keys.is_empty() {
            return match self.next_image {
                NextImage::None => self.lifecycle.no_restart(),
                // An upgrade goes on, with the settings as they are again.
                NextImage::Waiting(_) | NextImage::Trying(..) => self.lifecycle.restart(),
            };
        }
        self.retry = Retry::wanted();
        tracing::info!(settings = keys.join(", "), "changed settings need a new generation: it is started");
        self.lifecycle.restart()
    }

    fn give_sockets(&mut self, number: u64, listeners: Vec<Listener>) {
        let opened = match self.lifecycle.is_stopping() {
            true => return,
            false => self.sockets.open(&listeners),
        };
        let Some(generation) = self.generations.get_mut(&number) else { return };
        let refusal = match opened {
            Ok(()) => {
                let sockets = listeners.iter().map(|listener| (listener, self.sockets.of(listener)));
                generation.give(sockets).err().map(|error| error.to_string())
            }
            Err(error) => Some(error.to_string()),
        };
        match refusal {
            Some(reason) => generation.tell(&ToGeneration::Refused { reason }),
            None => generation.listeners = listeners,
        }
        self.close_unused();
    }

    /// Whether the generation is gone for good, and what follows from it.
    fn check_end(&mut self, number: u64) -> Vec<Action> {
        let Some(ended) = self.generations.get(&number).and_then(|generation| generation.ended(number))
        else {
            return Vec::new();
        };
        let state = self.lifecycle.state(number);
        self.last_good.published = self.published();
        self.generations.remove(&number);
        self.next_image.take(number);
        let actions = self.lifecycle.ended(number, &ended, Clock::now());
        match state {
            Some(GenerationState::Serving) => {
                tracing::error!(reason = ended.reason, "a generation crashed");
                self.last_crash = Some(Crash { reason: ended.reason, at: clock::now() });
            }
            Some(GenerationState::Starting) => {
                // A line for each thing to repair.
                ended.reason.lines().for_each(|line| tracing::error!("not started: {line}"));
            }
            Some(GenerationState::Draining) => tracing::info!(generation = number, "drained"),
            None => {}
        }
        if state == Some(GenerationState::Starting) && self.lifecycle.is_serving() {
            // The start has failed: systemd waits for the outcome.
            self.service.ready();
            self.retry.failed(Instant::now());
        }
        self.close_unused();
        actions
    }

    fn act(&mut self, actions: Vec<Action>) -> Option<Exit> {
        let mut todo = std::collections::VecDeque::from(actions);
        while let Some(action) = todo.pop_front() {
            match action {
                Action::Start(number, role) => todo.extend(self.start(number, role)),
                Action::ReplaceIn(delay) => self.replace_at = Some(Instant::now() + delay),
                Action::Serve(number) => self.serve(number),
                Action::Drain(number) => self.drain(number),
                Action::Kill(number) => {
                    if let Some(generation) = self.generations.get(&number) {
                        generation.kill();
                    }
                }
                Action::Exit(exit) => return Some(exit),
            }
        }
        None
    }

    fn start(&mut self, number: u64, role: Role) -> Vec<Action> {
        match self.spawn(number, role) {
            Ok(generation) => {
                tracing::debug!(generation = number, pid = generation.pid, ?role, "started");
                self.generations.insert(number, generation);
                Vec::new()
            }
            Err(error) => {
                let reason = format!("generation {number}: cannot be started: {error}");
                tracing::error!("{reason}");
                self.next_image.take(number);
                self.retry.failed(Instant::now());
                let ended = lifecycle::Ended { reason, code: Some(1) };
                self.lifecycle.ended(number, &ended, Clock::now())
            }
        }
    }

    fn spawn(&mut self, number: u64, role: Role) -> std::io::Result<Generation> {
        let (ours, theirs) = Channel::pair()?;
        let (published, ledger) = (self.published(), Ledger::new()?);
        let mut image = &self.image;
        if role == Role::Candidate {
            self.service.reloading();
            image = self.next_image.try_with(number).unwrap_or(image);
        }
        let pid = image.start(&self.arguments, theirs)?;
        let mut generation = Generation::new(number, pid, ours, ledger, self.heard.clone())?;
        if role == Role::Candidate {
            generation.deadline = Some(Instant::now() + self.last_good.settings.restart_timeout);
        }
        let start = Start {
            generation: number,
            takes_over: role == Role::Candidate,
            settings: (role == Role::Replacement && self.last_good.told)
                .then(|| self.last_good.settings.clone()),
            tickets: self.last_good.tickets.clone(),
            snapshot: published.snapshot,
            changes: published.changes,
        };
        match generation.start(start, self.last_good.keepsake.as_ref()) {
            // One that has ended already tells why by its exit code.
            Ok(()) | Err(ChannelError::Closed) => Ok(generation),
            Err(error) => {
                // It would wait for ever.
                generation.kill();
                Err(std::io::Error::other(error))
            }
        }
    }

    /// What any generation has published.
    fn published(&self) -> Entry {
        let ledgers = self.generations.values().map(|generation| &generation.ledger);
        ledgers.filter_map(|ledger| ledger.read().ok()).fold(self.last_good.published, Entry::max)
    }

    fn serve(&mut self, number: u64) {
        if let Some(image) = self.next_image.take(number) {
            self.image = image;
        }
        if let Some(generation) = self.generations.get_mut(&number) {
            generation.deadline = None;
            generation.waiting_for = None;
            generation.tell(&ToGeneration::Serve);
        }
        self.retry = Retry::default();
        self.take_over(number);
        // Told with the next change: it has not heard any of it.
        self.status = Status::default();
    }

    /// What this generation runs on is what the next one starts from.
    fn take_over(&mut self, number: u64) {
        let Some(generation) = self.generations.get(&number) else { return };
        self.last_good.listeners.clone_from(&generation.listeners);
        if let Some(settings) = &generation.settings {
            self.logging.set(settings);
            self.last_good.settings.clone_from(settings);
            self.last_good.told = true;
        }
    }

    fn drain(&mut self, number: u64) {
        // Before it is told: it has to be the last one to close what is closed.
        self.close_unused();
        let closing = self.closing();
        let Some(generation) = self.generations.get_mut(&number) else { return };
        let settings = generation.settings.as_ref().unwrap_or(&self.last_good.settings);
        generation.deadline = Some(Instant::now() + settings.worker_shutdown_timeout + LAST_MOMENTS);
        tracing::info!(generation = number, pid = generation.pid, "draining");
        generation.tell(&ToGeneration::Drain { closing });
    }

    /// The addresses that nobody takes connections from once a generation has stopped.
    fn closing(&self) -> Closing {
        if self.lifecycle.is_stopping() {
            return Closing::All;
        }
        let serving = self
            .generations
            .iter()
            .filter(|(n, _)| self.lifecycle.state(**n) == Some(GenerationState::Serving));
        let addresses = serving
            .flat_map(|(_, generation)| &generation.listeners)
            .flat_map(|listener| self.sockets.of(listener))
            .filter_map(|socket| socket.local_addr().ok());
        Closing::AllBut(addresses.collect())
    }

    /// Closes the sockets that neither a living generation nor the next one needs.
    fn close_unused(&mut self) {
        if self.lifecycle.is_stopping() {
            return self.sockets.close();
        }
        let needs = |number: &u64| {
            matches!(
                self.lifecycle.state(*number),
                Some(GenerationState::Starting | GenerationState::Serving)
            )
        };
        let living = self.generations.iter().filter(|(number, _)| needs(number));
        let listeners = living.flat_map(|(_, generation)| &generation.listeners);
        let wanted: Vec<_> = listeners.chain(&self.last_good.listeners).cloned().collect();
        self.sockets.keep(&wanted);
    }

    fn next_deadline(&self) -> Instant {
        const LONG: Duration = Duration::from_secs(3600);
        let deadlines = self.generations.values().filter_map(|generation| generation.deadline);
        deadlines.chain(self.replace_at).chain(self.retry.at()).min().unwrap_or_else(|| Instant::now() + LONG)
    }

    fn time_out(&mut self) -> Vec<Action> {
        let now = Instant::now();
        let mut actions = Vec::new();
        if self.replace_at.take_if(|at| *at <= now).is_some() {
            actions.extend(self.lifecycle.replace());
        }
        if self.retry.take_due(now) {
            tracing::info!("changed settings still need a new generation: it is started again");
            actions.extend(self.lifecycle.restart());
        }
        for (number, generation) in &mut self.generations {
            if generation.deadline.take_if(|at| *at <= now).is_none() {
                continue;
            }
            match self.lifecycle.state(*number) {
                Some(GenerationState::Starting) => {
                    let limit = self.last_good.settings.restart_timeout.as_secs_f32();
                    let waiting =
                        generation.waiting_for.as_deref().unwrap_or("it did not say what it waits for");
                    let reason = format!("generation {number}: not ready within {limit} s: {waiting}");
                    tracing::error!("{reason}");
                    self.retry.failed(now);
                    actions.extend(self.lifecycle.timed_out(*number, reason));
                }
                _ => generation.kill(),
            }
        }
        actions
    }

    /// Tells those that serve how the generations are, if that has changed.
    fn tell_status(&mut self) {
        let generations = self.generations.iter().filter_map(|(number, generation)| {
            Some(GenerationStatus {
                generation: *number,
                pid: generation.pid,
                state: self.lifecycle.state(*number)?,
                connections: generation.connections,
                waiting_for: generation.waiting_for.clone(),
            })
        });
        let status = Status {
            supervisor: std::process::id(),
            generations: generations.collect(),
            last_restart_error: self.lifecycle.last_error().map(str::to_owned),
            last_crash: self.last_crash.clone(),
        };
        if status == self.status {
            return;
        }
        for (number, generation) in &self.generations {
            if self.lifecycle.state(*number) == Some(GenerationState::Serving) {
                generation.tell(&ToGeneration::Status(status.clone()));
            }
        }
        self.status = status;
    }
}
