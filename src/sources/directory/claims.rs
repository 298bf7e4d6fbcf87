//! Who defines what, where several may: the first in order counts, the others wait.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::Arc;

pub struct Claims<K, C>(HashMap<K, BTreeSet<Arc<C>>>);

impl<K, C> Default for Claims<K, C> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Clone + Eq + Hash, C: Ord> Claims<K, C> {
    /// The claimant that counts.
    pub fn first(&self, key: &K) -> Option<&Arc<C>> {
        self.0.get(key)?.first()
    }

    /// Adds a claim and returns the claimant that had counted until now.
    pub fn add(&mut self, key: &K, claimant: &Arc<C>) -> Option<Arc<C>> {
        let claimants = self.0.entry(key.clone()).or_default();
        let before = claimants.first().cloned();
        claimants.insert(claimant.clone());
        before
    }

    /// Withdraws a claim and returns the claimant that counts from now on.
    pub fn withdraw(&mut self, key: &K, claimant: &Arc<C>) -> Option<&Arc<C>> {
        let claimants = self.0.get_mut(key)?;
        claimants.remove(claimant);
        if claimants.is_empty() {
            self.0.remove(key);
        }
        self.first(key)
    }
}
