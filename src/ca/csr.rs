//! PKCS#10 signing requests (RFC 2986): one thing is taken from them, the public key.
//!
//! Subject, names and extensions of a request are the caller's wishes and are not even looked at: identity
//! comes from authentication. [`PublicKey::from_csr`] is total: any bytes give a key or a reason.

use aws_lc_rs::signature as aws;
use x509_parser::asn1_rs::BitString;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey as ParsedKey;
use x509_parser::x509::SubjectPublicKeyInfo;

use super::pem::{self, PemError};

/// Largest request that is read, in bytes of PEM. An RSA-4096 request with long names has about 2 KiB.
pub const MAX_CSR_BYTES: usize = 16 * 1024;

/// Why a signing request was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CsrError {
    #[error("certificate signing request has {0} bytes, more than the {MAX_CSR_BYTES} allowed")]
    TooLarge(usize),
    #[error("certificate signing request is not properly encoded: {0}")]
    Pem(#[from] PemError),
    #[error("failed to parse X.509 certificate signing request")]
    Malformed,
    #[error("the key of the certificate signing request is too weak: RSA needs at least 2048 bits")]
    WeakKey,
    #[error(
        "the key of the certificate signing request is of an unsupported kind: use ECDSA P-256 or P-384, Ed25519 or RSA"
    )]
    UnsupportedKey,
    #[error("the signature algorithm of the certificate signing request is weak or unsupported")]
    UnsupportedSignature,
    #[error("the certificate signing request is not signed by the key it carries")]
    BadSignature,
}

/// A public key whose owner has proved to hold the private half.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    info: Vec<u8>,
}

impl PublicKey {
    /// Checks a request in PEM (exactly one block): size, syntax, kind and strength of the key, self-signature.
    pub fn from_csr(text: &[u8]) -> Result<Self, CsrError> {
        if text.len() > MAX_CSR_BYTES {
            return Err(CsrError::TooLarge(text.len()));
        }
        Self::from_csr_der(&pem::signing_request(text)?)
    }

    /// As [`PublicKey::from_csr`], from DER.
    pub fn from_csr_der(der: &[u8]) -> Result<Self, CsrError> {
        if der.len() > MAX_CSR_BYTES {
            return Err(CsrError::TooLarge(der.len()));
        }
        let (rest, request) = X509CertificationRequest::from_der(der).map_err(|_| CsrError::Malformed)?;
        if !rest.is_empty() {
            return Err(CsrError::Malformed);
        }
        let info = &request.certification_request_info;
        // The parser lets a bit string end within a byte; keys and signatures never do.
        let whole = |bits: &BitString<'_>| bits.unused_bits == 0;
        if !whole(&request.signature_value) || !whole(&info.subject_pki.subject_public_key) {
            return Err(CsrError::Malformed);
        }
        let kind = KeyKind::of(&info.subject_pki)?;
        let algorithm = kind.verification(&request.signature_algorithm.algorithm.to_id_string())?;
        aws::UnparsedPublicKey::new(algorithm, &*info.subject_pki.subject_public_key.data)
            .verify(info.raw, &request.signature_value.data)
            .map_err(|_| CsrError::BadSignature)?;
        Ok(Self { info: info.subject_pki.raw.to_vec() })
    }

    /// A key that we made ourselves and therefore hold.
    pub fn from_own_key(key: &super::key::PrivateKey) -> Self {
        Self { info: key.public_key_info() }
    }

    /// DER of `SubjectPublicKeyInfo`, exactly as in the request.
    pub fn info(&self) -> &[u8] {
        &self.info
    }
}

/// A request for `key` in PEM, with an empty subject and no wishes.
pub fn create(key: &super::key::PrivateKey) -> Result<String, super::key::KeyError> {
    let der = super::profile::sign_request(key).map_err(|_| super::key::KeyError::Signing)?;
    Ok(pem::encode("CERTIFICATE REQUEST", &der))
}

#[derive(Clone, Copy)]
enum KeyKind {
    Rsa,
    P256,
    P384,
    Ed25519,
}

impl KeyKind {
    fn of(info: &SubjectPublicKeyInfo<'_>) -> Result<Self, CsrError> {
        const CURVE_P256: &str = "1.2.840.10045.3.1.7";
        const CURVE_P384: &str = "1.3.132.0.34";
        match info.algorithm.algorithm.to_id_string().as_str() {
            "1.2.840.113549.1.1.1" => match info.parsed() {
                Ok(ParsedKey::RSA(key)) if rsa_bits(key.modulus) >= 2048 => Ok(Self::Rsa),
                Ok(ParsedKey::RSA(_)) => Err(CsrError::WeakKey),
                _ => Err(CsrError::Malformed),
            },
            "1.2.840.10045.2.1" => {
                let curve = info.algorithm.parameters.as_ref().and_then(|any| any.as_oid().ok());
                match curve.map(|oid| oid.to_id_string()).as_deref() {
                    Some(CURVE_P256) => Ok(Self::P256),
                    Some(CURVE_P384) => Ok(Self::P384),
                    _ => Err(CsrError::UnsupportedKey),
                }
            }
            "1.3.101.112" => Ok(Self::Ed25519),
            _ => Err(CsrError::UnsupportedKey),
        }
    }

    /// How to check a signature with the given algorithm OID; SHA-1, MD5 and mismatched pairs have none.
    fn verification(self, oid: &str) -> Result<&'static dyn aws::VerificationAlgorithm, CsrError> {
        Ok(match (self, oid) {
            (Self::Rsa, "1.2.840.113549.1.1.11") => &aws::RSA_PKCS1_2048_8192_SHA256,
            (Self::Rsa, "1.2.840.113549.1.1.12") => &aws::RSA_PKCS1_2048_8192_SHA384,
            (Self::Rsa, "1.2.840.113549.1.1.13") => &aws::RSA_PKCS1_2048_8192_SHA512,
            (Self::P256, "1.2.840.10045.4.3.2") => &aws::ECDSA_P256_SHA256_ASN1,
            (Self::P256, "1.2.840.10045.4.3.3") => &aws::ECDSA_P256_SHA384_ASN1,
            (Self::P256, "1.2.840.10045.4.3.4") => &aws::ECDSA_P256_SHA512_ASN1,
            (Self::P384, "1.2.840.10045.4.3.2") => &aws::ECDSA_P384_SHA256_ASN1,
            (Self::P384, "1.2.840.10045.4.3.3") => &aws::ECDSA_P384_SHA384_ASN1,
            (Self::P384, "1.2.840.10045.4.3.4") => &aws::ECDSA_P384_SHA512_ASN1,
            (Self::Ed25519, "1.3.101.112") => &aws::ED25519,
            _ => return Err(CsrError::UnsupportedSignature),
        })
    }
}

/// Bits of a big-endian modulus, leading zeros not counted.
fn rsa_bits(modulus: &[u8]) -> usize {
    let significant = modulus.iter().position(|byte| *byte != 0).map_or(&[][..], |at| &modulus[at..]);
    match significant.first() {
        Some(first) => significant.len() * 8 - first.leading_zeros() as usize,
        None => 0,
    }
}

#[cfg(test)]
mod tests;
