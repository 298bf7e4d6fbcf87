//! The question: one CertID with SHA-1 hashes and no nonce, as RFC 5019 asks, sent by GET where it fits.
//!
//! SHA-1 only names the issuer here; nothing rests on its strength, and responders of the lightweight profile
//! know no other. A nonce would forbid the responder to answer from its cache.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustls_pki_types::CertificateDer;
use x509_cert::der::asn1::{Null, ObjectIdentifier, OctetString};
use x509_cert::der::{self, Decode, Encode};
use x509_cert::serial_number::SerialNumber;
use x509_cert::spki::AlgorithmIdentifierOwned;
use x509_ocsp::{CertId, OcspRequest, TbsRequest};
use x509_parser::prelude::{FromDer, X509Certificate};

/// GET is for URLs up to this many bytes; RFC 5019, section 5, has longer ones use POST.
pub const MAX_GET_URL: usize = 255;

const SHA1: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.14.3.2.26");

/// Why a pair of certificates gives no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("the certificate cannot be read")]
    Leaf,
    #[error("the issuer certificate cannot be read")]
    Issuer,
    #[error("the serial number is longer than 20 bytes")]
    Serial,
}

/// An encoded OCSP request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    der: Vec<u8>,
}

impl Request {
    /// Builds the request about `leaf`, issued by `issuer`.
    pub fn new(leaf: &CertificateDer<'_>, issuer: &CertificateDer<'_>) -> Result<Self, RequestError> {
        let question =
            x509_ocsp::Request { req_cert: cert_id(leaf, issuer)?, single_request_extensions: None };
        let request = OcspRequest {
            tbs_request: TbsRequest { request_list: vec![question], ..TbsRequest::default() },
            optional_signature: None,
        };
        Ok(Self { der: request.to_der().map_err(|_| RequestError::Serial)? })
    }

    /// The DER encoding, the body of a POST.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// The URL of a GET (RFC 6960, A.1), or `None` where only POST will do: the URL would be longer than
    /// [`MAX_GET_URL`], or the responder's URL has a query that the request cannot be appended to.
    pub fn get_url(&self, responder: &str) -> Option<String> {
        if responder.contains(['?', '#']) {
            return None;
        }
        let mut url = responder.to_owned();
        if !url.ends_with('/') {
            url.push('/');
        }
        for character in BASE64_STANDARD.encode(&self.der).chars() {
            match character {
                '+' => url.push_str("%2B"),
                '/' => url.push_str("%2F"),
                '=' => url.push_str("%3D"),
                other => url.push(other),
            }
        }
        (url.len() <= MAX_GET_URL).then_some(url)
    }
}

/// The CertID of `leaf` under `issuer`.
pub fn cert_id(leaf: &CertificateDer<'_>, issuer: &CertificateDer<'_>) -> Result<CertId, RequestError> {
    let (_, leaf) = X509Certificate::from_der(leaf).map_err(|_| RequestError::Leaf)?;
    let (_, issuer) = X509Certificate::from_der(issuer).map_err(|_| RequestError::Issuer)?;
    Ok(CertId {
        hash_algorithm: AlgorithmIdentifierOwned { oid: SHA1, parameters: Some(Null.into()) },
        issuer_name_hash: sha1(leaf.issuer().as_raw()),
        issuer_key_hash: key_hash(&issuer),
        serial_number: serial(leaf.raw_serial()).map_err(|_| RequestError::Serial)?,
    })
}

/// SHA-1 of the bits of a public key, as in a CertID and in a responder's key identifier.
pub fn key_hash(certificate: &X509Certificate<'_>) -> OctetString {
    sha1(&certificate.public_key().subject_public_key.data)
}

fn sha1(bytes: &[u8]) -> OctetString {
    let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, bytes);
    OctetString::new(digest.as_ref()).expect("twenty bytes are a fine octet string")
}

/// The serial exactly as the certificate has it: responders look it up by these bytes, so a negative or
/// oddly padded one must not be tidied up.
fn serial(contents: &[u8]) -> der::Result<SerialNumber> {
    let length = u8::try_from(contents.len()).ok().filter(|&length| length < 0x80);
    let length = length.ok_or(der::ErrorKind::Overlength)?;
    let mut element = vec![0x02, length];
    element.extend_from_slice(contents);
    SerialNumber::from_der(&element)
}

#[cfg(test)]
mod tests {
    use super::super::testing::Ca;
    use super::*;

    #[test]
    fn carries_one_sha1_cert_id_and_no_nonce() {
        let ca = Ca::new("request");
        let leaf = ca.leaf().serial(&[0x7f, 1, 2, 3]).issue();
        let request = Request::new(&leaf.der, &ca.der).unwrap();
        let decoded = OcspRequest::from_der(request.der()).unwrap();
        assert!(decoded.optional_signature.is_none());
        assert!(decoded.tbs_request.request_extensions.is_none());
        let [question] = &decoded.tbs_request.request_list[..] else { panic!("one question") };
        assert_eq!(question.req_cert.hash_algorithm.oid, SHA1);
        assert_eq!(question.req_cert.serial_number.as_bytes(), [0x7f, 1, 2, 3]);
        assert_eq!(question.req_cert, cert_id(&leaf.der, &ca.der).unwrap());
    }

    #[test]
    fn a_serial_with_the_high_bit_keeps_its_encoding() {
        let ca = Ca::new("serial");
        let leaf = ca.leaf().serial(&[0xff, 0xee]).issue();
        let (_, parsed) = X509Certificate::from_der(&leaf.der).unwrap();
        let id = cert_id(&leaf.der, &ca.der).unwrap();
        assert_eq!(&id.serial_number.to_der().unwrap()[2..], parsed.raw_serial());
    }

    #[test]
    fn odd_serials_survive_and_endless_ones_are_refused() {
        assert_eq!(serial(&[0x80]).unwrap().to_der().unwrap(), [2, 1, 0x80]);
        assert!(serial(&[1; 22]).is_err());
        assert!(serial(&[1; 300]).is_err());
        assert!(serial(&[]).is_err());
    }

    #[test]
    fn get_escapes_base64_and_joins_with_one_slash() {
        let request = Request { der: vec![0xfb, 0xff, 0xfe, 0xff] };
        assert_eq!(request.get_url("http://r").unwrap(), "http://r/%2B%2F%2F%2B%2Fw%3D%3D");
        assert_eq!(request.get_url("http://r/a/").unwrap(), "http://r/a/%2B%2F%2F%2B%2Fw%3D%3D");
    }

    #[test]
    fn get_ends_at_255_bytes() {
        let request = Request { der: vec![0; 3] };
        let base = format!("http://r/{}", "a".repeat(255 - "http://r/".len() - "/AAAA".len()));
        assert_eq!(request.get_url(&base).unwrap().len(), MAX_GET_URL);
        assert_eq!(request.get_url(&format!("{base}a")), None);
        assert_eq!(request.get_url("http://r/?tenant=1"), None);
    }

    #[test]
    fn nonsense_is_named() {
        let ca = Ca::new("nonsense");
        let nonsense = CertificateDer::from(vec![1, 2, 3]);
        assert_eq!(Request::new(&nonsense, &ca.der), Err(RequestError::Leaf));
        assert_eq!(Request::new(&ca.der, &nonsense), Err(RequestError::Issuer));
    }
}
