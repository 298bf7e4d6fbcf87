//! What the tests of the CA share: a moment, CAs with faults of choice, requests, and OpenSSL as a second opinion.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyIdMethod, KeyUsagePurpose, RevokedCertParams, SerialNumber,
};
use rustls_pki_types::CertificateRevocationListDer;
use time::OffsetDateTime;
use time::macros::datetime;

use super::authority::{Authority, Issued};
use super::bundle::RootBundle;
use super::certificate::Certificate;
use super::csr::PublicKey;
use super::identity::WorkloadNames;
use super::key::{KeyAlgorithm, PrivateKey};
use super::roots::{RootOptions, SelfSigned, load_or_create};
use super::store::memory::Memory;
use super::store::{Account, Namespace, Store};
use crate::store::objects::ObjectName;
use crate::tls::spiffe::SpiffeId;

/// The moment at which the tests begin.
pub const NOW: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);

pub const HOUR: Duration = Duration::from_secs(3600);

pub fn hours(hours: i64) -> time::Duration {
    time::Duration::hours(hours)
}

pub fn web() -> WorkloadNames {
    WorkloadNames::of(SpiffeId::new("cluster.local", "shop", "web").unwrap())
}

pub async fn self_signed(store: &Memory) -> SelfSigned {
    load_or_create(store, &RootOptions::default(), NOW).await.unwrap()
}

pub async fn authority() -> Arc<Authority> {
    self_signed(&Memory::default()).await.authority
}

/// Twenty starts at once, each on a thread of its own: the serials of the roots they ended up with.
pub fn start_twenty(store: &impl Store) -> BTreeSet<String> {
    let start = || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let root = runtime.block_on(load_or_create(store, &RootOptions::default(), NOW)).unwrap();
        root.authority.signer().serial.clone()
    };
    std::thread::scope(|scope| {
        let starters: Vec<_> = (0..20).map(|_| scope.spawn(start)).collect();
        starters.into_iter().map(|starter| starter.join().unwrap()).collect()
    })
}

/// Issues for a fresh key.
pub fn issue(authority: &Authority, ttl: Duration, now: OffsetDateTime) -> Issued {
    let key = PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
    authority.issue(&PublicKey::from_own_key(&key), &web(), ttl, now).unwrap()
}

pub fn account(namespace: &str, name: &str) -> Account {
    Account { name: ObjectName::new(namespace, name), uid: format!("uid-of-{name}") }
}

pub fn namespace(name: &str, labels: &[(&str, &str)]) -> Namespace {
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Namespace { name: name.to_owned(), labels, terminating: false }
}

/// A CA certificate to be made, good unless a test spoils it.
pub fn ca_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.not_before = NOW - hours(1);
    params.not_after = NOW + hours(1000);
    params.use_authority_key_identifier_extension = true;
    params
}

/// A CA made of a root and, below it, further certificates; the last one signs.
pub struct Made {
    pub certificates: Vec<Certificate>,
    pub key: Arc<rcgen::KeyPair>,
}

impl Made {
    pub fn root(params: CertificateParams) -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let root = params.self_signed(&key).unwrap();
        Self { certificates: vec![Certificate::from_der(root.der().clone()).unwrap()], key: Arc::new(key) }
    }

    pub fn below(&self, params: CertificateParams) -> Self {
        let issuer = Issuer::from_ca_cert_der(self.signer().der(), &*self.key).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let made = params.signed_by(&key, &issuer).unwrap();
        let mut certificates = self.certificates.clone();
        certificates.push(Certificate::from_der(made.der().clone()).unwrap());
        Self { certificates, key: Arc::new(key) }
    }

    pub fn signer(&self) -> &Certificate {
        self.certificates.last().unwrap()
    }

    pub fn root_bundle(&self) -> RootBundle {
        RootBundle::new([self.certificates[0].clone()])
    }

    /// Signing certificate first, the one below the root last.
    pub fn chain(&self) -> Vec<Certificate> {
        self.certificates.iter().skip(1).rev().cloned().collect()
    }

    pub fn key(&self) -> PrivateKey {
        PrivateKey::from_pem(self.key.serialize_pem().as_bytes()).unwrap()
    }
}

/// A list of the CA that revokes one certificate by its serial number, hexadecimal.
pub fn revocation_list(ca: &Made, serial: &str) -> CertificateRevocationListDer<'static> {
    let serial: Vec<u8> =
        (0..serial.len()).step_by(2).map(|at| u8::from_str_radix(&serial[at..at + 2], 16).unwrap()).collect();
    let params = CertificateRevocationListParams {
        this_update: NOW - hours(1),
        next_update: NOW + hours(1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: vec![RevokedCertParams {
            serial_number: SerialNumber::from_slice(&serial),
            revocation_time: NOW - hours(1),
            reason_code: None,
            invalidity_date: None,
        }],
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let issuer = Issuer::from_ca_cert_der(ca.signer().der(), &*ca.key).unwrap();
    params.signed_by(&issuer).unwrap().der().clone()
}

/// A request that asks for everything it must not get.
pub fn greedy_request(algorithm: &'static rcgen::SignatureAlgorithm) -> (rcgen::KeyPair, String) {
    let mut params = ca_params("evil");
    params.use_authority_key_identifier_extension = false;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
    params.subject_alt_names = vec![
        rcgen::SanType::URI("spiffe://cluster.local/ns/kube-system/sa/admin".try_into().unwrap()),
        rcgen::SanType::DnsName("evil.example".try_into().unwrap()),
    ];
    let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
    let request = params.serialize_request(&key).unwrap().pem().unwrap();
    (key, request)
}

/// `openssl verify` of the first certificate in `chain` against `roots` at a moment: its verdict in words.
pub fn openssl_verify(chain: &str, roots: &str, at: OffsetDateTime) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (chain, roots) = (path("chain.pem", chain), path("roots.pem", roots));
    let output = Command::new("openssl")
        .args(["verify", "-x509_strict", "-attime", &at.unix_timestamp().to_string(), "-CAfile"])
        .arg(roots)
        .arg("-untrusted")
        .args([&chain, &chain])
        .output()
        .expect("openssl is needed for the tests of the CA");
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(words) }
}

/// `openssl x509 -text` of a certificate in PEM.
pub fn openssl_text(certificate: &str) -> String {
    let mut child = Command::new("openssl")
        .args(["x509", "-noout", "-text"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("openssl is needed for the tests of the CA");
    child.stdin.take().unwrap().write_all(certificate.as_bytes()).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}
