//! A certification authority and an OCSP signer for tests, able to do everything wrong on request.

use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, PKCS_RSA_SHA256, RsaKeySize, SigningKey,
};
use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;
use x509_cert::der::asn1::{BitString, GeneralizedTime, Null, ObjectIdentifier, OctetString};
use x509_cert::der::{Decode, Encode};
use x509_cert::ext::{Extension, Extensions};
use x509_cert::spki::AlgorithmIdentifierOwned;
use x509_ocsp::{
    BasicOcspResponse, CertId, CertStatus, OcspGeneralizedTime, OcspResponse, ResponderId, ResponseData,
    RevokedInfo, SingleResponse, Version,
};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::request::{cert_id, key_hash};

/// A self-signed root that issues leaves and delegates.
pub struct Ca {
    pub der: CertificateDer<'static>,
    pub key: KeyPair,
    params: CertificateParams,
}

/// A certificate with its key: a leaf, or a delegated OCSP signer.
pub struct Issued {
    pub der: CertificateDer<'static>,
    pub key: KeyPair,
}

/// What to put into a certificate.
pub struct Order<'a> {
    ca: &'a Ca,
    params: CertificateParams,
}

impl Ca {
    /// A root named `name`, with a new key each time.
    pub fn new(name: &str) -> Self {
        Self::with_key(name, KeyPair::generate().unwrap())
    }

    /// A root with a key of RSA, which [`Answer::sign`] cannot use but OpenSSL can.
    pub fn rsa(name: &str) -> Self {
        Self::with_key(name, KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap())
    }

    fn with_key(name: &str, key: KeyPair) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let der = params.self_signed(&key).unwrap().der().clone();
        Self { der, key, params }
    }

    /// A server certificate.
    pub fn leaf(&self) -> Order<'_> {
        let mut params = CertificateParams::new(vec!["shop.example.com".to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        Order { ca: self, params }
    }

    /// A certificate named `name` that may sign OCSP responses.
    pub fn delegate(&self, name: &str) -> Order<'_> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::OcspSigning];
        Order { ca: self, params }
    }

    /// The signer of this CA's own key.
    pub fn signer(&self) -> Signer<'_> {
        Signer { der: &self.der, key: &self.key, enclosed: vec![], by_key: false }
    }
}

impl Order<'_> {
    /// DNS names in place of `shop.example.com`.
    pub fn names(mut self, names: &[&str]) -> Self {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        self.params.subject_alt_names = CertificateParams::new(names).unwrap().subject_alt_names;
        self
    }

    /// Responder URLs for the AIA extension.
    pub fn urls(mut self, urls: &[&str]) -> Self {
        let access = urls.iter().flat_map(|url| {
            let method = element(0x06, &[0x2b, 6, 1, 5, 5, 7, 0x30, 1]);
            element(0x30, &[method, element(0x86, url.as_bytes())].concat())
        });
        let content = element(0x30, &access.collect::<Vec<u8>>());
        self.add_extension(&[1, 3, 6, 1, 5, 5, 7, 1, 1], content);
        self
    }

    /// id-pe-tlsfeature with `status_request`.
    pub fn must_staple(mut self) -> Self {
        self.add_extension(&[1, 3, 6, 1, 5, 5, 7, 1, 24], vec![0x30, 3, 2, 1, 5]);
        self
    }

    pub fn serial(mut self, serial: &[u8]) -> Self {
        self.params.serial_number = Some(serial.to_vec().into());
        self
    }

    /// Validity in seconds since 1970.
    pub fn valid(mut self, from: u64, to: u64) -> Self {
        self.params.not_before = date(from);
        self.params.not_after = date(to);
        self
    }

    pub fn usages(mut self, usages: &[ExtendedKeyUsagePurpose]) -> Self {
        self.params.extended_key_usages = usages.to_vec();
        self
    }

    pub fn issue(self) -> Issued {
        let key = KeyPair::generate().unwrap();
        let issuer = Issuer::from_params(&self.ca.params, &self.ca.key);
        let der = self.params.signed_by(&key, &issuer).unwrap().der().clone();
        Issued { der, key }
    }

    fn add_extension(&mut self, oid: &[u64], content: Vec<u8>) {
        self.params.custom_extensions.push(CustomExtension::from_oid_content(oid, content));
    }
}

impl Issued {
    /// A TLS server with this certificate and nothing else in its chain.
    pub fn tls_acceptor(&self) -> tokio_rustls::TlsAcceptor {
        let key = rustls_pki_types::PrivatePkcs8KeyDer::from(self.key.serialize_der());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![self.der.clone()], key.into())
            .unwrap();
        Arc::new(config).into()
    }

    /// Signs with this key, naming and enclosing this certificate.
    pub fn signer(&self) -> Signer<'_> {
        Signer { der: &self.der, key: &self.key, enclosed: vec![self.der.clone()], by_key: false }
    }
}

/// Who signs a response, how it is named and which certificates go with it.
#[derive(Clone)]
pub struct Signer<'a> {
    pub der: &'a CertificateDer<'static>,
    pub key: &'a KeyPair,
    pub enclosed: Vec<CertificateDer<'static>>,
    /// responderID by key hash instead of by name.
    pub by_key: bool,
}

/// A response before it is signed. The fields are what tests bend.
#[derive(Clone)]
pub struct Answer {
    pub produced_at: u64,
    pub singles: Vec<SingleResponse>,
    pub extensions: Option<Extensions>,
}

impl Answer {
    /// "Good" for an hour from `now`.
    pub fn good(leaf: &CertificateDer<'_>, issuer: &CertificateDer<'_>, now: u64) -> Self {
        Self::new(cert_id(leaf, issuer).unwrap(), CertStatus::good(), now)
    }

    pub fn revoked(leaf: &CertificateDer<'_>, issuer: &CertificateDer<'_>, now: u64) -> Self {
        let info = RevokedInfo { revocation_time: time_of(now - 60), revocation_reason: None };
        Self::new(cert_id(leaf, issuer).unwrap(), CertStatus::Revoked(info), now)
    }

    pub fn unknown(leaf: &CertificateDer<'_>, issuer: &CertificateDer<'_>, now: u64) -> Self {
        Self::new(cert_id(leaf, issuer).unwrap(), CertStatus::unknown(), now)
    }

    pub fn new(cert_id: CertId, cert_status: CertStatus, now: u64) -> Self {
        let single = SingleResponse {
            cert_id,
            cert_status,
            this_update: time_of(now),
            next_update: Some(time_of(now + 3600)),
            single_extensions: None,
        };
        Self { produced_at: now, singles: vec![single], extensions: None }
    }

    /// thisUpdate and nextUpdate of all entries.
    pub fn window(mut self, this_update: u64, next_update: Option<u64>) -> Self {
        for single in &mut self.singles {
            single.this_update = time_of(this_update);
            single.next_update = next_update.map(time_of);
        }
        self
    }

    pub fn sign(&self, signer: &Signer<'_>) -> Vec<u8> {
        self.sign_with(signer, |message| signer.key.sign(message).unwrap())
    }

    /// Lets `sign` make the signature, right or wrong.
    pub fn sign_with(&self, signer: &Signer<'_>, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> Vec<u8> {
        let (_, certificate) = X509Certificate::from_der(signer.der).unwrap();
        let responder_id = if signer.by_key {
            ResponderId::ByKey(key_hash(&certificate))
        } else {
            ResponderId::ByName(Decode::from_der(certificate.subject().as_raw()).unwrap())
        };
        let data = ResponseData {
            version: Version::V1,
            responder_id,
            produced_at: time_of(self.produced_at),
            responses: self.singles.clone(),
            response_extensions: self.extensions.clone(),
        };
        let signature = sign(&data.to_der().unwrap());
        let certs = signer.enclosed.iter().map(|der| Decode::from_der(der).unwrap()).collect::<Vec<_>>();
        let basic = BasicOcspResponse {
            tbs_response_data: data,
            signature_algorithm: ecdsa_with_sha256(),
            signature: BitString::from_bytes(&signature).unwrap(),
            certs: (!certs.is_empty()).then_some(certs),
        };
        OcspResponse::successful(basic).unwrap().to_der().unwrap()
    }
}

/// A critical extension nobody knows.
pub fn critical_extension() -> Extensions {
    let value = OctetString::new(Null.to_der().unwrap()).unwrap();
    vec![Extension { extn_id: ObjectIdentifier::new_unwrap("1.2.3.4"), critical: true, extn_value: value }]
}

/// A response with nothing but a status other than "successful", such as 3 for tryLater.
pub fn unsuccessful(status: u8) -> Vec<u8> {
    vec![0x30, 3, 0x0a, 1, status]
}

pub fn time_of(seconds: u64) -> OcspGeneralizedTime {
    OcspGeneralizedTime(GeneralizedTime::from_unix_duration(Duration::from_secs(seconds)).unwrap())
}

fn ecdsa_with_sha256() -> AlgorithmIdentifierOwned {
    AlgorithmIdentifierOwned { oid: ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.2"), parameters: None }
}

fn date(seconds: u64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(seconds as i64).unwrap()
}

/// One DER element.
fn element(tag: u8, contents: &[u8]) -> Vec<u8> {
    let length = contents.len();
    let mut element = match length {
        0..0x80 => vec![tag, length as u8],
        0x80..0x100 => vec![tag, 0x81, length as u8],
        _ => vec![tag, 0x82, (length >> 8) as u8, length as u8],
    };
    element.extend_from_slice(contents);
    element
}
