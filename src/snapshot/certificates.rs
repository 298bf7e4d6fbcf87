//! Which certificate a name gets in the handshake: exact, then one-label wildcard, then the default.

use std::sync::Arc;

use super::SharedMap;
use crate::names::{HostName, parent_of};
use crate::store::objects::ObjectName;
use crate::tls::keys::KeyPair;

/// All certificates by the name they are served for.
#[derive(Clone)]
pub struct CertificateMap {
    pub exact: SharedMap<HostName, Arc<HostCertificates>>,
    /// By the name after `*.`.
    pub wildcard: SharedMap<HostName, Arc<HostCertificates>>,
    pub default: Arc<HostCertificates>,
}

impl CertificateMap {
    /// What a client that sends `sni` (canonical) gets, or `None` where only the default is left.
    pub fn find(&self, sni: &str) -> Option<&Arc<HostCertificates>> {
        self.exact.get(sni).or_else(|| self.wildcard.get(parent_of(sni)?))
    }
}

/// The certificates of one host, one for each key algorithm, in the order of preference.
#[derive(Clone)]
pub struct HostCertificates {
    pub certificates: Box<[Arc<Certificate>]>,
}

/// A certificate as it is served: the pair, the Secret it came from and its staple.
pub struct Certificate {
    pub pair: Arc<KeyPair>,
    /// `None` for the generated default certificate.
    pub secret: Option<ObjectName>,
}
