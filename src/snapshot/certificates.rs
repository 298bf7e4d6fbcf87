//! Which certificate a name gets in the handshake: exact, then one-label wildcard, then the default.
//!
//! `compile` makes the map; the resolver in `tls` reads it. A host has one certificate for each kind of key,
//! and the client's signature schemes and suites choose among them. Every entry can be served: nothing is parsed here.

use std::sync::Arc;

use super::SharedMap;
use crate::names::object::ObjectName;
use crate::names::{HostName, HostPattern, parent_of};
use crate::telemetry::worker_stats::Counter;
use crate::tls::keys::{ClientKeys, KeyPair};
use crate::tls::ocsp::{OcspStatus, Stapled};

/// All certificates by the name they are served for.
#[derive(Clone)]
pub struct CertificateMap {
    pub exact: SharedMap<HostName, Arc<HostCertificates>>,
    /// By the name after `*.`.
    pub wildcard: SharedMap<HostName, Arc<HostCertificates>>,
    pub default: Arc<HostCertificates>,
    /// By [`KeyPair::digest`], for certificates in use that name an OCSP responder.
    pub staples: SharedMap<[u8; 32], Arc<Stapling>>,
}

/// What is known about the staple of a certificate, and the staple. It was verified for the very leaf under whose
/// digest it is kept, so no other certificate can be served with it.
#[derive(Debug)]
pub struct Stapling {
    pub status: Arc<OcspStatus>,
    pub stapled: Option<Stapled>,
}

impl CertificateMap {
    /// What a client that sends `sni` (canonical) gets, or `None` where only the default is left.
    pub fn find(&self, sni: &str) -> Option<&Arc<HostCertificates>> {
        self.exact.get(sni).or_else(|| self.wildcard.get(parent_of(sni)?))
    }

    /// What is known about the staple of `pair`; `None` where it names no responder.
    pub fn stapling(&self, pair: &KeyPair) -> Option<&Arc<Stapling>> {
        pair.ocsp_responder.as_ref()?;
        self.staples.get(&pair.digest)
    }

    /// The entry of exactly this pattern; rules without a host have none.
    pub fn get(&self, pattern: &HostPattern) -> Option<&Arc<HostCertificates>> {
        match pattern {
            HostPattern::Exact(name) => self.exact.get(name),
            HostPattern::Wildcard(parent) => self.wildcard.get(parent),
            HostPattern::Any => None,
        }
    }

    /// Puts `certificates` in the place of this pattern's entry, or takes the entry out.
    pub fn set(&mut self, pattern: &HostPattern, certificates: Option<Arc<HostCertificates>>) {
        let (map, name) = match pattern {
            HostPattern::Exact(name) => (&mut self.exact, name),
            HostPattern::Wildcard(parent) => (&mut self.wildcard, parent),
            HostPattern::Any => return,
        };
        match certificates {
            Some(certificates) => map.insert(name.clone(), certificates),
            None => map.remove(name),
        };
    }

    /// The patterns of all entries, in no order.
    pub fn patterns(&self) -> impl Iterator<Item = HostPattern> {
        let exact = self.exact.keys().cloned().map(HostPattern::Exact);
        exact.chain(self.wildcard.keys().cloned().map(HostPattern::Wildcard))
    }
}

/// The certificates of one host: at least one, at most one for each key algorithm.
#[derive(Clone, Debug)]
pub struct HostCertificates {
    preferred: Binding,
    others: Box<[Binding]>,
    awaited: Box<[Awaited]>,
}

impl HostCertificates {
    /// Of several with the same algorithm the first stays; they end up in the order of preference.
    pub fn new(first: Binding, others: impl IntoIterator<Item = Binding>) -> Self {
        let algorithm = |binding: &Binding| binding.certificate.pair.algorithm;
        let mut preferred = first;
        let mut rest: Vec<Binding> = Vec::new();
        for mut binding in others {
            if [&preferred].into_iter().chain(&rest).any(|known| algorithm(known) == algorithm(&binding)) {
                continue;
            }
            if algorithm(&binding) < algorithm(&preferred) {
                std::mem::swap(&mut binding, &mut preferred);
            }
            rest.push(binding);
        }
        rest.sort_by_key(algorithm);
        Self { preferred, others: rest.into(), awaited: Box::default() }
    }

    /// The same, with certificates that are to take their place.
    pub fn awaiting(self, awaited: Vec<Awaited>) -> Self {
        Self { awaited: awaited.into(), ..self }
    }

    /// Certificates that take the place of others here once they have their first staple, or have waited too long.
    pub fn awaited(&self) -> &[Awaited] {
        &self.awaited
    }

    /// The first certificate whose key `client` accepts, ECDSA before RSA. Where it accepts none, the one that
    /// is preferred: rustls then ends the handshake with the alert that says so.
    pub fn select(&self, client: ClientKeys) -> &Arc<Certificate> {
        let mut all = self.iter().map(|binding| &binding.certificate);
        all.find(|certificate| client.accepts(certificate.pair.algorithm))
            .unwrap_or(&self.preferred.certificate)
    }

    /// Whether both are made of the very same certificates, bound in the same way.
    pub fn is_same(&self, other: &Self) -> bool {
        self.others.len() == other.others.len()
            && self.iter().zip(other.iter()).all(|(a, b)| a.is_same(b))
            && self.awaited.len() == other.awaited.len()
            && self.awaited.iter().zip(&other.awaited).all(|(a, b)| a.is_same(b))
    }

    /// In the order of preference.
    pub fn iter(&self) -> impl Iterator<Item = &Binding> {
        std::iter::once(&self.preferred).chain(&self.others)
    }
}

/// A certificate of a host with the reason why it is the host's: what `compile` goes by when that changes.
#[derive(Clone, Debug)]
pub struct Binding {
    pub certificate: Arc<Certificate>,
    /// The Ingress that names the Secret; `None` for the default certificate and for PEM pairs, which are
    /// bound by their own names.
    pub ingress: Option<ObjectName>,
    /// Since when its Secret is gone, in seconds since the Unix epoch.
    pub missing_since: Option<i64>,
}

impl Binding {
    /// Whether both are the very same certificate, bound in the same way.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.certificate, &other.certificate)
            && self.ingress == other.ingress
            && self.missing_since == other.missing_since
    }
}

/// A certificate that waits for its first staple while another serves the host.
#[derive(Clone, Debug)]
pub struct Awaited {
    pub certificate: Arc<Certificate>,
    /// Since when the host waits, in seconds since the Unix epoch. Goes on when the certificate is replaced before
    /// it had its turn: otherwise rotations in quick succession would never come to an end.
    pub since: i64,
}

impl Awaited {
    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.certificate, &other.certificate) && self.since == other.since
    }
}

/// A certificate as it is served: the pair and the Secret it came from.
#[derive(Debug)]
pub struct Certificate {
    pub pair: Arc<KeyPair>,
    /// `None` for the generated default certificate.
    pub secret: Option<ObjectName>,
    /// Full handshakes that it was served in for its host. A certificate that takes its place from the same Secret
    /// counts on.
    pub handshakes: Arc<Counter>,
}
