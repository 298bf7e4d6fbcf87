//! The OCSP source: keeps a verified staple for every certificate that has a responder, and reports each change.
//!
//! [`run`] is one task. It is told which certificates are wanted ([`Update`]) and emits what it knows of each
//! ([`OcspStatus`](crate::tls::ocsp::OcspStatus)); the events enter the store like those of any other source. It never
//! blocks anyone: updates are taken at once, events are merged per certificate while nobody reads them. Staples
//! survive in [`Cache`]; `app` has the end that feeds it.

use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::CertificateDer;
use tokio::sync::mpsc;

use crate::clock;
use crate::store::Event;
use crate::tls::ocsp::certificate::{OcspFacts, fingerprint};

pub mod address;
pub mod cache;
mod entry;
pub mod fetch;
pub mod metrics;
mod queue;
pub mod settings;
mod task;

pub use cache::Cache;
pub use fetch::{Fetch, HttpFetch};
pub use metrics::OcspMetrics;
pub use settings::OcspSettings;

/// A certificate to keep a staple for. One per fingerprint: whoever has the same leaf twice names it once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// SHA-256 of the leaf's DER.
    pub fingerprint: [u8; 32],
    pub leaf: CertificateDer<'static>,
    /// The certificate that signed the leaf, if the chain has it.
    pub issuer: Option<CertificateDer<'static>>,
    /// The responder URL of the leaf, unchecked.
    pub url: Option<String>,
    /// Whose budget the attempts count against.
    pub namespace: Arc<str>,
    /// Clients refuse the leaf without a staple, so it is asked about first.
    pub must_staple: bool,
}

impl Wanted {
    /// Reads `chain`, the leaf first, on behalf of `namespace`. `None` for a chain without certificates.
    pub fn of(chain: &[CertificateDer<'static>], namespace: Arc<str>) -> Option<Self> {
        let leaf = chain.first()?.clone();
        let OcspFacts { url, must_staple, issuer } = OcspFacts::read(chain);
        Some(Self { fingerprint: fingerprint(&leaf), leaf, issuer, url, namespace, must_staple })
    }
}

/// What the task is told.
#[derive(Clone, Debug)]
pub enum Update {
    /// This one is wanted. A known fingerprint with other contents is replaced; the same contents are only reported again.
    Add(Wanted),
    /// No longer this one; [`Event::StapleGone`] answers.
    Remove([u8; 32]),
    /// Other settings from now on.
    Settings(OcspSettings),
}

/// What the task takes from the world around it. Tests put their own here.
pub struct Environment {
    /// Wall-clock time since 1970.
    pub now: Box<dyn Fn() -> Duration + Send + Sync>,
    /// A number from `0.0..1.0` for jitter.
    pub chance: Box<dyn FnMut() -> f64 + Send + Sync>,
    pub fetch: Arc<dyn Fetch>,
    pub metrics: OcspMetrics,
}

impl Environment {
    /// The real clock, dice and network.
    pub fn system(metrics: OcspMetrics) -> Self {
        Self {
            now: Box::new(clock::since_epoch),
            chance: Box::new(random_fraction),
            fetch: Arc::new(HttpFetch::new()),
            metrics,
        }
    }
}

/// Runs until `updates` is closed or nobody reads `events` any more. `cache` is `None` without a state directory.
///
/// `updates` is unbounded so that telling never waits for reporting; what can pile up is bounded by the number of
/// certificates the sender has.
pub async fn run(
    environment: Environment,
    cache: Option<Cache>,
    settings: OcspSettings,
    updates: mpsc::UnboundedReceiver<Update>,
    events: mpsc::Sender<Event>,
) {
    task::Task::new(environment, cache, settings).run(updates, events).await;
}

/// Jitter need not be secret, only different in each process; without entropy it is merely absent.
fn random_fraction() -> f64 {
    let mut bytes = [0; 4];
    match aws_lc_rs::rand::fill(&mut bytes) {
        Ok(()) => f64::from(u32::from_le_bytes(bytes)) / (f64::from(u32::MAX) + 1.0),
        Err(_) => 0.5,
    }
}

#[cfg(test)]
mod tests;
