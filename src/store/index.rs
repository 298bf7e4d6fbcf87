//! From a key to the names of the objects that have it, both sides in order.

use std::collections::{BTreeMap, BTreeSet, btree_map};

use super::objects::ObjectName;
use super::table::Entry;

pub(super) struct Index<K>(BTreeMap<K, Names>);

/// Nearly every host has one Ingress and every Secret one host: a set of one would take ten times the room.
enum Names {
    One(ObjectName),
    Several(BTreeSet<ObjectName>),
}

impl<K> Default for Index<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord> Index<K> {
    /// Files an object under `key` as it comes, and takes it out as it goes.
    pub fn file(&mut self, key: K, name: &ObjectName, entry: Entry) {
        match entry {
            Entry::In => self.insert(key, name.clone()),
            Entry::Out => self.remove(&key, name),
        }
    }

    fn insert(&mut self, key: K, name: ObjectName) {
        match self.0.entry(key) {
            btree_map::Entry::Vacant(entry) => _ = entry.insert(Names::One(name)),
            btree_map::Entry::Occupied(mut entry) => entry.get_mut().insert(name),
        }
    }

    fn remove(&mut self, key: &K, name: &ObjectName) {
        if self.0.get_mut(key).is_some_and(|names| names.remove(name)) {
            self.0.remove(key);
        }
    }

    pub fn get(&self, key: &K) -> impl Iterator<Item = &ObjectName> {
        let (one, several) = match self.0.get(key) {
            None => (None, None),
            Some(Names::One(name)) => (Some(name), None),
            Some(Names::Several(names)) => (None, Some(names)),
        };
        one.into_iter().chain(several.into_iter().flatten())
    }

    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.keys()
    }

    /// Keys from `first` on.
    pub fn range(&self, first: K) -> impl Iterator<Item = &K> {
        self.0.range(first..).map(|(key, _)| key)
    }
}

impl Names {
    fn insert(&mut self, name: ObjectName) {
        match self {
            Self::One(one) if *one == name => {}
            Self::One(one) => *self = Self::Several([one.clone(), name].into()),
            Self::Several(names) => _ = names.insert(name),
        }
    }

    /// Whether none is left.
    fn remove(&mut self, name: &ObjectName) -> bool {
        match self {
            Self::One(one) => one == name,
            Self::Several(names) => {
                names.remove(name);
                names.is_empty()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_and_go_in_any_number() {
        let name = |name: &str| ObjectName::new("a", name);
        let mut index = Index::default();
        let names = |index: &Index<u8>| index.get(&1).map(|name| name.name.to_string()).collect::<Vec<_>>();
        for (added, all) in [("b", &["b"][..]), ("b", &["b"]), ("a", &["a", "b"]), ("c", &["a", "b", "c"])] {
            index.insert(1, name(added));
            assert_eq!(names(&index), all);
        }
        for (removed, left) in [("b", &["a", "c"][..]), ("x", &["a", "c"]), ("a", &["c"]), ("c", &[])] {
            index.remove(&1, &name(removed));
            assert_eq!(names(&index), left);
        }
        assert_eq!(index.keys().count(), 0);
        index.insert(1, name("a"));
        index.remove(&1, &name("b"));
        assert_eq!(names(&index), ["a"]);
    }
}
