//! The set of root certificates that peers are told to trust.
//!
//! It is a set: order, comments and line ends of a PEM file do not matter to equality, a certificate is in it
//! once. The order it was built in is kept for output, the current root first.

use time::OffsetDateTime;

use super::certificate::{Certificate, CertificateError};

/// Trusted roots, each once.
#[derive(Clone, Debug, Default)]
pub struct RootBundle {
    roots: Vec<Certificate>,
}

impl RootBundle {
    pub fn new(roots: impl IntoIterator<Item = Certificate>) -> Self {
        let mut bundle = Self::default();
        for root in roots {
            bundle.insert(root);
        }
        bundle
    }

    /// Every certificate in a PEM text; blocks of other kinds are passed over.
    pub fn from_pem(text: &[u8]) -> Result<Self, CertificateError> {
        Ok(Self::new(Certificate::from_pem(text)?))
    }

    /// Adds a root at the end unless it is there already.
    pub fn insert(&mut self, root: Certificate) {
        if !self.contains(&root) {
            self.roots.push(root);
        }
    }

    pub fn contains(&self, certificate: &Certificate) -> bool {
        self.roots.contains(certificate)
    }

    /// Both hold the same certificates.
    pub fn same_as(&self, other: &Self) -> bool {
        self.roots.len() == other.roots.len() && self.contains_all(other)
    }

    /// Every root of `other` is in here.
    pub fn contains_all(&self, other: &Self) -> bool {
        other.roots.iter().all(|root| self.contains(root))
    }

    /// Without the roots that have ended.
    pub fn without_expired(self, now: OffsetDateTime) -> Self {
        Self { roots: self.roots.into_iter().filter(|root| root.not_after >= now).collect() }
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Certificate> {
        self.roots.iter()
    }

    pub fn len(&self) -> usize {
        self.roots.len()
    }

    pub fn is_empty(&self) -> bool {
        self.roots.is_empty()
    }

    pub fn to_pem(&self) -> String {
        self.roots.iter().map(Certificate::to_pem).collect()
    }
}

#[cfg(test)]
mod tests;
