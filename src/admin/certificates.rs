//! `/api/v1/certificates`: every certificate that is served, and for which hosts.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;

use super::api::rfc3339;
use crate::names::HostPattern;
use crate::names::object::ObjectName;
use crate::snapshot::Snapshot;
use crate::snapshot::certificates::{Certificate, CertificateMap};
use crate::tls::keys::Algorithm;
use crate::tls::ocsp::{OcspState, OcspStatus};

/// A certificate with the names it is served for now.
pub struct Served {
    pub certificate: Arc<Certificate>,
    /// In order.
    pub hosts: Vec<HostPattern>,
    /// It is what clients get whose name nobody has a certificate for.
    pub default: bool,
}

/// Every certificate once, those without a Secret first, then by Secret and algorithm.
pub fn served(map: &CertificateMap) -> Vec<Served> {
    let exact = map.exact.iter().map(|(name, of_host)| (HostPattern::Exact(name.clone()), of_host));
    let wildcard = map.wildcard.iter().map(|(name, of_host)| (HostPattern::Wildcard(name.clone()), of_host));
    let mut all: HashMap<_, Served> = HashMap::new();
    let mut entry = |certificate: &Arc<Certificate>, host: Option<HostPattern>| {
        // Equal pairs out of two Secrets are two rows: each Secret is renewed on its own.
        let key = (certificate.secret.clone(), certificate.pair.digest);
        let row = all.entry(key).or_insert_with(|| Served {
            certificate: certificate.clone(),
            hosts: Vec::new(),
            default: false,
        });
        row.default |= host.is_none();
        row.hosts.extend(host);
    };
    for (host, of_host) in exact.chain(wildcard) {
        of_host.iter().for_each(|binding| entry(&binding.certificate, Some(host.clone())));
    }
    map.default.iter().for_each(|binding| entry(&binding.certificate, None));

    let mut all: Vec<_> = all.into_values().collect();
    all.iter_mut().for_each(|served| served.hosts.sort());
    all.sort_by(|a, b| order(a).cmp(&order(b)));
    all
}

fn order(served: &Served) -> (&Option<ObjectName>, Algorithm, &[u8]) {
    let Certificate { secret, pair, .. } = &*served.certificate;
    (secret, pair.algorithm, &pair.digest)
}

/// What is known about the staple of a certificate.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Ocsp {
    pub state: OcspState,
    /// When the responder knew the status to be correct.
    #[serde(serialize_with = "super::api::rfc3339_or_null")]
    pub this_update: Option<i64>,
    /// When the staple ends.
    #[serde(serialize_with = "super::api::rfc3339_or_null")]
    pub next_update: Option<i64>,
    /// When the responder is asked next.
    #[serde(serialize_with = "super::api::rfc3339_or_null")]
    pub next_fetch: Option<i64>,
    pub last_error: Option<Arc<str>>,
}

impl Ocsp {
    /// Of a certificate in use. One of which nobody has heard yet is `pending`, unless nobody is asked.
    pub fn of(certificate: &Certificate, snapshot: &Snapshot) -> Self {
        let known = snapshot.certificates.stapling(&certificate.pair).map(|stapling| &stapling.status);
        let state = match known {
            _ if !snapshot.settings.enable_ocsp => OcspState::Disabled,
            Some(status) => status.state,
            None if certificate.pair.ocsp_responder.is_none() => OcspState::NoResponder,
            None => OcspState::Pending,
        };
        let time = |pick: fn(&OcspStatus) -> Option<u64>| {
            known.and_then(|status| pick(status)).and_then(|seconds| i64::try_from(seconds).ok())
        };
        Self {
            state,
            this_update: time(|status| status.this_update),
            next_update: time(|status| status.next_update),
            next_fetch: time(|status| status.next_fetch),
            last_error: known.and_then(|status| status.last_error.clone()),
        }
    }
}

/// An algorithm in the words of the API.
pub fn algorithm_name(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::EcdsaP256 => "ECDSA P-256",
        Algorithm::EcdsaP384 => "ECDSA P-384",
        Algorithm::EcdsaP521 => "ECDSA P-521",
        Algorithm::Ed25519 => "Ed25519",
        Algorithm::Rsa => "RSA",
    }
}

/// One row of the answer.
#[derive(Serialize)]
pub struct CertificateJson<'a> {
    names: &'a [HostPattern],
    /// Namespace and name; null for the generated certificate.
    secret: Option<String>,
    serial: &'a str,
    algorithm: &'static str,
    #[serde(serialize_with = "rfc3339")]
    not_before: i64,
    #[serde(serialize_with = "rfc3339")]
    not_after: i64,
    /// SHA-256 of the leaf, in hex.
    fingerprint: String,
    hosts: &'a [HostPattern],
    default: bool,
    ocsp: Ocsp,
}

impl<'a> CertificateJson<'a> {
    pub fn new(served: &'a Served, snapshot: &Snapshot) -> Self {
        let Served { certificate, hosts, default } = served;
        let pair = &certificate.pair;
        Self {
            names: &pair.names,
            secret: certificate.secret.as_ref().map(ObjectName::to_string),
            serial: &pair.serial,
            algorithm: algorithm_name(pair.algorithm),
            not_before: pair.not_before,
            not_after: pair.not_after,
            fingerprint: pair.fingerprint.iter().map(|byte| format!("{byte:02x}")).collect(),
            hosts,
            default: *default,
            ocsp: Ocsp::of(certificate, snapshot),
        }
    }
}
