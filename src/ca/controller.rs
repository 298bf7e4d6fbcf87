//! The CA at work: turn by turn it follows its root, tells everyone about it and keeps the Secrets of accounts.
//!
//! A turn is level-triggered and may run as often as one likes: at a fixed pace, or when the store tells of a change
//! ([`Controller::changed`]). Its parts fail on their own: an error is logged and tried again in the next turn, and the
//! authority in use stays. Of several replicas one writes: the one that leads. All follow the root.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use time::OffsetDateTime;
use tokio::sync::watch;

use super::accounts::{self, AccountOptions, Reconciled};
use super::authority::Authority;
use super::distribution::{self, Distributed, MapNames};
use super::hosts::{self, HostOptions};
use super::metrics::Metrics;
use super::plugged::{Plugged, PluggedError};
use super::roots::{self, Checked, RootError, RootOptions, SelfSigned};
use super::store::{Revision, Store, StoreError};

/// How long a start waits for a store that does not answer.
const START_DEADLINE: Duration = Duration::from_secs(20 * 60);
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// From here on the end of the CA is announced loudly…
const WARN_BEFORE_END: time::Duration = time::Duration::days(30);
/// …and so often.
const WARN_AGAIN: time::Duration = time::Duration::hours(1);

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
    /// Secrets for hosts of Ingresses; `None` leaves them alone.
    pub hosts: Option<HostOptions>,
    pub maps: MapNames,
}

/// Owns the root and keeps what depends on it up to date.
pub struct Controller<S> {
    store: S,
    options: Options,
    source: Source,
    authority: Arc<ArcSwap<Authority>>,
    metrics: Metrics,
    /// Whether this replica writes; without it, it does.
    leads: Option<watch::Receiver<bool>>,
    /// The revision that the last turn looked at.
    seen: Option<Revision>,
    settled: Option<Settled>,
    warned: Option<OffsetDateTime>,
    /// Why the root could not be looked at in the last turn: said when it begins, and tried again in every turn.
    root_fault: Option<String>,
    /// What was wrong with Secrets in the last turn: said when it begins, and not in every turn.
    said: BTreeSet<String>,
}

/// The state in which the last turn found nothing left to do.
struct Settled {
    revision: Revision,
    authority: Arc<Authority>,
    leads: bool,
    /// When the root or the first Secret is due.
    until: Option<OffsetDateTime>,
}

enum Source {
    SelfSigned(Box<SelfSigned>),
    Plugged(Plugged),
}

impl<S: Store> Controller<S> {
    /// Loads the plugged-in CA in `directory`, which must be there where the operator says so; without one that in the
    /// Secret `cacerts` if there is one, else the self-signed root, made if need be. A store that does not answer is asked again, with growing pauses, for
    /// twenty minutes.
    pub async fn start(
        store: S,
        options: Options,
        directory: Option<&Path>,
        metrics: Metrics,
        clock: impl Fn() -> OffsetDateTime,
    ) -> Result<Self, StartError> {
        let plugged = match directory {
            Some(directory) => {
                let missing = || PluggedError::NotFound(directory.display().to_string());
                Some(Plugged::load(directory, clock())?.ok_or_else(missing)?)
            }
            None => None,
        };
        let plugged = match plugged {
            Some(plugged) => Some(plugged),
            None => {
                let namespace = &options.root.storage_namespace;
                let load = || async { Ok(Plugged::load_secret(&store, namespace, clock()).await?) };
                patiently(load).await?
            }
        };
        let (source, authority) = match plugged {
            Some((plugged, authority)) => {
                tracing::info!(subject = authority.signer().subject_text, "using the plugged-in CA");
                (Source::Plugged(plugged), Arc::new(authority))
            }
            None => {
                let load = || async { Ok(roots::load_or_create(&store, &options.root, clock()).await?) };
                let root = patiently(load).await?;
                tracing::info!(serial = root.authority.signer().serial, "using the self-signed CA");
                let authority = Arc::clone(&root.authority);
                (Source::SelfSigned(Box::new(root)), authority)
            }
        };
        metrics.set_expiry(&authority, clock());
        warn_if_revoked(&authority);
        Ok(Self {
            store,
            options,
            source,
            authority: Arc::new(ArcSwap::new(authority)),
            metrics,
            leads: None,
            seen: None,
            settled: None,
            warned: None,
            root_fault: None,
            said: BTreeSet::new(),
        })
    }

    /// From now on this replica writes only while `leads` says so.
    pub fn write_while(&mut self, leads: watch::Receiver<bool>) {
        self.leads = Some(leads);
    }

    /// The authority in use, swapped when it changes.
    pub fn authority(&self) -> Arc<ArcSwap<Authority>> {
        Arc::clone(&self.authority)
    }

    /// One turn: root, ConfigMaps, Secrets, metrics. The revision is taken first: what changes while all is looked at
    /// is looked at again in the next turn. Where nothing has changed and nothing is due, the store is not asked.
    pub async fn turn(&mut self, now: OffsetDateTime) {
        let revision = self.store.revision().await;
        let settled = |this: &Self| {
            let revision = revision.as_ref().ok();
            revision.is_some_and(|revision| this.is_settled(revision, &this.authority.load(), now))
        };
        // Of changes to files no store tells, and what was only too early needs no change.
        let is_open = |plugged: &Plugged| plugged.is_in_files() || plugged.is_waiting();
        let open = matches!(&self.source, Source::Plugged(plugged) if is_open(plugged));
        if open || !settled(self) {
            self.follow_root(now).await;
        }
        let authority = self.authority.load_full();
        self.metrics.set_expiry(&authority, now);
        self.warn_of_end(&authority, now);
        if settled(self) {
            return;
        }
        match revision {
            Ok(revision) => self.spread(revision, authority, now).await,
            Err(error) => tracing::warn!(%error, "ConfigMaps and Secrets could not be looked at"),
        }
    }

    /// Waits for something that the last turn has not seen, as far as the store can tell.
    pub async fn changed(&mut self) {
        let Self { store, seen, leads, .. } = self;
        let store_changed = async {
            match seen {
                Some(seen) => store.changed(seen).await,
                None => std::future::pending().await,
            }
        };
        let leader_changed = async {
            let alive = match leads {
                Some(leads) => leads.changed().await.is_ok(),
                None => false,
            };
            if !alive {
                std::future::pending().await
            }
        };
        tokio::select! {
            () = store_changed => {}
            () = leader_changed => {}
        }
    }

    fn leads(&self) -> bool {
        self.leads.as_ref().is_none_or(|leads| *leads.borrow())
    }

    /// Whether nothing has changed since the last turn that found nothing to do, and nothing is due.
    fn is_settled(&self, revision: &Revision, authority: &Arc<Authority>, now: OffsetDateTime) -> bool {
        self.settled.as_ref().is_some_and(|settled| {
            settled.revision == *revision
                && Arc::ptr_eq(&settled.authority, authority)
                && settled.leads == self.leads()
                && settled.until.is_none_or(|until| now < until)
        })
    }

    /// Brings ConfigMaps and Secrets up to date, where that is for this replica to do. What keeps one of the three
    /// from being done keeps no other.
    async fn spread(&mut self, revision: Revision, authority: Arc<Authority>, now: OffsetDateTime) {
        self.settled = None;
        self.seen = Some(revision.clone());
        let leads = self.leads();
        if !leads {
            if self.root_fault.is_none() {
                self.settled = Some(Settled { revision, authority, leads, until: None });
            }
            return;
        }
        let mut faults = BTreeSet::new();
        let maps_are_settled = looked_at("ConfigMaps", self.distribute(&authority).await);
        let accounts = looked_at("accounts", self.reconcile(&authority, now, &mut faults).await);
        let hosts = looked_at("hosts", self.reconcile_hosts(&authority, now, &mut faults).await);
        faults.difference(&self.said).for_each(|fault| tracing::warn!("{fault}"));
        self.said = faults;
        let (Some(maps_are_settled), Some(accounts), Some(hosts)) = (maps_are_settled, accounts, hosts)
        else {
            return;
        };
        if self.root_fault.is_none()
            && maps_are_settled
            && accounts.changed_nothing()
            && hosts.changed_nothing()
        {
            let (root, bundle) = match &self.source {
                Source::SelfSigned(root) => {
                    let due = roots::due_at(authority.signer(), self.options.root.grace_percent);
                    (Some(due), root.bundle_ends().map(|end| end + time::Duration::SECOND))
                }
                Source::Plugged(_) => (None, None),
            };
            let until = [root, bundle, accounts.next, hosts.next].into_iter().flatten().min();
            self.settled = Some(Settled { revision, authority, leads, until });
        }
    }

    fn warn_of_end(&mut self, authority: &Authority, now: OffsetDateTime) {
        let left = authority.end_of_life() - now;
        if left < WARN_BEFORE_END && self.warned.is_none_or(|last| now - last >= WARN_AGAIN) {
            self.warned = Some(now);
            let end = authority.end_of_life();
            tracing::error!(days = left.whole_days(), %end, "the CA certificate ends soon");
        }
    }

    async fn follow_root(&mut self, now: OffsetDateTime) {
        let leads = self.leads();
        let changed = match &mut self.source {
            Source::SelfSigned(current) => {
                let options = &self.options.root;
                let followed = follow_self_signed(&self.store, options, current, leads, now).await;
                followed.map_err(StartError::Root)
            }
            Source::Plugged(plugged) => {
                let reloaded = plugged.reload(&self.store, &self.authority.load_full(), now).await;
                reloaded.map(|next| next.map(Arc::new)).map_err(StartError::Plugged)
            }
        };
        let fault = changed.as_ref().err().map(ToString::to_string);
        if let Some(error) = fault.as_ref().filter(|error| self.root_fault.as_ref() != Some(*error)) {
            tracing::error!(error, "the CA could not be renewed or reloaded; the present one stays");
        }
        self.root_fault = fault;
        if let Ok(Some(authority)) = changed {
            tracing::info!(serial = authority.signer().serial, "another certificate signs now");
            warn_if_revoked(&authority);
            self.authority.store(authority);
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

    async fn reconcile(
        &self,
        authority: &Authority,
        now: OffsetDateTime,
        faults: &mut BTreeSet<String>,
    ) -> Result<Reconciled, StoreError> {
        let Some(options) = &self.options.accounts else { return Ok(Reconciled::default()) };
        let done = accounts::reconcile_all(&self.store, authority, options, now).await?;
        self.metrics.count_accounts(&done);
        log("ServiceAccounts", &done, faults);
        Ok(done)
    }

    async fn reconcile_hosts(
        &self,
        authority: &Authority,
        now: OffsetDateTime,
        faults: &mut BTreeSet<String>,
    ) -> Result<Reconciled, StoreError> {
        let Some(options) = &self.options.hosts else { return Ok(Reconciled::default()) };
        let (done, refused) = hosts::reconcile(&self.store, authority, options, now).await?;
        self.metrics.count_hosts(&done);
        log("hosts", &done, faults);
        faults.extend(refused.into_iter().map(|(ingress, error)| format!("Ingress {ingress}: {error}")));
        Ok(done)
    }
}

/// Does `attempt` again for as long as the store does not answer: an error is not an absence.
async fn patiently<T, F>(attempt: impl Fn() -> F) -> Result<T, StartError>
where
    F: Future<Output = Result<T, StartError>>,
{
    let mut pause = FIRST_RETRY;
    let mut waited = Duration::ZERO;
    loop {
        match attempt().await {
            Err(
                StartError::Root(RootError::Store(StoreError::Unavailable(reason)))
                | StartError::Plugged(PluggedError::Store(StoreError::Unavailable(reason))),
            ) if waited < START_DEADLINE => {
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
    may_renew: bool,
    now: OffsetDateTime,
) -> Result<Option<Arc<Authority>>, RootError> {
    let next = match roots::check(store, options, current, may_renew, now).await {
        Ok(Checked::Unchanged) => return Ok(None),
        Ok(Checked::Reloaded(next) | Checked::Renewed(next)) => next,
        // Another replica renewed at the same moment; the next turn reads what it made.
        Err(RootError::Store(StoreError::Conflict(_))) => return Ok(None),
        Err(error) => return Err(error),
    };
    *current = next;
    Ok(Some(Arc::clone(&current.authority)))
}

fn warn_if_revoked(authority: &Authority) {
    if authority.is_revoked() {
        tracing::error!(
            subject = authority.signer().subject_text,
            "a list of the CA revokes its own certificate or one above it: nobody who has the list accepts what it issues"
        );
    }
}

fn looked_at<T>(of: &'static str, result: Result<T, StoreError>) -> Option<T> {
    result.inspect_err(|error| tracing::warn!(of, %error, "not everything could be looked at")).ok()
}

fn log(of: &'static str, done: &Reconciled, faults: &mut BTreeSet<String>) {
    let Reconciled { created, refreshed, roots_updated, deleted, failed, .. } = done;
    if created + refreshed + roots_updated + deleted > 0 {
        tracing::info!(of, created, refreshed, roots_updated, deleted, "Secrets written");
    }
    faults.extend(failed.iter().map(|(name, error)| format!("no Secret of {of} for {name}: {error}")));
}

#[cfg(test)]
mod tests;
