//! What the data plane needs and no more, immutable: made by `compile`, read by `tls` and `proxy`.
//!
//! A snapshot is replaced as a whole, in one pointer swap, so routing and certificates can never disagree.
//! Its maps share structure with their predecessors: replacing one entry among 100,000 costs what replacing
//! one among 100 costs. Nothing here knows a Kubernetes type beyond names.

pub mod access;
pub mod affinity;
pub mod canary;
pub mod certificates;
pub mod client_auth;
pub mod clusters;
pub mod cors;
pub mod hosts;
pub mod limits;
pub mod passwords;
pub mod paths;
pub mod policies;
pub mod redirects;
pub mod rewrites;
pub mod search;
pub mod shared;
pub mod workloads;

use std::sync::Arc;

use crate::settings::Settings;
use crate::tls::hbone::HboneTls;
use crate::tls::hbone_client::HboneClient;
use crate::tls::mesh::MeshTrust;
use crate::tls::policy::TlsPolicy;
use certificates::{CertificateMap, HostCertificates};
use clusters::ClusterMap;
use hosts::{Host, HostMap};
use workloads::Workloads;

/// Everything the workers serve by.
#[derive(Clone)]
pub struct Snapshot {
    /// Counts up with every snapshot that is published.
    pub generation: u64,
    pub settings: Arc<Settings>,
    pub certificates: CertificateMap,
    pub hosts: HostMap,
    pub clusters: ClusterMap,
    /// The TLS policy of the HTTPS port, for hosts that ask no client for a certificate.
    pub tls: Arc<TlsPolicy>,
    /// The TLS policy of the mesh port; `None` while there are no root certificates to verify clients with.
    pub mesh: Option<Arc<TlsPolicy>>,
    /// What clients of the mesh are verified against, also those that are connected already.
    pub trust: Option<Arc<MeshTrust>>,
    /// What handshakes of the HBONE port are made with; `None` while roots or a certificate are missing.
    pub hbone: Option<Arc<HboneTls>>,
    /// What tunnels to workloads are opened with; `None` where the gateway has no identity.
    pub hbone_client: Option<Arc<HboneClient>>,
    pub workloads: Workloads,
}

/// The ports that speak TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsPort {
    /// For everyone.
    Https,
    /// For the mesh: clients are asked for a certificate.
    Mesh,
}

impl Snapshot {
    /// Number 0: no hosts, and one certificate for whoever comes.
    pub fn empty(settings: Arc<Settings>, tls: Arc<TlsPolicy>, default: Arc<HostCertificates>) -> Self {
        Self {
            generation: 0,
            settings,
            certificates: CertificateMap {
                exact: Default::default(),
                wildcard: Default::default(),
                default,
                staples: Default::default(),
            },
            hosts: HostMap::default(),
            clusters: ClusterMap::default(),
            tls,
            mesh: None,
            trust: None,
            hbone: None,
            hbone_client: None,
            workloads: Workloads::default(),
        }
    }

    /// The TLS policy of one of the ports for a host: the one function that decides it, in the handshake and again for
    /// each request. `None` where there is none to be had.
    pub fn tls_policy<'a>(
        &'a self,
        port: TlsPort,
        host: Option<&'a Arc<Host>>,
    ) -> Option<&'a Arc<TlsPolicy>> {
        match port {
            TlsPort::Https => {
                let check = host.and_then(|host| host.client_auth.as_ref()?.check());
                Some(check.and_then(|check| check.policy.as_ref()).unwrap_or(&self.tls))
            }
            TlsPort::Mesh => self.mesh.as_ref(),
        }
    }
}

/// A map with structural sharing: a changed copy costs O(log n).
pub type SharedMap<K, V> = imbl::GenericHashMap<K, V, ahash::RandomState, imbl::shared_ptr::DefaultSharedPtr>;
