//! The objects of one kind by name.

use std::collections::HashMap;
use std::sync::Arc;

use super::objects::ObjectName;

pub(super) struct Table<T>(HashMap<ObjectName, Arc<T>>);

/// Whether an object comes into a table or goes out of it, and so into and out of the indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    In,
    Out,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T> Table<T> {
    pub fn get(&self, name: &ObjectName) -> Option<&Arc<T>> {
        self.0.get(name)
    }

    pub fn values(&self) -> impl Iterator<Item = &Arc<T>> {
        self.0.values()
    }

    /// Puts `new` in the place of the object called `name`, or takes that out. What goes and what comes, in this
    /// order, for whoever keeps indexes.
    pub fn replace(
        &mut self,
        name: &ObjectName,
        new: Option<Arc<T>>,
    ) -> impl Iterator<Item = (Arc<T>, Entry)> + use<T> {
        let old = match &new {
            Some(new) => self.0.insert(name.clone(), new.clone()),
            None => self.0.remove(name),
        };
        let old = old.map(|old| (old, Entry::Out));
        old.into_iter().chain(new.map(|new| (new, Entry::In)))
    }
}
