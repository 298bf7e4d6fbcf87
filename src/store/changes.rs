//! What the events since the last compile can have touched: filled in by the store as it applies events, taken by
//! `compile`, which rebuilds these parts of a snapshot and no others.

use std::collections::HashSet;
use std::net::IpAddr;

use super::objects::ObjectName;
use crate::names::HostPattern;
use crate::snapshot::clusters::ClusterKey;

/// Which parts of a snapshot the events since the last compile can have touched.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Every host: something that concerns all of them changed.
    pub all_hosts: bool,
    /// Hosts whose Ingresses came, went or changed.
    pub hosts: HashSet<HostPattern>,
    /// Hosts whose certificates alone may be others now.
    pub certificates: HashSet<HostPattern>,
    pub clusters: HashSet<ClusterKey>,
    /// Ingresses that came, went or changed, for what there is to say about them.
    pub ingresses: HashSet<ObjectName>,
    /// Secrets that came, went or changed, for the default certificate.
    pub secrets: HashSet<ObjectName>,
    /// Some policy, or what a pod lists of them, came, went or changed.
    pub policies: bool,
    /// Addresses at which pods came, went or changed their labels.
    pub pods: HashSet<IpAddr>,
    /// Addresses at which Services came, went or changed.
    pub services: HashSet<IpAddr>,
    /// A ConfigMap with root certificates came, went or changed.
    pub trust: bool,
    /// Leaves, by fingerprint, of which something else is known about their staples.
    pub staples: HashSet<[u8; 32]>,
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        !self.all_hosts
            && self.hosts.is_empty()
            && self.certificates.is_empty()
            && self.clusters.is_empty()
            && self.ingresses.is_empty()
            && self.secrets.is_empty()
            && !self.policies
            && self.pods.is_empty()
            && self.services.is_empty()
            && !self.trust
            && self.staples.is_empty()
    }
}
