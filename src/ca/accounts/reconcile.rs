//! Carrying plans out against a store.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::stream::{self, StreamExt};
use time::OffsetDateTime;

use super::{
    ACCOUNT_ANNOTATION, AccountOptions, Action, CERT_CHAIN, IssueReason, KEY, ROOT_CERT, SECRET_TYPE,
    account_name, plan, secret_name,
};
use crate::ca::authority::{Authority, IssueError};
use crate::ca::csr::PublicKey;
use crate::ca::identity::{NameError, WorkloadNames};
use crate::ca::key::{KeyError, PrivateKey};
use crate::ca::store::{Account, Accounts, Secret, Store, StoreError};
use crate::store::objects::ObjectName;
use crate::tls::spiffe::{SpiffeError, SpiffeId};

/// Writes under way at once. A store takes milliseconds for one, a fleet has thousands.
const WRITES_AT_ONCE: usize = 64;

/// Why a Secret is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Issue(#[from] IssueError),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Identity(#[from] SpiffeError),
    #[error(transparent)]
    Names(#[from] NameError),
    #[error("Secret {0} is not one of ours and is not touched")]
    Foreign(ObjectName),
}

/// What a pass did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Reconciled {
    pub created: usize,
    pub refreshed: usize,
    pub roots_updated: usize,
    pub deleted: usize,
    /// Secrets that someone else wrote meanwhile, and those of namespaces that are going away.
    pub overtaken: usize,
    /// Failures by account; they are tried again in the next pass and keep no other account from its Secret.
    pub failed: Vec<(ObjectName, SecretError)>,
    /// When the next Secret is due, if nothing changes before.
    pub next: Option<OffsetDateTime>,
}

/// Brings the Secrets of all accounts up to date, and removes those whose account is gone.
pub async fn reconcile_all<S: Store>(
    store: &S,
    authority: &Authority,
    options: &AccountOptions,
    now: OffsetDateTime,
) -> Result<Reconciled, StoreError> {
    let Accounts { list, complete } = store.accounts().await?;
    let accounts = by_name(list, |account| account.name.clone());
    let namespaces = by_name(store.namespaces().await?, |namespace| namespace.name.clone());
    let secrets = by_name(store.secrets(SECRET_TYPE).await?, |secret| secret.name.clone());
    let names: BTreeSet<ObjectName> =
        accounts.keys().cloned().chain(secrets.keys().filter_map(account_name)).collect();
    let one = async |name: ObjectName| {
        let namespace = namespaces.get(&*name.namespace);
        let existing = secrets.get(&secret_name(&name));
        let account = accounts.get(&name);
        let action = match plan(&name, account, namespace, existing, authority, options, now) {
            Action::Delete if account.is_none() && !complete => Action::Keep { until: None },
            action => action,
        };
        let outcome = carry_out(store, &name, account, existing, &action, authority, options, now).await;
        (name, action, outcome)
    };
    let mut outcomes = stream::iter(names).map(one).buffer_unordered(WRITES_AT_ONCE);
    let mut done = Reconciled::default();
    while let Some((name, action, outcome)) = outcomes.next().await {
        done.add(name, action, outcome);
    }
    Ok(done)
}

/// What became of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// What was there has changed since it was looked at: the next pass decides anew.
    Overtaken,
}

#[allow(clippy::too_many_arguments, reason = "the inputs of the plan, once more")]
async fn carry_out<S: Store>(
    store: &S,
    name: &ObjectName,
    account: Option<&Account>,
    existing: Option<&Secret>,
    action: &Action,
    authority: &Authority,
    options: &AccountOptions,
    now: OffsetDateTime,
) -> Result<Outcome, SecretError> {
    let done = match (action, existing) {
        (Action::Keep { .. } | Action::Delete, None) | (Action::Keep { .. }, Some(_)) => Ok(()),
        (Action::Delete, Some(existing)) => store.delete_secret(existing).await,
        (Action::Foreign, _) => return Err(SecretError::Foreign(secret_name(name))),
        (Action::UpdateRoots, Some(existing)) => {
            let mut secret = existing.clone();
            secret.data.insert(ROOT_CERT.to_owned(), authority.roots().to_pem().into());
            store.write_secret(&secret).await
        }
        (Action::UpdateRoots | Action::Issue(_), _) => {
            let secret = issue(name, account, existing, authority, options, now)?;
            store.write_secret(&secret).await
        }
    };
    outcome(store, done, |other| other.kind == SECRET_TYPE).await
}

/// What a write of a Secret came to; `is_ours` judges one that is in its place.
pub(in crate::ca) async fn outcome<S: Store>(
    store: &S,
    done: Result<(), StoreError>,
    is_ours: impl Fn(&Secret) -> bool,
) -> Result<Outcome, SecretError> {
    match done {
        Ok(()) => Ok(Outcome::Done),
        Err(StoreError::AlreadyExists(name)) => match store.secret(&name).await? {
            Some(other) if !is_ours(&other) => Err(SecretError::Foreign(name)),
            _ => Ok(Outcome::Overtaken),
        },
        Err(
            StoreError::Conflict(_) | StoreError::NamespaceTerminating(_) | StoreError::NamespaceNotFound(_),
        ) => Ok(Outcome::Overtaken),
        Err(error) => Err(error.into()),
    }
}

fn issue(
    name: &ObjectName,
    account: Option<&Account>,
    existing: Option<&Secret>,
    authority: &Authority,
    options: &AccountOptions,
    now: OffsetDateTime,
) -> Result<Secret, SecretError> {
    let id = SpiffeId::new(&options.trust_domain, &name.namespace, &name.name)?;
    let names = WorkloadNames::new(id, options.dns_names.of(&name.namespace, &name.name).to_vec())?;
    let key = PrivateKey::generate(options.key)?;
    let issued = authority.issue(&PublicKey::from_own_key(&key), &names, options.life, now)?;
    let mut secret = existing.cloned().unwrap_or_else(|| Secret::new(secret_name(name), SECRET_TYPE));
    secret.annotations.insert(ACCOUNT_ANNOTATION.to_owned(), name.name.to_string());
    secret.data.insert(CERT_CHAIN.to_owned(), authority.chain_pem(&issued.leaf).into());
    secret.data.insert(KEY.to_owned(), key.to_pem().as_bytes().into());
    secret.data.insert(ROOT_CERT.to_owned(), authority.roots().to_pem().into());
    // Without a UID the API server would take the owner for one that is gone, and collect the Secret.
    secret.owner = account.filter(|account| !account.uid.is_empty()).cloned();
    Ok(secret)
}

impl Reconciled {
    /// Whether everything was as it should be.
    pub fn changed_nothing(&self) -> bool {
        let written = self.created + self.refreshed + self.roots_updated + self.deleted;
        written + self.overtaken + self.failed.len() == 0
    }

    pub(in crate::ca) fn add(
        &mut self,
        name: ObjectName,
        action: Action,
        outcome: Result<Outcome, SecretError>,
    ) {
        match (action, outcome) {
            (_, Err(error)) => self.failed.push((name, error)),
            (_, Ok(Outcome::Overtaken)) => self.overtaken += 1,
            (Action::Issue(IssueReason::Missing), Ok(Outcome::Done)) => self.created += 1,
            (Action::Issue(_), Ok(Outcome::Done)) => self.refreshed += 1,
            (Action::UpdateRoots, Ok(Outcome::Done)) => self.roots_updated += 1,
            (Action::Delete, Ok(Outcome::Done)) => self.deleted += 1,
            (Action::Keep { until: Some(until) }, Ok(Outcome::Done)) => {
                self.next = Some(self.next.map_or(until, |next| next.min(until)));
            }
            (Action::Keep { until: None } | Action::Foreign, Ok(Outcome::Done)) => {}
        }
    }
}

fn by_name<K: Ord, T>(items: Vec<T>, name: impl Fn(&T) -> K) -> BTreeMap<K, T> {
    items.into_iter().map(|item| (name(&item), item)).collect()
}
