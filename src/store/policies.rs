//! Policies of one kind, of which the last good version stays in force while a newer one cannot be read: a
//! slip of the pen must neither open a workload nor close it. A policy that was never good counts as its kind
//! reads it, which is closed.

use std::collections::{BTreeMap, BTreeSet};

use super::objects::{AuthorizationPolicy, ObjectName, PeerAuthentication, ReadyPolicy};

/// What all kinds of policies have in common.
pub trait Policy: PartialEq {
    fn name(&self) -> &ObjectName;
    /// It could not be read.
    fn refused(&self) -> bool;
}

/// Policies by name, in order.
#[derive(Debug)]
pub struct LastGood<T> {
    in_force: BTreeMap<ObjectName, T>,
    /// Those of which a newer version could not be read.
    outdated: BTreeSet<ObjectName>,
    /// Those that are there but were never readable enough to be in force.
    unreadable: BTreeSet<ObjectName>,
}

impl<T> Default for LastGood<T> {
    fn default() -> Self {
        Self { in_force: BTreeMap::new(), outdated: BTreeSet::new(), unreadable: BTreeSet::new() }
    }
}

impl<T: Policy> LastGood<T> {
    /// The versions in force.
    pub fn in_force(&self) -> impl Iterator<Item = &T> {
        self.in_force.values()
    }

    /// Policies that stay in force in an older version, because the newer one could not be read.
    pub fn outdated(&self) -> impl Iterator<Item = &ObjectName> {
        self.outdated.iter()
    }

    /// Takes a new version; `false` where nothing changed by it.
    pub(super) fn put(&mut self, new: T) -> bool {
        let name = new.name().clone();
        match self.in_force.get(&name) {
            Some(old) if new.refused() && !old.refused() => self.outdated.insert(name),
            Some(old) if *old == new => self.outdated.remove(&name),
            _ => {
                self.outdated.remove(&name);
                self.unreadable.remove(&name);
                self.in_force.insert(name, new);
                true
            }
        }
    }

    /// Takes a version that does not even say whom it is for.
    pub(super) fn put_unreadable(&mut self, name: ObjectName) -> bool {
        match self.in_force.contains_key(&name) {
            true => self.outdated.insert(name),
            false => self.unreadable.insert(name),
        }
    }

    pub(super) fn remove(&mut self, name: &ObjectName) -> bool {
        self.outdated.remove(name);
        self.unreadable.remove(name) | self.in_force.remove(name).is_some()
    }
}

impl Policy for AuthorizationPolicy {
    fn name(&self) -> &ObjectName {
        &self.metadata.name
    }

    fn refused(&self) -> bool {
        self.refused
    }
}

impl Policy for ReadyPolicy {
    fn name(&self) -> &ObjectName {
        &self.metadata.name
    }

    fn refused(&self) -> bool {
        self.refused
    }
}

impl Policy for PeerAuthentication {
    fn name(&self) -> &ObjectName {
        &self.metadata.name
    }

    fn refused(&self) -> bool {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn policy(mode: &str) -> PeerAuthentication {
        let object = json!({"metadata": {"name": "p", "namespace": "app"}, "spec": {"mtls": {"mode": mode}}});
        PeerAuthentication::decode(&object, "default", &mut Vec::new()).unwrap()
    }

    #[test]
    fn a_refused_version_leaves_the_last_good_one_in_force() {
        let mut policies = LastGood::default();
        let good = policy("PERMISSIVE");
        assert!(policies.put(good.clone()));
        assert!(!policies.put(good.clone()));
        assert!(policies.put(policy("STRIKT")));
        assert!(policies.in_force().eq([&good]));
        assert_eq!(policies.outdated().count(), 1);
        assert!(!policies.put_unreadable(good.name().clone()), "still outdated");
        assert!(policies.in_force().eq([&good]));
        assert!(policies.put(good.clone()), "the finding goes");
        assert_eq!(policies.outdated().count(), 0);
        assert!(policies.remove(good.name()));
        assert_eq!(policies.in_force().count(), 0);
    }

    #[test]
    fn one_that_was_never_good_is_in_force_as_it_is_read() {
        let mut policies = LastGood::default();
        assert!(policies.put(policy("STRIKT")));
        assert!(policies.in_force().all(Policy::refused));
        assert!(policies.put(policy("DISABLE")));
        assert!(!policies.in_force().any(Policy::refused));
    }

    #[test]
    fn one_without_a_selector_to_go_by_is_known_but_not_in_force() {
        let mut policies = LastGood::<PeerAuthentication>::default();
        let name = ObjectName::new("app", "p");
        assert!(policies.put_unreadable(name.clone()));
        assert_eq!(policies.in_force().count(), 0);
        assert!(policies.remove(&name));
        assert!(!policies.remove(&name), "it is not known any more");
    }
}
