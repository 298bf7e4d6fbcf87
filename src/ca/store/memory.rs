//! A store in memory whose operations can be made to fail, for tests.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{
    Account, Accounts, ConfigMap, IngressHosts, Namespace, Revision, Secret, Store, StoreError, Version,
};
use crate::ca::hosts;
use crate::store::objects::ObjectName;

/// Everything in it, free to be looked at and changed by a test.
#[derive(Default)]
pub struct Contents {
    pub secrets: BTreeMap<ObjectName, Secret>,
    pub config_maps: BTreeMap<ObjectName, ConfigMap>,
    pub accounts: Vec<Account>,
    pub namespaces: Vec<Namespace>,
    pub ingresses: Vec<IngressHosts>,
    /// The answer of every read, if set.
    pub fail_reads: Option<StoreError>,
    /// The answer of every write, if set.
    pub fail_writes: Option<StoreError>,
    /// Writes that succeeded.
    pub writes: usize,
    next_version: u64,
}

#[derive(Default)]
pub struct Memory {
    contents: Mutex<Contents>,
}

impl Memory {
    pub fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn readable(&self) -> Result<MutexGuard<'_, Contents>, StoreError> {
        let contents = self.contents();
        match contents.fail_reads.clone() {
            Some(error) => Err(error),
            None => Ok(contents),
        }
    }

    /// Checks a write against what is there and gives the new version.
    fn writable(
        &self,
        name: &ObjectName,
        given: Option<&Version>,
        existing: impl Fn(&Contents) -> Option<Option<Version>>,
    ) -> Result<(MutexGuard<'_, Contents>, Version), StoreError> {
        let mut contents = self.contents();
        if let Some(error) = contents.fail_writes.clone() {
            return Err(error);
        }
        if contents.namespaces.iter().any(|other| *other.name == *name.namespace && other.terminating) {
            return Err(StoreError::NamespaceTerminating(name.namespace.to_string()));
        }
        match (given, existing(&contents)) {
            (None, None) => {}
            (None, Some(_)) => return Err(StoreError::AlreadyExists(name.clone())),
            (Some(given), Some(Some(existing))) if *given == existing => {}
            (Some(_), _) => return Err(StoreError::Conflict(name.clone())),
        }
        contents.next_version += 1;
        contents.writes += 1;
        let version = Version(contents.next_version.to_string());
        Ok((contents, version))
    }
}

impl Store for Memory {
    /// Another one each time: tests change the contents behind the store's back.
    async fn revision(&self) -> Result<Revision, StoreError> {
        let mut contents = self.readable()?;
        contents.next_version += 1;
        Ok(Revision(contents.next_version.to_string()))
    }

    async fn changed(&self, _: &Revision) {
        std::future::pending().await
    }

    async fn secret(&self, name: &ObjectName) -> Result<Option<Secret>, StoreError> {
        Ok(self.readable()?.secrets.get(name).cloned())
    }

    async fn secrets(&self, kind: &str) -> Result<Vec<Secret>, StoreError> {
        Ok(self.readable()?.secrets.values().filter(|secret| secret.kind == kind).cloned().collect())
    }

    async fn write_secret(&self, secret: &Secret) -> Result<(), StoreError> {
        let name = &secret.name;
        let existing = |contents: &Contents| contents.secrets.get(name).map(|other| other.version.clone());
        let (mut contents, version) = self.writable(name, secret.version.as_ref(), existing)?;
        contents.secrets.insert(name.clone(), Secret { version: Some(version), ..secret.clone() });
        Ok(())
    }

    async fn delete_secret(&self, secret: &Secret) -> Result<(), StoreError> {
        let mut contents = self.contents();
        if let Some(error) = contents.fail_writes.clone() {
            return Err(error);
        }
        match contents.secrets.get(&secret.name) {
            Some(other) if other.version != secret.version => Err(StoreError::Conflict(secret.name.clone())),
            _ => {
                contents.secrets.remove(&secret.name);
                Ok(())
            }
        }
    }

    async fn config_maps(&self, name: &str) -> Result<Vec<ConfigMap>, StoreError> {
        Ok(self.readable()?.config_maps.values().filter(|map| &*map.name.name == name).cloned().collect())
    }

    async fn write_config_map(&self, map: &ConfigMap) -> Result<(), StoreError> {
        let name = &map.name;
        let existing =
            |contents: &Contents| contents.config_maps.get(name).map(|other| other.version.clone());
        let (mut contents, version) = self.writable(name, map.version.as_ref(), existing)?;
        contents.config_maps.insert(name.clone(), ConfigMap { version: Some(version), ..map.clone() });
        Ok(())
    }

    async fn accounts(&self) -> Result<Accounts, StoreError> {
        Ok(Accounts { list: self.readable()?.accounts.clone(), complete: true })
    }

    async fn ingresses(&self) -> Result<Vec<IngressHosts>, StoreError> {
        Ok(self.readable()?.ingresses.clone())
    }

    async fn issued_secrets(&self) -> Result<Vec<Secret>, StoreError> {
        Ok(self.readable()?.secrets.values().filter(|secret| hosts::is_ours(secret)).cloned().collect())
    }

    async fn namespaces(&self) -> Result<Vec<Namespace>, StoreError> {
        Ok(self.readable()?.namespaces.clone())
    }
}
