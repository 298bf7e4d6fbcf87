//! Placeholder until the path map and the canonical path stand here.

/// Routes of one host by path.
pub struct PathMap<T> {
    routes: Vec<T>,
}

impl<T> PathMap<T> {
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.routes.iter()
    }
}
