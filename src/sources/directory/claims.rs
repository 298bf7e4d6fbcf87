//! Who defines what, where several may: the first in order counts, the others wait.

use std::hash::Hash;
use std::sync::Arc;

use ahash::AHashMap;

/// The claimants of each key in order. Nearly always there is one, which is what a vector is small for.
pub struct Claims<K, C>(AHashMap<K, Vec<Arc<C>>>);

impl<K, C> Default for Claims<K, C> {
    fn default() -> Self {
        Self(AHashMap::new())
    }
}

impl<K: Clone + Eq + Hash, C: Ord> Claims<K, C> {
    /// The claimant that counts.
    pub fn first(&self, key: &K) -> Option<&Arc<C>> {
        self.0.get(key)?.first()
    }

    /// All claimants in order.
    pub fn all(&self, key: &K) -> &[Arc<C>] {
        self.0.get(key).map_or(&[], Vec::as_slice)
    }

    /// Adds a claim and returns the claimant that had counted until now.
    pub fn add(&mut self, key: &K, claimant: &Arc<C>) -> Option<Arc<C>> {
        let claimants = self.0.entry(key.clone()).or_insert_with(|| Vec::with_capacity(1));
        let before = claimants.first().cloned();
        if let Err(place) = claimants.binary_search(claimant) {
            claimants.insert(place, claimant.clone());
        }
        before
    }

    /// Withdraws a claim and returns the claimant that counts from now on.
    pub fn withdraw(&mut self, key: &K, claimant: &Arc<C>) -> Option<&Arc<C>> {
        let claimants = self.0.get_mut(key)?;
        claimants.retain(|other| other != claimant);
        if claimants.is_empty() {
            self.0.remove(key);
        }
        self.first(key)
    }
}
