//! The CA at work: turn by turn it follows its root, tells everyone about it and keeps the Secrets of accounts.
//!
//! A turn is level-triggered and may run as often as one likes: at a fixed pace, or when a watch saw a change. Its
//! parts fail on their own: an error is logged and tried again in the next turn, and the authority in use stays.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use time::OffsetDateTime;

use super::accounts::{self, AccountOptions, Reconciled};
use super::authority::Authority;
use super::distribution::{self, Distributed, MapNames};
use super::metrics::Metrics;
use super::plugged::{Plugged, PluggedError};
use super::roots::{self, Checked, RootError, RootOptions, SelfSigned};
use super::store::{Revision, Store, StoreError};

/// How long a start waits for a store that does not answer.
const START_DEADLINE: Duration = Duration::from_secs(20 * 60);
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// From here on the end of the CA is announced loudly.
const WARN_BEFORE_END: time::Duration = time::Duration::days(30);

/// Why the CA does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Root(#[from] RootError),
    #[error(transparent)]
    Plugged(#[from] PluggedError),
}

/// What the CA works with.
#[derive(Clone, Debug)]
pub struct Options {
    pub root: RootOptions,
    /// Secrets for accounts; `None` leaves them alone.
    pub accounts: Option<AccountOptions>,
    pub maps: MapNames,
}

/// Owns the root and keeps what depends on it up to date.
pub struct Controller<S> {
    store: S,
    options: Options,
    source: Source,
    authority: Arc<ArcSwap<Authority>>,
    metrics: Metrics,
    settled: Option<Settled>,
}

/// The state in which the last turn found nothing left to do.
struct Settled {
    revision: Revision,
    authority: Arc<Authority>,
    /// When the first Secret is due.
    until: Option<OffsetDateTime>,
}

enum Source {
    SelfSigned(Box<SelfSigned>),
    Plugged(Plugged),
}

impl<S: Store> Controller<S> {
    /// Loads the plugged-in CA in `directory` if there is one, else the self-signed root, made if need be. A store
    /// that does not answer is asked again, with growing pauses, for twenty minutes.
    pub async fn start(
        store: S,
        options: Options,
        directory: Option<&Path>,
        metrics: Metrics,
        clock: impl Fn() -> OffsetDateTime,
    ) -> Result<Self, StartError> {
        let plugged = match directory {
            Some(directory) => Plugged::load(directory, clock())?,
            None => None,
        };
        let (source, authority) = match plugged {
            Some((plugged, authority)) => {
                tracing::info!(subject = authority.signer().subject_text, "using the plugged-in CA");
                (Source::Plugged(plugged), Arc::new(authority))
            }
            None => {
                let root = load_patiently(&store, &options.root, &clock).await?;
                tracing::info!(serial = root.authority.signer().serial, "using the self-signed CA");
                let authority = Arc::clone(&root.authority);
                (Source::SelfSigned(Box::new(root)), authority)
            }
        };
        metrics.set_expiry(&authority, clock());
        Ok(Self {
            store,
            options,
            source,
            authority: Arc::new(ArcSwap::new(authority)),
            metrics,
            settled: None,
        })
    }

    /// The authority in use, swapped when it changes.
    pub fn authority(&self) -> Arc<ArcSwap<Authority>> {
        Arc::clone(&self.authority)
    }

    /// One turn: root, ConfigMaps, Secrets, metrics.
    pub async fn turn(&mut self, now: OffsetDateTime) {
        self.follow_root(now).await;
        let authority = self.authority.load_full();
        self.metrics.set_expiry(&authority, now);
        warn_of_end(&authority, now);
        if let Err(error) = self.spread(authority, now).await {
            tracing::warn!(%error, "ConfigMaps and Secrets could not be looked at");
        }
    }

    /// Whether nothing has changed since the last turn that found nothing to do, and nothing is due.
    fn is_settled(&self, revision: &Revision, authority: &Arc<Authority>, now: OffsetDateTime) -> bool {
        self.settled.as_ref().is_some_and(|settled| {
            settled.revision == *revision
                && Arc::ptr_eq(&settled.authority, authority)
                && settled.until.is_none_or(|until| now < until)
        })
    }

    /// Brings ConfigMaps and Secrets up to date. The revision is taken first: what changes while they are looked
    /// at is looked at again in the next turn.
    async fn spread(&mut self, authority: Arc<Authority>, now: OffsetDateTime) -> Result<(), StoreError> {
        let revision = self.store.revision().await?;
        if self.is_settled(&revision, &authority, now) {
            return Ok(());
        }
        self.settled = None;
        let maps_are_settled = self.distribute(&authority).await?;
        let accounts = self.reconcile(&authority, now).await?;
        if maps_are_settled && accounts.changed_nothing() {
            self.settled = Some(Settled { revision, authority, until: accounts.next });
        }
        Ok(())
    }

    async fn follow_root(&mut self, now: OffsetDateTime) {
        let changed = match &mut self.source {
            Source::SelfSigned(current) => follow_self_signed(&self.store, &self.options.root, current, now)
                .await
                .map_err(StartError::Root),
            Source::Plugged(plugged) => plugged
                .reload(&self.authority.load(), now)
                .map(|next| next.map(Arc::new))
                .map_err(StartError::Plugged),
        };
        match changed {
            Ok(None) => {}
            Ok(Some(authority)) => {
                tracing::info!(serial = authority.signer().serial, "another certificate signs now");
                self.authority.store(authority);
            }
            Err(error) => {
                tracing::error!(%error, "the CA could not be renewed or reloaded; the present one stays")
            }
        }
    }

    /// Says whether there was nothing to write.
    async fn distribute(&self, authority: &Authority) -> Result<bool, StoreError> {
        let namespace = &self.options.root.storage_namespace;
        let done = distribution::distribute(&self.store, authority, namespace, &self.options.maps).await?;
        for (name, error) in &done.failed {
            tracing::warn!(config_map = %name, %error, "the roots could not be written");
        }
        Ok(done == Distributed::default())
    }

    async fn reconcile(&self, authority: &Authority, now: OffsetDateTime) -> Result<Reconciled, StoreError> {
        let Some(options) = &self.options.accounts else { return Ok(Reconciled::default()) };
        let done = accounts::reconcile_all(&self.store, authority, options, now).await?;
        self.metrics.count_accounts(&done);
        log(&done);
        Ok(done)
    }
}

async fn load_patiently<S: Store>(
    store: &S,
    options: &RootOptions,
    clock: &impl Fn() -> OffsetDateTime,
) -> Result<SelfSigned, RootError> {
    let mut pause = FIRST_RETRY;
    let mut waited = Duration::ZERO;
    loop {
        match roots::load_or_create(store, options, clock()).await {
            Err(RootError::Store(StoreError::Unavailable(reason))) if waited < START_DEADLINE => {
                tracing::warn!(reason, "the store does not answer, trying again");
                tokio::time::sleep(pause).await;
                waited += pause;
                pause = (pause * 3 / 2).min(LONGEST_RETRY);
            }
            other => return other,
        }
    }
}

async fn follow_self_signed<S: Store>(
    store: &S,
    options: &RootOptions,
    current: &mut Box<SelfSigned>,
    now: OffsetDateTime,
) -> Result<Option<Arc<Authority>>, RootError> {
    let next = match roots::check(store, options, current, now).await {
        Ok(Checked::Unchanged) => return Ok(None),
        Ok(Checked::Reloaded(next) | Checked::Renewed(next)) => next,
        // Another replica renewed at the same moment; the next turn reads what it made.
        Err(RootError::Store(StoreError::Conflict(_))) => return Ok(None),
        Err(error) => return Err(error),
    };
    *current = next;
    Ok(Some(Arc::clone(&current.authority)))
}

fn warn_of_end(authority: &Authority, now: OffsetDateTime) {
    let left = authority.end_of_life() - now;
    if left < WARN_BEFORE_END {
        tracing::error!(days = left.whole_days(), end = %authority.end_of_life(), "the CA certificate ends soon");
    }
}

fn log(done: &Reconciled) {
    let Reconciled { created, refreshed, roots_updated, deleted, failed, .. } = done;
    if created + refreshed + roots_updated + deleted > 0 {
        tracing::info!(created, refreshed, roots_updated, deleted, "Secrets of accounts written");
    }
    for (account, error) in failed {
        tracing::warn!(%account, %error, "the Secret of an account could not be written");
    }
}

#[cfg(test)]
mod tests;
