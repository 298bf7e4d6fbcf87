//! What the data plane needs and no more, immutable: made by `compile`, read by `tls` and `proxy`.
//!
//! A snapshot is replaced as a whole, in one pointer swap, so routing and certificates can never disagree.
//! Its maps share structure with their predecessors: replacing one entry among 100,000 costs what replacing
//! one among 100 costs. Nothing here knows a Kubernetes type beyond names.

pub mod certificates;
pub mod clusters;
pub mod hosts;
pub mod paths;
pub mod policies;
pub mod shared;

use std::sync::Arc;

use crate::settings::Settings;
use crate::tls::policy::TlsPolicy;
use certificates::CertificateMap;
use clusters::ClusterMap;
use hosts::HostMap;

/// Everything the workers serve by.
#[derive(Clone)]
pub struct Snapshot {
    /// Counts up with every snapshot that is published.
    pub generation: u64,
    pub settings: Arc<Settings>,
    pub certificates: CertificateMap,
    pub hosts: HostMap,
    pub clusters: ClusterMap,
    /// The TLS policy of hosts that have none of their own.
    pub tls: Arc<TlsPolicy>,
}

impl Snapshot {
    /// The TLS policy of a host (canonical, `None` without SNI): the one function that decides it, in the
    /// handshake and again for each request.
    pub fn tls_policy(&self, host: Option<&str>) -> &Arc<TlsPolicy> {
        let host = host.and_then(|host| self.hosts.find_named(host));
        host.and_then(|host| host.tls.as_ref()).unwrap_or(&self.tls)
    }
}

/// A map with structural sharing: a changed copy costs O(log n).
pub type SharedMap<K, V> = imbl::GenericHashMap<K, V, ahash::RandomState, imbl::shared_ptr::DefaultSharedPtr>;
