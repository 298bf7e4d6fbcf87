//! The demo's own certification authority: a root and the server certificates below it, made anew each time.
//!
//! Serial numbers count up, so that anyone can see which certificate is the newer one.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CustomExtension, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256,
    RsaKeySize, SerialNumber,
};
use rustls_pki_types::CertificateDer;
use time::{Duration, OffsetDateTime};

/// A root with its key, and the serial numbers it has given out.
pub struct Authority {
    root: CertifiedIssuer<'static, KeyPair>,
    next_serial: Cell<u64>,
    /// Serial numbers of all certificates, as they stand in them.
    issued: RefCell<BTreeSet<Vec<u8>>>,
}

/// The kind of key a certificate is for.
#[derive(Clone, Copy)]
pub enum Key {
    Ecdsa,
    Rsa,
}

/// A certificate with its key, as PEM.
pub struct Pair {
    pub certificate: String,
    pub key: String,
    pub serial: u64,
}

/// The first serial number that is given out.
const FIRST_SERIAL: u64 = 0x1001;
/// A little into the past, for clocks that disagree.
const BACKDATED: Duration = Duration::hours(1);
const VALID: Duration = Duration::days(30);

impl Authority {
    pub fn new() -> Result<Self, rcgen::Error> {
        let mut params = valid_params(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, "Portcullis Demo CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        Ok(Self {
            root: CertifiedIssuer::self_signed(params, key)?,
            next_serial: Cell::new(FIRST_SERIAL),
            issued: RefCell::default(),
        })
    }

    /// The root, for clients to trust.
    pub fn pem(&self) -> String {
        self.root.pem()
    }

    /// The root in DER.
    pub fn der(&self) -> &CertificateDer<'static> {
        self.root.der()
    }

    pub fn key(&self) -> &KeyPair {
        self.root.key()
    }

    /// Whether a certificate with this serial number, as it stands in DER, is from here.
    pub fn has_issued(&self, serial: &[u8]) -> bool {
        self.issued.borrow().contains(serial)
    }

    /// A server certificate for `host`, with the URL of an OCSP responder if there is one.
    pub fn issue(&self, host: &str, key: Key, responder: Option<&str>) -> Result<Pair, rcgen::Error> {
        let serial = self.next_serial.replace(self.next_serial.get() + 1);
        let number = SerialNumber::from_slice(minimal(&serial.to_be_bytes()));
        let mut params = valid_params(vec![host.to_owned()])?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        params.serial_number = Some(number.clone());
        params.custom_extensions.extend(responder.map(authority_information_access));
        let key = match key {
            Key::Ecdsa => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?,
            Key::Rsa => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)?,
        };
        let certificate = params.signed_by(&key, &self.root)?;
        self.issued.borrow_mut().insert(number.to_bytes());
        // The root goes along: without the issuer in the chain nobody could ask about revocation.
        let chain = certificate.pem() + &self.root.pem();
        Ok(Pair { certificate: chain, key: key.serialize_pem(), serial })
    }
}

fn valid_params(names: Vec<String>) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    params.not_before = OffsetDateTime::now_utc() - BACKDATED;
    params.not_after = params.not_before + VALID;
    Ok(params)
}

/// Without leading zeros, as DER has integers (X.690, section 8.3.2).
fn minimal(bytes: &[u8]) -> &[u8] {
    let first = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
    bytes.get(first..).unwrap_or_default()
}

/// The extension that names an OCSP responder (RFC 5280, section 4.2.2.1).
fn authority_information_access(url: &str) -> CustomExtension {
    const OCSP: [u8; 10] = [6, 8, 0x2b, 6, 1, 5, 5, 7, 0x30, 1];
    let location = element(0x86, url.as_bytes());
    let description = element(0x30, &[&OCSP[..], &location].concat());
    CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 1], element(0x30, &description))
}

/// One DER element of less than 128 bytes.
fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    debug_assert!(content.len() < 128, "a loopback URL is short");
    [&[tag, content.len() as u8], content].concat()
}
