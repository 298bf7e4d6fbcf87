//! The control loop's end of the OCSP source: settings and demand go in, batches of events come out.
//!
//! The app makes one, starts it once and tells it after every compile what has changed. Nothing here waits for a
//! responder; only [`Stapler::restore`] reads the disk, before the gateway serves.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::clock;
use crate::compile::staples::StapleDemand;
use crate::settings::Settings;
use crate::snapshot::certificates::Certificate;
use crate::sources::Batch;
use crate::sources::ocsp::{Cache, Environment, OcspMetrics, OcspSettings, Update, Wanted, run};
use crate::store::Event;
use crate::tls::ocsp::status::{OcspState, OcspStatus};

/// Events that may wait to be put into a batch.
const EVENTS: usize = 1024;

/// Keeps staples for what is served.
pub struct Stapler {
    settings: OcspSettings,
    cache: Option<Cache>,
    metrics: OcspMetrics,
    updates: mpsc::UnboundedSender<Update>,
    /// Until it is started.
    inbox: Option<mpsc::UnboundedReceiver<Update>>,
}

impl Stapler {
    /// Staples are kept in `settings.state_dir`; without one they don't survive a restart.
    pub fn new(settings: &Settings) -> Self {
        let (updates, inbox) = mpsc::unbounded_channel();
        Self {
            settings: OcspSettings::of(settings),
            cache: settings.state_dir.as_ref().map(|dir| Cache::new(dir.join("ocsp"))),
            metrics: OcspMetrics::default(),
            updates,
            inbox: Some(inbox),
        }
    }

    /// What is counted; handles to the same counters.
    pub fn metrics(&self) -> OcspMetrics {
        self.metrics.clone()
    }

    /// Starts asking, once, on the local runtime. It ends with the receiver of `batches`.
    pub fn start(&mut self, batches: mpsc::Sender<Batch>) {
        let Some(inbox) = self.inbox.take() else { return };
        let (outbox, events) = mpsc::channel(EVENTS);
        let environment = Environment::system(self.metrics.clone());
        let (cache, settings) = (self.cache.clone(), self.settings.clone());
        tokio::task::spawn_local(run(environment, cache, settings, inbox, outbox));
        tokio::task::spawn_local(in_batches(events, batches));
    }

    /// Passes on what differs from what was wanted before.
    pub fn follow(&self, demand: &StapleDemand) {
        for certificate in &demand.wanted {
            if let Some(wanted) = wanted(certificate) {
                self.tell(Update::Add(wanted));
            }
        }
        for leaf in &demand.dropped {
            self.tell(Update::Remove(*leaf));
        }
    }

    /// Takes over other settings.
    pub fn set(&mut self, settings: &Settings) {
        let settings = OcspSettings::of(settings);
        if settings != self.settings {
            self.settings = settings;
            self.tell(Update::Settings(self.settings.clone()));
        }
    }

    /// The staples that the disk has for `certificates`, verified anew: with them the very first handshake after
    /// a restart is stapled. Blocks for as long as the disk takes.
    pub fn restore<'a>(&self, certificates: impl Iterator<Item = &'a Arc<Certificate>>) -> Vec<Event> {
        let Some(cache) = self.cache.as_ref().filter(|_| self.settings.enabled) else { return Vec::new() };
        let now = clock::since_epoch().as_secs();
        let load = |certificate| {
            let Wanted { fingerprint, leaf, issuer, .. } = wanted(certificate)?;
            let staple = cache.load(&fingerprint, &leaf, &issuer?, now)?;
            Some(Event::Staple(Arc::new(OcspStatus {
                state: OcspState::Good,
                this_update: Some(staple.this_update),
                next_update: Some(staple.next_update),
                staple: Some(Arc::new(staple)),
                ..OcspStatus::pending(fingerprint)
            })))
        };
        certificates.filter_map(load).collect()
    }

    fn tell(&self, update: Update) {
        // The task ends only when the process does.
        let _ = self.updates.send(update);
    }
}

fn wanted(certificate: &Arc<Certificate>) -> Option<Wanted> {
    let namespace = certificate.secret.as_ref().map(|secret| secret.namespace.clone());
    Wanted::of(&certificate.pair.certified.cert, namespace.unwrap_or_default())
}

/// Events that come together go together, so that a thousand answers are no thousand compiles.
async fn in_batches(mut events: mpsc::Receiver<Event>, batches: mpsc::Sender<Batch>) {
    let mut waiting = Vec::new();
    while events.recv_many(&mut waiting, EVENTS).await > 0 {
        let batch = Batch { events: std::mem::take(&mut waiting), ..Batch::default() };
        if batches.send(batch).await.is_err() {
            return;
        }
    }
}
