//! How much the CSR service takes on: calls at once, and calls per caller over time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use time::OffsetDateTime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::tls::spiffe::SpiffeId;

/// Callers that are remembered at most; beyond, those with a full bucket are forgotten, which changes nothing.
const MAX_CALLERS: usize = 10_000;

/// The bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Calls worked on at once, over all callers.
    pub concurrent: usize,
    /// Calls per second that one caller may sustain…
    pub per_second: f64,
    /// …after a burst of this many.
    pub burst: f64,
}

impl Default for Limits {
    fn default() -> Self {
        // A node agent asks for every workload of its node when it starts: a burst of a few hundred is honest.
        Self { concurrent: 256, per_second: 50.0, burst: 500.0 }
    }
}

/// A caller asked too often.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal;

pub struct Admission {
    limits: Limits,
    slots: Arc<Semaphore>,
    callers: Mutex<BTreeMap<SpiffeId, Bucket>>,
}

struct Bucket {
    tokens: f64,
    filled: OffsetDateTime,
}

impl Bucket {
    fn fill(&mut self, limits: &Limits, now: OffsetDateTime) {
        let passed = (now - self.filled).as_seconds_f64().max(0.0);
        self.tokens = (self.tokens + passed * limits.per_second).min(limits.burst);
        self.filled = now;
    }
}

impl Admission {
    pub fn new(limits: Limits) -> Self {
        let slots = Arc::new(Semaphore::new(limits.concurrent));
        Self { limits, slots, callers: Mutex::default() }
    }

    /// A slot for one call, held until it is dropped; `None` if all are taken.
    pub fn enter(&self) -> Option<OwnedSemaphorePermit> {
        self.slots.clone().try_acquire_owned().ok()
    }

    /// Counts a call of `caller` against its rate.
    pub fn count(&self, caller: &SpiffeId, now: OffsetDateTime) -> Result<(), Refusal> {
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if callers.len() >= MAX_CALLERS && !callers.contains_key(caller) {
            callers.retain(|_, bucket| {
                bucket.fill(&self.limits, now);
                bucket.tokens < self.limits.burst
            });
        }
        let full = || Bucket { tokens: self.limits.burst, filled: now };
        let bucket = callers.entry(caller.clone()).or_insert_with(full);
        bucket.fill(&self.limits, now);
        match bucket.tokens >= 1.0 {
            true => {
                bucket.tokens -= 1.0;
                Ok(())
            }
            false => Err(Refusal),
        }
    }
}
