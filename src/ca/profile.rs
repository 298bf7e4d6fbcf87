//! The bytes of what the CA signs: workload certificates and its own root (RFC 5280).
//!
//! The whole certificate is put together here and not by a general builder, because two parts must be copied
//! byte for byte: the issuer name (a CA with two `DC` or `OU` components must not lose one) and the public key
//! (its curve does not follow from the signature of a request). `authority` and `roots` call this module.

use std::net::IpAddr;
use std::str::FromStr;

use aws_lc_rs::{digest, rand};
use der::asn1::{BitString, GeneralizedTime, Ia5String, ObjectIdentifier, OctetString, UtcTime};
use der::{Decode, Encode};
use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{
    AuthorityKeyIdentifier, BasicConstraints, ExtendedKeyUsage, KeyUsage, KeyUsages, SubjectAltName,
    SubjectKeyIdentifier,
};
use x509_cert::ext::{AsExtension, Extension};
use x509_cert::name::Name;
use x509_cert::request::{CertReq, CertReqInfo};
use x509_cert::serial_number::SerialNumber;
use x509_cert::spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};
use x509_cert::time::{Time, Validity};
use x509_cert::{Certificate, TbsCertificate, Version};

use super::certificate::hex;
use super::key::{KeyError, PrivateKey};

const SERVER_AUTH: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.1");
const CLIENT_AUTH: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.2");

/// Why a certificate could not be put together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    #[error("{0} cannot be encoded in a certificate")]
    Encoding(&'static str),
    #[error("no random bytes for a serial number")]
    Random,
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// One name of a workload certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubjectName {
    Uri(String),
    Dns(String),
    Ip(IpAddr),
}

/// What a certificate is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// Of a workload, which is both.
    ServerAndClient,
    Server,
}

/// What a workload certificate says; everything else follows from the profile.
pub struct Leaf<'a> {
    pub names: &'a [SubjectName],
    pub usage: Usage,
    /// DER of `SubjectPublicKeyInfo`.
    pub public_key_info: &'a [u8],
    pub not_before: OffsetDateTime,
    pub not_after: OffsetDateTime,
}

/// Who signs.
pub struct Signer<'a> {
    /// DER of the issuer name.
    pub name: &'a [u8],
    pub key_id: Option<&'a [u8]>,
    pub key: &'a PrivateKey,
}

/// A signed certificate and its serial number in hexadecimal.
pub struct Signed {
    pub der: CertificateDer<'static>,
    pub serial: String,
}

/// Signs a workload certificate: empty subject, critical SAN, digitalSignature and keyEncipherment (critical),
/// authentication as `usage` says, CA:FALSE (critical).
pub fn sign_leaf(leaf: &Leaf<'_>, signer: &Signer<'_>) -> Result<Signed, ProfileError> {
    let subject = Name::default();
    let usage = match leaf.usage {
        Usage::ServerAndClient => vec![SERVER_AUTH, CLIENT_AUTH],
        Usage::Server => vec![SERVER_AUTH],
    };
    let mut extensions = vec![
        extension(&KeyUsage(KeyUsages::DigitalSignature | KeyUsages::KeyEncipherment), &subject)?,
        // Not critical, as everywhere; the library would have it so.
        Extension { critical: false, ..extension(&ExtendedKeyUsage(usage), &subject)? },
        extension(&BasicConstraints { ca: false, path_len_constraint: None }, &subject)?,
    ];
    if let Some(id) = signer.key_id {
        extensions.push(extension(&authority_key_id(id)?, &subject)?);
    }
    let names = leaf.names.iter().map(general_name).collect::<Result<Vec<_>, _>>()?;
    // RFC 5280 section 4.2.1.6: critical, because the subject is empty.
    extensions.push(Extension { critical: true, ..extension(&SubjectAltName(names), &subject)? });
    sign(subject, leaf.public_key_info, (leaf.not_before, leaf.not_after), extensions, signer)
}

/// What a root says about itself.
pub struct Root<'a> {
    /// DER of subject and issuer.
    pub name: &'a [u8],
    /// `None` derives one from the public key (RFC 7093 section 2, method 1).
    pub key_id: Option<&'a [u8]>,
    pub not_before: OffsetDateTime,
    pub not_after: OffsetDateTime,
}

/// Signs a self-signed root: keyCertSign (critical), CA:TRUE (critical), no path limit, no EKU.
pub fn sign_root(root: &Root<'_>, key: &PrivateKey) -> Result<Signed, ProfileError> {
    let subject = decode_name(root.name)?;
    let public_key_info = key.public_key_info();
    let key_id = match root.key_id {
        Some(id) => id.to_vec(),
        None => derive_key_id(&public_key_info)?,
    };
    let key_id = OctetString::new(key_id).map_err(|_| ProfileError::Encoding("subject key identifier"))?;
    let extensions = vec![
        extension(&KeyUsage(KeyUsages::KeyCertSign.into()), &subject)?,
        extension(&BasicConstraints { ca: true, path_len_constraint: None }, &subject)?,
        extension(&SubjectKeyIdentifier(key_id), &subject)?,
    ];
    let signer = Signer { name: root.name, key_id: None, key };
    sign(subject, &public_key_info, (root.not_before, root.not_after), extensions, &signer)
}

/// Signs a PKCS#10 request with an empty subject and no attributes (RFC 2986).
pub fn sign_request(key: &PrivateKey) -> Result<Vec<u8>, ProfileError> {
    let encoding = |_| ProfileError::Encoding("request");
    let info = CertReqInfo {
        version: x509_cert::request::Version::V1,
        subject: Name::default(),
        public_key: SubjectPublicKeyInfoOwned::from_der(&key.public_key_info()).map_err(encoding)?,
        attributes: Default::default(),
    };
    let signed = key.sign(&info.to_der().map_err(encoding)?)?;
    let signature = BitString::from_bytes(&signed).map_err(encoding)?;
    CertReq { info, algorithm: algorithm(key), signature }.to_der().map_err(encoding)
}

/// DER of a name with one component, `O=organization`.
pub fn organization_name(organization: &str) -> Result<Vec<u8>, ProfileError> {
    let encoding = |_| ProfileError::Encoding("organization");
    Name::from_str(&format!("O={organization}")).and_then(|name| name.to_der()).map_err(encoding)
}

/// Whether a name survives decoding and encoding, so that chains built on it hold.
pub fn is_canonical_name(der: &[u8]) -> bool {
    decode_name(der).ok().and_then(|name| name.to_der().ok()).is_some_and(|again| again == der)
}

fn sign(
    subject: Name,
    public_key_info: &[u8],
    (not_before, not_after): (OffsetDateTime, OffsetDateTime),
    extensions: Vec<Extension>,
    signer: &Signer<'_>,
) -> Result<Signed, ProfileError> {
    let serial_bytes = random_serial()?;
    let signature = algorithm(signer.key);
    let tbs_certificate = TbsCertificate {
        version: Version::V3,
        serial_number: SerialNumber::new(&serial_bytes)
            .map_err(|_| ProfileError::Encoding("serial number"))?,
        signature: signature.clone(),
        issuer: decode_name(signer.name)?,
        validity: Validity { not_before: encode_time(not_before)?, not_after: encode_time(not_after)? },
        subject,
        subject_public_key_info: SubjectPublicKeyInfoOwned::from_der(public_key_info)
            .map_err(|_| ProfileError::Encoding("public key"))?,
        issuer_unique_id: None,
        subject_unique_id: None,
        extensions: Some(extensions),
    };
    let certificate = |_| ProfileError::Encoding("certificate");
    let signed = signer.key.sign(&tbs_certificate.to_der().map_err(certificate)?)?;
    let der = Certificate {
        tbs_certificate,
        signature_algorithm: signature,
        signature: BitString::from_bytes(&signed).map_err(certificate)?,
    }
    .to_der()
    .map_err(certificate)?;
    Ok(Signed { der: CertificateDer::from(der), serial: hex(&serial_bytes) })
}

fn algorithm(key: &PrivateKey) -> AlgorithmIdentifierOwned {
    let (oid, null_parameters) = key.signature_algorithm();
    AlgorithmIdentifierOwned { oid, parameters: null_parameters.then(der::Any::null) }
}

/// Random, positive, below 2^127 and never zero (RFC 5280 section 4.1.2.2).
fn random_serial() -> Result<[u8; 16], ProfileError> {
    let mut bytes = [0_u8; 16];
    rand::fill(&mut bytes).map_err(|_| ProfileError::Random)?;
    // The top bit is the sign of a DER integer; the next one is set, so that none is zero and all are 16 bytes.
    bytes[0] = bytes[0] & 0x7f | 0x40;
    Ok(bytes)
}

fn derive_key_id(public_key_info: &[u8]) -> Result<Vec<u8>, ProfileError> {
    let info = SubjectPublicKeyInfoOwned::from_der(public_key_info)
        .map_err(|_| ProfileError::Encoding("public key"))?;
    let hash = digest::digest(&digest::SHA256, info.subject_public_key.raw_bytes());
    Ok(hash.as_ref().iter().copied().take(20).collect())
}

fn authority_key_id(id: &[u8]) -> Result<AuthorityKeyIdentifier, ProfileError> {
    let id = OctetString::new(id).map_err(|_| ProfileError::Encoding("authority key identifier"))?;
    Ok(AuthorityKeyIdentifier { key_identifier: Some(id), ..Default::default() })
}

fn extension(value: &impl AsExtension, subject: &Name) -> Result<Extension, ProfileError> {
    value.to_extension(subject, &[]).map_err(|_| ProfileError::Encoding("extension"))
}

fn general_name(name: &SubjectName) -> Result<GeneralName, ProfileError> {
    let ia5 = |text: &str, what| Ia5String::new(text).map_err(|_| ProfileError::Encoding(what));
    Ok(match name {
        SubjectName::Uri(uri) => GeneralName::UniformResourceIdentifier(ia5(uri, "URI")?),
        SubjectName::Dns(name) => GeneralName::DnsName(ia5(name, "DNS name")?),
        SubjectName::Ip(address) => {
            let octets = match address {
                IpAddr::V4(address) => address.octets().to_vec(),
                IpAddr::V6(address) => address.octets().to_vec(),
            };
            GeneralName::IpAddress(OctetString::new(octets).map_err(|_| ProfileError::Encoding("address"))?)
        }
    })
}

fn decode_name(der: &[u8]) -> Result<Name, ProfileError> {
    Name::from_der(der).map_err(|_| ProfileError::Encoding("name"))
}

/// UTCTime through 2049, GeneralizedTime from 2050 on (RFC 5280 section 4.1.2.5).
fn encode_time(at: OffsetDateTime) -> Result<Time, ProfileError> {
    let encoding = |_| ProfileError::Encoding("time");
    let seconds = u64::try_from(at.unix_timestamp()).map_err(|_| ProfileError::Encoding("time"))?;
    let since_epoch = std::time::Duration::from_secs(seconds);
    if at.year() < 2050 {
        UtcTime::from_unix_duration(since_epoch).map(Time::UtcTime).map_err(encoding)
    } else {
        GeneralizedTime::from_unix_duration(since_epoch).map(Time::GeneralTime).map_err(encoding)
    }
}
