//! One certificate and what became of asking about it. No I/O and no clock: time and chance are handed in.
//!
//! ```text
//! Pending ──good──► Good ──failure──► Good until nextUpdate ──► Error
//!    │                └──revoked/unknown, verified──► Revoked/Unknown, staple dropped at once
//!    └──failure──► Error          every state leads back to Good with a good answer,
//!                                  from Revoked/Unknown only with one that is newer
//! ```

use std::sync::Arc;
use std::time::Duration;

use super::Wanted;
use super::address::is_permitted;
use super::fetch::{FetchError, Order};
use super::settings::OcspSettings;
use crate::names::responder::{Host, Target};
use crate::tls::ocsp::request::Request;
use crate::tls::ocsp::response::{Refusal, Staple, verify};
use crate::tls::ocsp::schedule::{refresh_delay, retry_delay};
use crate::tls::ocsp::status::{OcspState, OcspStatus};

/// Why an attempt gave no staple.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("the answer is no newer than the one that took the staple away")]
    Outdated,
}

impl Failure {
    /// The value of the metric's label `result`.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Fetch(FetchError::Timeout) => "timeout",
            Self::Fetch(FetchError::AddressRefused) => "address_refused",
            Self::Fetch(_) => "unreachable",
            Self::Refused(Refusal::Revoked { .. }) => "revoked",
            Self::Refused(Refusal::Unknown { .. }) => "unknown",
            Self::Refused(Refusal::Unsuccessful(_)) => "unsuccessful",
            Self::Refused(_) | Self::Outdated => "refused",
        }
    }
}

/// The state of one wanted certificate.
pub struct Entry {
    pub wanted: Wanted,
    /// What to ask, unless there is nobody to ask or it is not permitted.
    pub order: Option<Order>,
    pub staple: Option<Arc<Staple>>,
    /// Seconds since 1970, for people to see; the task has its own timer.
    pub next_fetch: Option<u64>,
    state: OcspState,
    /// thisUpdate of the newest "revoked" or "unknown", in seconds since 1970. Only what is newer takes it back.
    withdrawn: Option<u64>,
    failures: u32,
    last_error: Option<Arc<str>>,
}

impl Entry {
    pub fn new(wanted: Wanted, settings: &Arc<OcspSettings>) -> Self {
        let mut entry = Self {
            wanted,
            order: None,
            staple: None,
            next_fetch: None,
            state: OcspState::Pending,
            withdrawn: None,
            failures: 0,
            last_error: None,
        };
        entry.plan(settings);
        entry
    }

    /// Applies other settings. Returns whether the entry begins anew, because whom to ask changed.
    pub fn reconfigure(&mut self, settings: &Arc<OcspSettings>) -> bool {
        let fresh = Self::new(self.wanted.clone(), settings);
        match (&mut self.order, fresh.order) {
            (Some(old), Some(new)) if old.target == new.target => {
                *old = new;
                false
            }
            (_, order) => {
                *self = Self { order, ..fresh };
                true
            }
        }
    }

    /// Decides whom to ask, or which state says why nobody is asked.
    fn plan(&mut self, settings: &Arc<OcspSettings>) {
        let (Some(url), Some(issuer)) = (&self.wanted.url, &self.wanted.issuer) else {
            self.state = match (&self.wanted.url, settings.enabled) {
                (None, _) => OcspState::NoResponder,
                (Some(_), true) => OcspState::IssuerUnknown,
                (Some(_), false) => OcspState::Disabled,
            };
            return;
        };
        if !settings.enabled {
            self.state = OcspState::Disabled;
            return;
        }
        let planned = responder(url, settings).and_then(|(target, trusted)| {
            let request = Request::new(&self.wanted.leaf, issuer).map_err(|error| error.to_string())?;
            let (issuer, settings) = (issuer.clone(), settings.clone());
            Ok(Order { target, trusted, request, post: false, issuer, settings })
        });
        match planned {
            Ok(order) => self.order = Some(order),
            Err(reason) => {
                self.state = OcspState::Error;
                self.last_error = Some(reason.into());
            }
        }
    }

    /// The order for the next attempt. After a failed GET comes a POST: some responders know only one of them.
    pub fn next_order(&self) -> Option<Order> {
        let order = self.order.as_ref()?;
        Some(Order { post: self.failures % 2 == 1, ..order.clone() })
    }

    /// Verifies what a responder sent at `now` (seconds since 1970).
    pub fn verify(&self, body: &[u8], now: u64) -> Result<Staple, Failure> {
        let issuer = self.wanted.issuer.as_ref().ok_or(FetchError::Internal)?;
        let staple = verify(body, &self.wanted.leaf, issuer, now)?;
        // A cache in front of the responder, or somebody on the way to it, may still have what it said before.
        match self.withdrawn.is_some_and(|withdrawn| staple.this_update <= withdrawn) {
            true => Err(Failure::Outdated),
            false => Ok(staple),
        }
    }

    /// Takes over a staple from the disk. Returns how long to wait before asking.
    pub fn restored(&mut self, staple: Staple, now: Duration, chance: f64) -> Duration {
        self.answered(Ok(staple), now, chance)
    }

    /// Takes in the result of an attempt at `now` (time since 1970). Returns how long to wait before the next.
    pub fn answered(&mut self, result: Result<Staple, Failure>, now: Duration, chance: f64) -> Duration {
        let delay = match result {
            Ok(staple) => self.renewed(staple, now, chance),
            Err(failure) => self.failed(&failure, now, chance),
        };
        self.next_fetch = Some((now + delay).as_secs());
        delay
    }

    fn renewed(&mut self, staple: Staple, now: Duration, chance: f64) -> Duration {
        // Caches in front of a responder may go back in time; what is newer stays.
        let held = self.staple.take().filter(|held| held.is_fresh(now.as_secs()));
        let staple = match held {
            Some(held) if held.this_update > staple.this_update => held,
            _ => Arc::new(staple),
        };
        let delay = refresh_delay(&staple, now, chance);
        self.staple = Some(staple);
        self.state = OcspState::Good;
        self.failures = 0;
        self.last_error = None;
        delay
    }

    fn failed(&mut self, failure: &Failure, now: Duration, chance: f64) -> Duration {
        self.expire(now.as_secs());
        self.failures = self.failures.saturating_add(1);
        self.last_error = Some(failure.to_string().into());
        match failure {
            Failure::Refused(Refusal::Revoked { this_update }) => {
                self.withdrawn = self.withdrawn.max(Some(*this_update));
                self.staple = None;
                self.state = OcspState::Revoked;
                // Nothing to hurry for, but a suspension may be lifted.
                return retry_delay(u32::MAX, chance);
            }
            Failure::Refused(Refusal::Unknown { this_update }) => {
                self.withdrawn = self.withdrawn.max(Some(*this_update));
                self.staple = None;
                self.state = OcspState::Unknown;
            }
            // A failure to hear anything takes nothing back.
            _ if matches!(self.state, OcspState::Good | OcspState::Revoked | OcspState::Unknown) => {}
            _ => self.state = OcspState::Error,
        }
        retry_delay(self.failures, chance)
    }

    /// Drops the staple if it has ended at `now` (seconds since 1970). Returns whether it did.
    pub fn expire(&mut self, now: u64) -> bool {
        if self.staple.as_ref().is_none_or(|staple| staple.is_fresh(now)) {
            return false;
        }
        self.staple = None;
        self.state = OcspState::Error;
        self.last_error.get_or_insert_with(|| "the staple's nextUpdate has passed".into());
        true
    }

    /// Whether the last attempt failed, so that a retry is scheduled already.
    pub fn is_failing(&self) -> bool {
        self.failures > 0
    }

    pub fn status(&self) -> OcspStatus {
        OcspStatus {
            fingerprint: self.wanted.fingerprint,
            state: self.state,
            staple: self.staple.clone(),
            this_update: self.staple.as_ref().map(|staple| staple.this_update),
            next_update: self.staple.as_ref().map(|staple| staple.next_update),
            next_fetch: self.next_fetch,
            last_error: self.last_error.clone(),
        }
    }
}

/// Whom to ask for a certificate that names `url`, and whether the operator said so.
fn responder(url: &str, settings: &OcspSettings) -> Result<(Target, bool), String> {
    if let Some(target) = settings.overrides.get(url) {
        return Ok((target.clone(), true));
    }
    let target = Target::parse(url).map_err(|error| format!("the responder URL is refused: {error}"))?;
    // What is written in the URL itself needs no attempt, and no proxy should make it either.
    if let Host::Address(address) = target.host
        && !is_permitted(address, &settings.allowed_cidrs)
    {
        return Err(format!("the responder URL is refused: {}", FetchError::AddressRefused));
    }
    Ok((target, false))
}
