//! What the CA reads and writes, whatever keeps it: Secrets, ConfigMaps, accounts and namespaces.
//!
//! A write names the version it replaces, and no version means "must not exist yet": creation is therefore the
//! lock that decides between replicas, and no write can undo one it has not seen. Implementations:
//! [`directory::Directory`] on one machine, [`kubernetes::Kubernetes`] in a cluster, [`any::AnyStore`] for whoever
//! lets the operator choose.

pub mod any;
pub mod directory;
mod documents;
pub mod kubernetes;
#[cfg(any(test, feature = "testing"))]
pub mod memory;

use std::collections::BTreeMap;
use std::fmt;

use zeroize::Zeroizing;

use crate::store::objects::ObjectName;

/// Why the store did not do it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("{0} exists already")]
    AlreadyExists(ObjectName),
    #[error("{0} was changed by someone else in the meantime")]
    Conflict(ObjectName),
    #[error("namespace {0} is being deleted")]
    NamespaceTerminating(String),
    #[error("namespace {0} does not exist")]
    NamespaceNotFound(String),
    #[error("not allowed: {0}")]
    Forbidden(String),
    #[error("the store does not answer: {0}")]
    Unavailable(String),
    #[error("{object} is not readable: {reason}")]
    Malformed { object: String, reason: String },
}

/// Bytes of a Secret. `Debug` shows their number only.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretBytes(Zeroizing<Vec<u8>>);

impl SecretBytes {
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<&[u8]> for SecretBytes {
    fn from(bytes: &[u8]) -> Self {
        Self(Zeroizing::new(bytes.to_vec()))
    }
}

impl From<&str> for SecretBytes {
    fn from(text: &str) -> Self {
        text.as_bytes().into()
    }
}

impl From<String> for SecretBytes {
    fn from(text: String) -> Self {
        Self(Zeroizing::new(text.into_bytes()))
    }
}

impl From<Vec<u8>> for SecretBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }
}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secret bytes", self.0.len())
    }
}

/// The version of a stored object, opaque but to its store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version(pub String);

/// Changes whenever any object of a store may have changed; equal revisions mean that nothing did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision(pub String);

/// A Secret with all that has to survive a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secret {
    pub name: ObjectName,
    /// `type`.
    pub kind: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub data: BTreeMap<String, SecretBytes>,
    /// The account that owns it, deleted with it by the API server's garbage collection.
    pub owner: Option<Account>,
    /// `None` for one that is to be created.
    pub version: Option<Version>,
}

impl Secret {
    /// A Secret that does not exist yet.
    pub fn new(name: ObjectName, kind: &str) -> Self {
        Self {
            name,
            kind: kind.to_owned(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            data: BTreeMap::new(),
            owner: None,
            version: None,
        }
    }

    /// The bytes under `key`; a missing key is as an empty one.
    pub fn bytes(&self, key: &str) -> &[u8] {
        self.data.get(key).map_or(&[], SecretBytes::as_slice)
    }
}

/// A ConfigMap with all that has to survive a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMap {
    pub name: ObjectName,
    pub labels: BTreeMap<String, String>,
    pub data: BTreeMap<String, String>,
    pub version: Option<Version>,
}

/// A ServiceAccount.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Account {
    pub name: ObjectName,
    /// Empty where the store has none.
    pub uid: String,
}

/// The ServiceAccounts there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accounts {
    pub list: Vec<Account>,
    /// Whether these are all. Where a part could not be read, one that is missing is not gone.
    pub complete: bool,
}

/// A Namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    /// Being deleted: nothing can be created in it any more.
    pub terminating: bool,
}

/// A `tls` entry of an Ingress that asks for a certificate by annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRequest {
    pub ingress: ObjectName,
    pub secret: ObjectName,
    /// As they are written, those of the rules where the entry names none.
    pub hosts: Vec<String>,
}

/// What an Ingress says about hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngressHosts {
    pub ingress: ObjectName,
    /// `metadata.creationTimestamp` in seconds since the Unix epoch; `None` where a manifest has none.
    pub created: Option<i64>,
    /// Hosts of its rules, in lower case.
    pub claims: Vec<String>,
    pub requests: Vec<CertificateRequest>,
}

/// Where the CA keeps its objects.
pub trait Store: Send + Sync {
    /// What all objects amount to. Far cheaper than reading them: it is asked for at every turn.
    fn revision(&self) -> impl Future<Output = Result<Revision, StoreError>> + Send;

    /// Waits until the revision may be another than `since`; for ever where the store cannot tell by itself.
    fn changed(&self, since: &Revision) -> impl Future<Output = ()> + Send;

    /// The Secret, or `None` only if it certainly does not exist.
    fn secret(&self, name: &ObjectName) -> impl Future<Output = Result<Option<Secret>, StoreError>> + Send;

    /// All Secrets of a type, in all namespaces.
    fn secrets(&self, kind: &str) -> impl Future<Output = Result<Vec<Secret>, StoreError>> + Send;

    /// Creates (`version` is `None`) or replaces exactly that version.
    fn write_secret(&self, secret: &Secret) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Deletes exactly the version that was read; one that does not exist is success.
    fn delete_secret(&self, secret: &Secret) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// The ConfigMaps of a name in all namespaces.
    fn config_maps(&self, name: &str) -> impl Future<Output = Result<Vec<ConfigMap>, StoreError>> + Send;

    /// Creates (`version` is `None`) or replaces exactly that version.
    fn write_config_map(&self, map: &ConfigMap) -> impl Future<Output = Result<(), StoreError>> + Send;

    fn accounts(&self) -> impl Future<Output = Result<Accounts, StoreError>> + Send;

    /// All Ingresses that name a host or ask for a certificate, without requests for Secrets that are known to come
    /// from somebody else.
    fn ingresses(&self) -> impl Future<Output = Result<Vec<IngressHosts>, StoreError>> + Send;

    /// The Secrets that [`hosts`](super::hosts) has made.
    fn issued_secrets(&self) -> impl Future<Output = Result<Vec<Secret>, StoreError>> + Send;

    fn namespaces(&self) -> impl Future<Output = Result<Vec<Namespace>, StoreError>> + Send;
}
