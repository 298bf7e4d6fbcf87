//! Who a certificate is for: one SPIFFE ID, and DNS names that the operator configured for the account.
//!
//! Names are a list from end to end and never joined into one text, so no name can smuggle in a second one.

use std::collections::BTreeMap;

use super::profile::SubjectName;
use crate::tls::spiffe::SpiffeId;

/// The trust domain used where none is configured.
pub const DEFAULT_TRUST_DOMAIN: &str = "cluster.local";

/// Why a name was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("DNS name {0:?}: only lower-case letters, digits, '-' and '.' between labels are allowed")]
    Dns(String),
    #[error("custom DNS name {0:?}: expected ACCOUNT.NAMESPACE:DNSNAME")]
    Entry(String),
    #[error("trust domain {0:?}: only lower-case letters, digits, '-', '_' and '.' are allowed")]
    TrustDomain(String),
}

/// The names of one workload certificate: the SPIFFE ID first, then DNS names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadNames {
    id: SpiffeId,
    dns: Vec<String>,
}

impl WorkloadNames {
    pub fn new(id: SpiffeId, dns: Vec<String>) -> Result<Self, NameError> {
        match dns.iter().find(|name| !is_dns_name(name)) {
            Some(bad) => Err(NameError::Dns(bad.clone())),
            None => Ok(Self { id, dns }),
        }
    }

    /// A SPIFFE ID alone.
    pub fn of(id: SpiffeId) -> Self {
        Self { id, dns: Vec::new() }
    }

    pub fn id(&self) -> &SpiffeId {
        &self.id
    }

    pub(super) fn to_subject_names(&self) -> Vec<SubjectName> {
        let id = SubjectName::Uri(self.id.to_string());
        std::iter::once(id).chain(self.dns.iter().cloned().map(SubjectName::Dns)).collect()
    }
}

/// A trust domain as configured: empty gives the default and `@` becomes `.`, as it always was.
pub fn trust_domain(configured: &str) -> Result<String, NameError> {
    let domain = match configured {
        "" => DEFAULT_TRUST_DOMAIN.to_owned(),
        text => text.replace('@', "."),
    };
    SpiffeId::new(&domain, "default", "default")
        .map(|_| domain)
        .map_err(|_| NameError::TrustDomain(configured.to_owned()))
}

/// DNS names by account, from `--custom-dns-names ACCOUNT.NAMESPACE:DNSNAME,…`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CustomDnsNames {
    by_account: BTreeMap<String, Vec<String>>,
}

impl CustomDnsNames {
    /// Reads the comma list. A faulty entry is left out and reported, the others count; repeated accounts add up.
    pub fn parse(list: &str) -> (Self, Vec<NameError>) {
        let mut names = Self::default();
        let mut faults = Vec::new();
        for entry in list.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            match entry.split_once(':') {
                Some((account, _)) if !account.contains('.') => {
                    faults.push(NameError::Entry(entry.to_owned()))
                }
                Some((_, name)) if name.contains(':') => faults.push(NameError::Entry(entry.to_owned())),
                Some((_, name)) if !is_dns_name(name) => faults.push(NameError::Dns(name.to_owned())),
                Some((account, name)) => {
                    names.by_account.entry(account.to_owned()).or_default().push(name.to_owned());
                }
                None => faults.push(NameError::Entry(entry.to_owned())),
            }
        }
        (names, faults)
    }

    /// The names of an account, in the order they were given.
    pub fn of(&self, namespace: &str, account: &str) -> &[String] {
        self.by_account.get(&format!("{account}.{namespace}")).map_or(&[], Vec::as_slice)
    }
}

/// Lower-case labels with dots between them (RFC 1123 section 2.1).
pub(super) fn is_dns_name(name: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

#[cfg(test)]
mod tests;
