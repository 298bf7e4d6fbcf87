//! The store that the operator chose: a state directory or an API server.

use super::directory::Directory;
use super::kubernetes::{Kubernetes, Needs};
use super::{Accounts, ConfigMap, IngressHosts, Namespace, Revision, Secret, Store, StoreError};
use crate::store::objects::ObjectName;

/// One of the stores there are.
#[derive(Clone)]
pub enum AnyStore {
    Directory(Directory),
    Kubernetes(Kubernetes),
}

impl AnyStore {
    /// Has changes told from now on, by tasks on the present runtime.
    pub fn follow(self, needs: &Needs) -> Self {
        match self {
            Self::Directory(store) => Self::Directory(store.follow()),
            Self::Kubernetes(store) => Self::Kubernetes(Kubernetes::follow(store.api().clone(), needs)),
        }
    }
}

macro_rules! ask {
    ($store:expr, $method:ident($($argument:expr),*)) => {
        match $store {
            AnyStore::Directory(store) => store.$method($($argument),*).await,
            AnyStore::Kubernetes(store) => store.$method($($argument),*).await,
        }
    };
}

impl Store for AnyStore {
    async fn revision(&self) -> Result<Revision, StoreError> {
        ask!(self, revision())
    }

    async fn changed(&self, since: &Revision) {
        ask!(self, changed(since))
    }

    async fn secret(&self, name: &ObjectName) -> Result<Option<Secret>, StoreError> {
        ask!(self, secret(name))
    }

    async fn secrets(&self, kind: &str) -> Result<Vec<Secret>, StoreError> {
        ask!(self, secrets(kind))
    }

    async fn write_secret(&self, secret: &Secret) -> Result<(), StoreError> {
        ask!(self, write_secret(secret))
    }

    async fn delete_secret(&self, secret: &Secret) -> Result<(), StoreError> {
        ask!(self, delete_secret(secret))
    }

    async fn config_maps(&self, name: &str) -> Result<Vec<ConfigMap>, StoreError> {
        ask!(self, config_maps(name))
    }

    async fn write_config_map(&self, map: &ConfigMap) -> Result<(), StoreError> {
        ask!(self, write_config_map(map))
    }

    async fn accounts(&self) -> Result<Accounts, StoreError> {
        ask!(self, accounts())
    }

    async fn ingresses(&self) -> Result<Vec<IngressHosts>, StoreError> {
        ask!(self, ingresses())
    }

    async fn issued_secrets(&self) -> Result<Vec<Secret>, StoreError> {
        ask!(self, issued_secrets())
    }

    async fn namespaces(&self) -> Result<Vec<Namespace>, StoreError> {
        ask!(self, namespaces())
    }
}
