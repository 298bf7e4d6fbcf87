//! Coarse timeouts for everything on a worker, without a timer each.
//!
//! A timer of the runtime may cost a system call when it is set; a request sets several and nearly none ever
//! fires. Here a deadline is a number in a table that one standing 100 ms interval ([`Deadlines::run`]) sweeps:
//! setting, moving and dropping one are a few instructions. A deadline fires at its time or up to two ticks
//! later, never earlier. Time in which the worker itself was held up does not count against its peers.
//!
//! After each sweep the interval stops until shortly before something is due, so that an idle worker sleeps, however
//! many connections it holds. [`Deadlines::now`] is right all the same; [`Deadlines::wake`] starts the interval again,
//! and so does whoever polls a deadline: where there is work, that is at once.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use pin_project_lite::pin_project;
use slab::Slab;
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval};

#[cfg(test)]
mod tests;

/// The resolution.
pub const TICK: Duration = Duration::from_millis(100);

/// At most so many ticks pass in one sweep: a worker that was held up for longer has read nothing meanwhile,
/// and what has arrived is to be read before a peer is called late.
const MAX_TICKS_AT_ONCE: u64 = 2;

/// A point in coarse time: ticks since the worker started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tick(u64);

impl Tick {
    const NEVER: Self = Self(u64::MAX);

    /// The first tick at which `duration` has passed for certain.
    fn after(self, duration: Duration) -> Self {
        let ticks = duration.as_millis().div_ceil(TICK.as_millis());
        Self(self.0.saturating_add(u64::try_from(ticks).unwrap_or(u64::MAX)).saturating_add(1))
    }

    /// How long after `earlier` this is; zero when it is not.
    pub fn since(self, earlier: Self) -> Duration {
        TICK.saturating_mul(u32::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(u32::MAX))
    }
}

/// All deadlines of one worker. Clones share the same table.
#[derive(Clone, Default)]
pub struct Deadlines(Rc<Table>);

#[derive(Default)]
struct Table {
    /// As of `known`.
    now: Cell<Tick>,
    /// The moment of the last sweep, or while the interval stood still that of the last whole tick that was asked for.
    /// `None` before the interval first runs.
    known: Cell<Option<Instant>>,
    stopped: Cell<bool>,
    entries: RefCell<Slab<Entry>>,
    start: Notify,
}

impl Table {
    /// Whole ticks since `now` was known.
    fn passed(&self) -> u64 {
        let elapsed = self.known.get().map_or(Duration::ZERO, |known| known.elapsed());
        u64::try_from(elapsed.as_millis() / TICK.as_millis()).unwrap_or(u64::MAX)
    }
}

struct Entry {
    at: Tick,
    waker: Waker,
}

impl Deadlines {
    pub fn new() -> Self {
        Self::default()
    }

    /// Drives the table; a worker runs this once, for as long as it lives. At each tick it calls `at_tick`, which says how
    /// soon it wants to be called again though nothing happens, if at all.
    pub async fn run(&self, mut at_tick: impl FnMut() -> Option<Duration>) {
        let mut interval = interval(TICK);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.0.known.set(Some(interval.tick().await));
        loop {
            interval.tick().await;
            let passed = self.0.passed().clamp(1, MAX_TICKS_AT_ONCE);
            self.0.known.set(Some(Instant::now()));
            let due = self.advance(passed);
            let again = at_tick().map(|duration| self.now().after(duration));
            // The interval ticks once more before the first of them is due.
            let next = due.into_iter().chain(again).min();
            let pause = next.map(|at| at.since(self.now()).saturating_sub(TICK));
            if pause.is_some_and(|pause| pause <= TICK) {
                continue;
            }
            self.0.stopped.set(true);
            match pause {
                Some(pause) => _ = tokio::time::timeout(pause, self.0.start.notified()).await,
                None => self.0.start.notified().await,
            }
            self.start();
            if let Some(known) = self.0.known.get() {
                interval.reset_at(known + TICK);
            }
        }
    }

    /// The coarse time.
    pub fn now(&self) -> Tick {
        let now = self.0.now.get();
        match self.0.stopped.get() {
            false => now,
            true => Tick(now.0.saturating_add(self.0.passed())),
        }
    }

    /// Something happens: the interval runs, and there is a tick soon with what `at_tick` does.
    pub fn wake(&self) {
        if self.start() {
            self.0.start.notify_one();
        }
    }

    /// Brings the time up to date where the interval has stopped; whether it had.
    fn start(&self) -> bool {
        if !self.0.stopped.get() {
            return false;
        }
        let passed = self.0.passed();
        self.0.now.set(Tick(self.0.now.get().0.saturating_add(passed)));
        let ticks = TICK.saturating_mul(u32::try_from(passed).unwrap_or(u32::MAX));
        // What is left of a tick counts towards the next.
        self.0.known.set(self.0.known.get().and_then(|known| known.checked_add(ticks)));
        self.0.stopped.set(false);
        true
    }

    /// A deadline `duration` from now.
    pub fn deadline(&self, duration: Duration) -> Deadline {
        Deadline { table: self.clone(), at: self.now().after(duration), slot: None }
    }

    /// `future`, or [`Elapsed`] if it takes longer than `duration`.
    pub fn timeout<F: Future>(&self, duration: Duration, future: F) -> Timeout<F> {
        Timeout { future, deadline: self.deadline(duration) }
    }

    /// Lets time pass. The answer is when the next deadline is due.
    pub(crate) fn advance(&self, ticks: u64) -> Option<Tick> {
        let now = Tick(self.now().0.saturating_add(ticks));
        self.0.now.set(now);
        // Woken only after the table is free again: a waker may run code that uses it.
        let mut due = Vec::new();
        let mut next = Tick::NEVER;
        for (_, entry) in self.0.entries.borrow_mut().iter_mut() {
            if entry.at <= now {
                entry.at = Tick::NEVER;
                due.push(entry.waker.clone());
            }
            next = next.min(entry.at);
        }
        due.into_iter().for_each(Waker::wake);
        (next < Tick::NEVER).then_some(next)
    }
}

/// A moment that can be waited for and moved. It takes its place in the table when first polled.
pub struct Deadline {
    table: Deadlines,
    at: Tick,
    slot: Option<usize>,
}

impl Deadline {
    /// Ready once the moment has passed.
    pub fn poll_passed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.table.now() >= self.at {
            return Poll::Ready(());
        }
        let mut entries = self.table.0.entries.borrow_mut();
        match self.slot.and_then(|slot| entries.get_mut(slot)) {
            Some(entry) => {
                entry.at = self.at;
                entry.waker.clone_from(cx.waker());
            }
            None => self.slot = Some(entries.insert(Entry { at: self.at, waker: cx.waker().clone() })),
        }
        drop(entries);
        self.table.wake();
        Poll::Pending
    }

    /// Moves the deadline to `duration` from now; takes effect with the next poll.
    pub fn reset(&mut self, duration: Duration) {
        self.at = self.table.now().after(duration);
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            self.table.0.entries.borrow_mut().try_remove(slot);
        }
    }
}

pin_project! {
    /// The future of [`Deadlines::timeout`].
    pub struct Timeout<F> {
        #[pin]
        future: F,
        deadline: Deadline,
    }
}

/// The time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("timed out")]
pub struct Elapsed;

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(output) = this.future.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        this.deadline.poll_passed(cx).map(|()| Err(Elapsed))
    }
}
