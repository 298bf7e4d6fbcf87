//! The loop behind [`super::run`]: timers, places, attempts under way, and the events still to be told.
//!
//! Attempts are timed with the monotonic clock, ends of staples with the wall clock. The wall clock is looked at
//! again at least every [`RECHECK`], because it may be set.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustls_pki_types::CertificateDer;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::entry::Entry;
use super::fetch::FetchError;
use super::queue::{Place, Queue, Ticket};
use super::{Cache, Environment, OcspSettings, Update, Wanted};
use crate::store::Event;
use crate::tls::ocsp::Staple;

/// The longest sleep between two looks at the wall clock.
const RECHECK: Duration = Duration::from_secs(30);
/// Certificates per trip to the disk. More trips let the first staples arrive sooner.
const LOAD_BATCH: usize = 64;

type Fingerprint = [u8; 32];

pub struct Task {
    environment: Environment,
    cache: Option<Cache>,
    settings: Arc<OcspSettings>,
    entries: HashMap<Fingerprint, Slot>,
    /// When to ask about whom.
    timers: BTreeSet<(Instant, Fingerprint)>,
    /// When whose staple ends, in seconds since 1970.
    ends: BTreeSet<(u64, Fingerprint)>,
    queue: Queue,
    jobs: JoinSet<Job>,
    /// Attempts among `jobs`.
    running: HashMap<Id, Attempt>,
    /// Certificates whose event is still to be told, in order and without repetition.
    outbox: VecDeque<Fingerprint>,
    untold: HashSet<Fingerprint>,
    tickets: u64,
}

/// An entry with its place in the task's indexes.
struct Slot {
    entry: Entry,
    /// Distinguishes this entry from an earlier one with the same fingerprint.
    ticket: u64,
    timer: Option<Instant>,
    ends: Option<u64>,
    attempt: Option<AbortHandle>,
}

struct Attempt {
    place: Place,
    started: Instant,
}

/// What a finished job brings.
enum Job {
    Loaded(Vec<(Ticket, Option<Staple>)>),
    Answered(Result<Bytes, FetchError>),
    Done,
}

impl Task {
    pub fn new(environment: Environment, cache: Option<Cache>, settings: OcspSettings) -> Self {
        Self {
            environment,
            cache,
            settings: Arc::new(settings),
            entries: HashMap::new(),
            timers: BTreeSet::new(),
            ends: BTreeSet::new(),
            queue: Queue::default(),
            jobs: JoinSet::new(),
            running: HashMap::new(),
            outbox: VecDeque::new(),
            untold: HashSet::new(),
            tickets: 0,
        }
    }

    pub async fn run(mut self, mut updates: mpsc::UnboundedReceiver<Update>, events: mpsc::Sender<Event>) {
        self.sweep_cache();
        loop {
            self.drop_ended();
            self.queue_due();
            self.start_attempts();
            let wake = self.next_wake();
            tokio::select! {
                update = updates.recv() => match update {
                    Some(update) => self.update(update),
                    None => return,
                },
                Some(finished) = self.jobs.join_next_with_id() => self.finished(finished),
                permit = events.reserve(), if !self.outbox.is_empty() => match permit {
                    Ok(permit) => if let Some(event) = self.next_event() { permit.send(event) },
                    Err(_) => return,
                },
                () = sleep_until(wake) => {}
            }
        }
    }

    fn update(&mut self, update: Update) {
        match update {
            Update::Add(wanted) => self.add(wanted),
            Update::Remove(fingerprint) => self.drop_wanted(&fingerprint),
            Update::Settings(settings) => self.reconfigure(settings),
        }
    }

    fn add(&mut self, mut wanted: Wanted) {
        let fingerprint = wanted.fingerprint;
        if wanted.url.is_none() {
            // Most certificates name no responder. Ten thousand of them should not be held here twice.
            wanted.leaf = CertificateDer::from(Vec::new());
            wanted.issuer = None;
        }
        if self.entries.get(&fingerprint).is_some_and(|slot| slot.entry.wanted == wanted) {
            return self.tell(fingerprint);
        }
        self.remove(&fingerprint);
        let entry = Entry::new(wanted, &self.settings);
        if entry.order.is_none() {
            // The others are told of when it is known whether the disk has a staple for them.
            self.tell(fingerprint);
        }
        let slot = Slot { entry, ticket: 0, timer: None, ends: None, attempt: None };
        self.entries.insert(fingerprint, slot);
        self.begin(&[fingerprint]);
    }

    fn drop_wanted(&mut self, fingerprint: &Fingerprint) {
        self.remove(fingerprint);
        self.tell(*fingerprint);
    }

    /// Forgets a certificate. What is under way for it is broken off; what waits is recognised by its ticket.
    fn remove(&mut self, fingerprint: &Fingerprint) {
        self.reset(fingerprint);
        self.entries.remove(fingerprint);
    }

    fn reconfigure(&mut self, settings: OcspSettings) {
        if *self.settings == settings {
            return;
        }
        self.settings = Arc::new(settings);
        let mut begun = Vec::new();
        for (fingerprint, slot) in &mut self.entries {
            if slot.entry.reconfigure(&self.settings) {
                begun.push(*fingerprint);
            }
        }
        for &fingerprint in &begun {
            self.reset(&fingerprint);
            self.tell(fingerprint);
        }
        self.begin(&begun);
    }

    /// Takes an entry out of all indexes.
    fn reset(&mut self, fingerprint: &Fingerprint) {
        let Some(slot) = self.entries.get_mut(fingerprint) else { return };
        if let Some(attempt) = slot.attempt.take() {
            attempt.abort();
        }
        if let Some(timer) = slot.timer.take() {
            self.timers.remove(&(timer, *fingerprint));
        }
        if let Some(ends) = slot.ends.take() {
            self.ends.remove(&(ends, *fingerprint));
        }
    }

    /// Starts entries that have somebody to ask: from the disk where there is one, else by asking at once.
    fn begin(&mut self, fingerprints: &[Fingerprint]) {
        let mut to_load = Vec::new();
        for fingerprint in fingerprints {
            let Some(slot) = self.entries.get_mut(fingerprint) else { continue };
            self.tickets += 1;
            slot.ticket = self.tickets;
            let (Some(order), leaf) = (&slot.entry.order, &slot.entry.wanted.leaf) else { continue };
            to_load.push(((*fingerprint, slot.ticket), leaf.clone(), order.issuer.clone()));
        }
        let Some(cache) = &self.cache else {
            to_load.into_iter().for_each(|(ticket, ..)| self.loaded(ticket, None));
            return;
        };
        let now = (self.environment.now)().as_secs();
        for batch in to_load.chunks(LOAD_BATCH) {
            let (cache, batch) = (cache.clone(), batch.to_vec());
            self.jobs.spawn_blocking(move || {
                let load = |(ticket, leaf, issuer): &(Ticket, _, _)| {
                    (*ticket, cache.load(&ticket.0, leaf, issuer, now))
                };
                Job::Loaded(batch.iter().map(load).collect())
            });
        }
    }

    fn loaded(&mut self, ticket: Ticket, staple: Option<Staple>) {
        let now = (self.environment.now)();
        let Some(slot) = current(&mut self.entries, ticket) else { return };
        let delay = match staple.filter(|staple| staple.is_fresh(now.as_secs())) {
            Some(staple) => slot.entry.restored(staple, now, (self.environment.chance)()),
            None => Duration::ZERO,
        };
        self.schedule(ticket.0, delay);
    }

    fn queue_due(&mut self) {
        let now = Instant::now();
        while let Some(&(due, fingerprint)) = self.timers.first()
            && due <= now
        {
            self.timers.pop_first();
            let Some(slot) = self.entries.get_mut(&fingerprint) else { continue };
            slot.timer = None;
            let Some(order) = &slot.entry.order else { continue };
            let responder = order.target.origin().into();
            let wanted = &slot.entry.wanted;
            self.queue.push(&wanted.namespace, &responder, (fingerprint, slot.ticket), wanted.must_staple);
        }
    }

    fn start_attempts(&mut self) {
        while let Some(place) = self.queue.next(&self.settings) {
            let slot = current(&mut self.entries, place.ticket);
            let Some((slot, order)) =
                slot.and_then(|slot| slot.entry.next_order().map(|order| (slot, order)))
            else {
                self.queue.release(&place);
                continue;
            };
            let answer = self.environment.fetch.fetch(order);
            let handle = self.jobs.spawn(async move { Job::Answered(answer.await) });
            self.running.insert(handle.id(), Attempt { place, started: Instant::now() });
            slot.attempt = Some(handle);
        }
    }

    fn finished(&mut self, finished: Result<(Id, Job), JoinError>) {
        let (id, job) = match finished {
            Ok(finished) => finished,
            // Broken off by us, or a panic: the attempt counts as failed, if anyone still waits for it.
            Err(error) => (error.id(), Job::Answered(Err(FetchError::Internal))),
        };
        match job {
            Job::Loaded(loaded) => {
                loaded.into_iter().for_each(|(ticket, staple)| self.loaded(ticket, staple))
            }
            Job::Answered(result) => {
                if let Some(attempt) = self.running.remove(&id) {
                    self.queue.release(&attempt.place);
                    self.answered(&attempt, result);
                }
            }
            Job::Done => {}
        }
    }

    fn answered(&mut self, attempt: &Attempt, result: Result<Bytes, FetchError>) {
        let now = (self.environment.now)();
        let ticket = attempt.place.ticket;
        let Some(slot) = current(&mut self.entries, ticket) else { return };
        slot.attempt = None;
        let result = result.map_err(Into::into).and_then(|body| slot.entry.verify(&body, now.as_secs()));
        let label = result.as_ref().map_or_else(|failure| failure.label(), |_| "good");
        self.environment.metrics.count(label, attempt.started.elapsed());
        if let Err(failure) = &result {
            tracing::debug!(namespace = %slot.entry.wanted.namespace, %failure, "no OCSP staple");
        }
        let renewed = result.is_ok();
        let delay = slot.entry.answered(result, now, (self.environment.chance)());
        let staple = slot.entry.staple.clone();
        if renewed || label == "revoked" || label == "unknown" {
            self.store(ticket.0, staple);
        }
        self.schedule(ticket.0, delay);
    }

    /// Brings the disk in line with what is held. A full disk costs persistence and nothing else.
    fn store(&mut self, fingerprint: Fingerprint, staple: Option<Arc<Staple>>) {
        let Some(cache) = self.cache.clone() else { return };
        self.jobs.spawn_blocking(move || {
            match staple {
                None => cache.forget(&fingerprint),
                Some(staple) => {
                    if let Err(error) = cache.save(&fingerprint, &staple) {
                        tracing::warn!(%error, "an OCSP staple could not be stored");
                    }
                }
            }
            Job::Done
        });
    }

    /// Sets the timer for the next attempt, keeps the end of the staple and tells the news.
    fn schedule(&mut self, fingerprint: Fingerprint, delay: Duration) {
        let Some(slot) = self.entries.get_mut(&fingerprint) else { return };
        let due = Instant::now() + delay;
        if let Some(old) = slot.timer.replace(due) {
            self.timers.remove(&(old, fingerprint));
        }
        self.timers.insert((due, fingerprint));
        let ends = slot.entry.staple.as_ref().map(|staple| staple.next_update);
        if let Some(old) = std::mem::replace(&mut slot.ends, ends) {
            self.ends.remove(&(old, fingerprint));
        }
        self.ends.extend(ends.map(|ends| (ends, fingerprint)));
        self.tell(fingerprint);
    }

    /// Takes back every staple that has ended by the wall clock.
    fn drop_ended(&mut self) {
        let now = (self.environment.now)().as_secs();
        while let Some(&(ends, fingerprint)) = self.ends.first()
            && ends <= now
        {
            self.ends.pop_first();
            let Some(slot) = self.entries.get_mut(&fingerprint) else { continue };
            slot.ends = None;
            slot.entry.expire(now);
            // Nobody expected this end: the clock was set. What is scheduled by the old time comes too late.
            let unexpected = !slot.entry.is_failing() && slot.timer.is_some();
            self.tell(fingerprint);
            if unexpected {
                self.schedule(fingerprint, Duration::ZERO);
            }
        }
    }

    fn next_wake(&self) -> Instant {
        let recheck = Instant::now() + RECHECK;
        let timer = self.timers.first().map(|&(due, _)| due);
        let ends = self.ends.first().map(|&(ends, _)| {
            Instant::now() + Duration::from_secs(ends).saturating_sub((self.environment.now)()).min(RECHECK)
        });
        [timer, ends].into_iter().flatten().fold(recheck, Instant::min)
    }

    fn tell(&mut self, fingerprint: Fingerprint) {
        if self.untold.insert(fingerprint) {
            self.outbox.push_back(fingerprint);
        }
    }

    /// The next event, with what is known now rather than when it was announced.
    fn next_event(&mut self) -> Option<Event> {
        let fingerprint = self.outbox.pop_front()?;
        self.untold.remove(&fingerprint);
        Some(match self.entries.get(&fingerprint) {
            Some(slot) => Event::Staple(Arc::new(slot.entry.status())),
            None => Event::StapleGone(fingerprint),
        })
    }

    fn sweep_cache(&mut self) {
        if let Some(cache) = self.cache.clone() {
            let now = (self.environment.now)().as_secs();
            self.jobs.spawn_blocking(move || {
                cache.sweep(now);
                Job::Done
            });
        }
    }
}

/// The entry a ticket was made for, unless it was replaced or removed since.
fn current(entries: &mut HashMap<Fingerprint, Slot>, (fingerprint, ticket): Ticket) -> Option<&mut Slot> {
    entries.get_mut(&fingerprint).filter(|slot| slot.ticket == ticket)
}
