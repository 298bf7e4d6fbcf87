//! From a key to the names of the objects that have it, both sides in order.

use std::collections::{BTreeMap, BTreeSet};

use super::objects::ObjectName;

pub(super) struct Index<K>(BTreeMap<K, BTreeSet<ObjectName>>);

impl<K> Default for Index<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord> Index<K> {
    pub fn insert(&mut self, key: K, name: ObjectName) {
        self.0.entry(key).or_default().insert(name);
    }

    pub fn remove(&mut self, key: &K, name: &ObjectName) {
        if let Some(names) = self.0.get_mut(key) {
            names.remove(name);
            if names.is_empty() {
                self.0.remove(key);
            }
        }
    }

    pub fn get(&self, key: &K) -> impl Iterator<Item = &ObjectName> {
        self.0.get(key).into_iter().flatten()
    }

    pub fn contains(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.keys()
    }

    /// Keys from `first` on.
    pub fn range(&self, first: K) -> impl Iterator<Item = &K> {
        self.0.range(first..).map(|(key, _)| key)
    }
}
