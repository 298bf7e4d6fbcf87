//! Which ConfigMaps should hold the roots, and what has to be written so that they do.
//!
//! [`wanted`] is pure and level-triggered: from the namespaces and maps that exist it gives the writes that are
//! missing, so a new namespace, a hand edit, a deletion and a rotation are all the same case. Keys of others in a
//! map are kept. [`distribute`] does the writes.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::authority::Authority;
use super::bundle::RootBundle;
use super::store::{ConfigMap, Namespace, Store, StoreError};
use crate::store::objects::ObjectName;

/// The map in every namespace: PEM text under `root-cert.pem`.
pub const ROOT_MAP: &str = "istio-ca-root-cert";
const ROOT_KEY: &str = "root-cert.pem";

/// The map in the storage namespace that older agents read: base64 of the PEM text under `caTLSRootCert`.
pub const CLASSIC_MAP: &str = "istio-security";
const CLASSIC_KEY: &str = "caTLSRootCert";

/// The map in every namespace with the CRLs of a plugged-in CA.
pub const CRL_MAP: &str = "istio-ca-crl";
const CRL_KEY: &str = "ca-crl.pem";

/// Namespaces that hold no workloads and get nothing.
const IGNORED: [&str; 3] = ["kube-public", "kube-node-lease", "local-path-storage"];

/// Which maps are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapNames {
    pub everywhere: bool,
    pub classic: bool,
}

impl Default for MapNames {
    fn default() -> Self {
        Self { everywhere: true, classic: true }
    }
}

/// The names of the root maps that should exist.
pub fn places(namespaces: &[Namespace], storage_namespace: &str, maps: &MapNames) -> Vec<ObjectName> {
    let mut places = Vec::new();
    if maps.everywhere {
        places.extend(served(namespaces).map(|namespace| ObjectName::new(namespace.name.as_str(), ROOT_MAP)));
    }
    let gone =
        namespaces.iter().any(|namespace| namespace.name == storage_namespace && namespace.terminating);
    if maps.classic && !gone {
        places.push(ObjectName::new(storage_namespace, CLASSIC_MAP));
    }
    places
}

/// The bundle in a root map of either kind; `None` where there is none to be read.
pub fn bundle_of(map: &ConfigMap) -> Option<RootBundle> {
    let text = match &*map.name.name {
        CLASSIC_MAP => STANDARD.decode(map.data.get(CLASSIC_KEY)?.trim()).ok()?,
        _ => map.data.get(ROOT_KEY)?.clone().into_bytes(),
    };
    RootBundle::from_pem(&text).ok().filter(|bundle| !bundle.is_empty())
}

/// The writes that are missing: maps to create (without version) and to correct (with the version read).
pub fn wanted(
    authority: &Authority,
    namespaces: &[Namespace],
    existing: &BTreeMap<ObjectName, ConfigMap>,
    storage_namespace: &str,
    maps: &MapNames,
) -> Vec<ConfigMap> {
    let roots = authority.roots().to_pem();
    let mut entries: Vec<(ObjectName, &str, String)> = places(namespaces, storage_namespace, maps)
        .into_iter()
        .map(|name| match &*name.name {
            CLASSIC_MAP => (name, CLASSIC_KEY, STANDARD.encode(&roots)),
            _ => (name, ROOT_KEY, roots.clone()),
        })
        .collect();
    if !authority.revocations().is_empty() {
        let list = authority.revocations_pem();
        let names = served(namespaces).map(|namespace| ObjectName::new(namespace.name.as_str(), CRL_MAP));
        entries.extend(names.map(|name| (name, CRL_KEY, list.clone())));
    }
    entries
        .into_iter()
        .filter_map(|(name, key, value)| correct(existing.get(&name), name, key, value))
        .collect()
}

/// What a round of writes did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distributed {
    pub written: usize,
    /// Maps that could not be written for a reason worth a word; they are tried again in the next round.
    pub failed: Vec<(ObjectName, StoreError)>,
}

/// Brings every map up to date. A namespace that is going away, or gone, is no error.
pub async fn distribute<S: Store>(
    store: &S,
    authority: &Authority,
    storage_namespace: &str,
    maps: &MapNames,
) -> Result<Distributed, StoreError> {
    let namespaces = store.namespaces().await?;
    let existing = existing(store, maps).await?;
    let mut done = Distributed::default();
    for map in wanted(authority, &namespaces, &existing, storage_namespace, maps) {
        match store.write_config_map(&map).await {
            Ok(()) => done.written += 1,
            Err(
                StoreError::AlreadyExists(_)
                | StoreError::Conflict(_)
                | StoreError::NamespaceTerminating(_)
                | StoreError::NamespaceNotFound(_),
            ) => {}
            Err(error) => done.failed.push((map.name, error)),
        }
    }
    Ok(done)
}

/// The maps that are there, by name.
pub async fn existing<S: Store>(
    store: &S,
    maps: &MapNames,
) -> Result<BTreeMap<ObjectName, ConfigMap>, StoreError> {
    let mut existing = BTreeMap::new();
    let names = [(ROOT_MAP, maps.everywhere), (CLASSIC_MAP, maps.classic), (CRL_MAP, maps.everywhere)];
    for (name, _) in names.into_iter().filter(|(_, wanted)| *wanted) {
        existing.extend(store.config_maps(name).await?.into_iter().map(|map| (map.name.clone(), map)));
    }
    Ok(existing)
}

fn served(namespaces: &[Namespace]) -> impl Iterator<Item = &Namespace> {
    namespaces
        .iter()
        .filter(|namespace| !namespace.terminating && !IGNORED.contains(&namespace.name.as_str()))
}

/// The write that gives `key` its value, or `None` if it has it.
fn correct(existing: Option<&ConfigMap>, name: ObjectName, key: &str, value: String) -> Option<ConfigMap> {
    let mut map = match existing {
        Some(map) if map.data.get(key) == Some(&value) => return None,
        Some(map) => map.clone(),
        None => ConfigMap {
            name,
            labels: BTreeMap::from([("istio.io/config".to_owned(), "true".to_owned())]),
            data: BTreeMap::new(),
            version: None,
        },
    };
    map.data.insert(key.to_owned(), value);
    Some(map)
}

#[cfg(test)]
mod tests;
