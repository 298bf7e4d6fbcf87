//! The private key of a pair: PKCS#1, SEC1 or PKCS#8, checked before aws-lc sees it, so that a refusal has a
//! reason and a key of absurd size costs nothing. Called by `KeyPair::parse` only.

use std::sync::Arc;

use rustls::SignatureScheme;
use rustls::crypto::aws_lc_rs::sign;
use rustls::pki_types::{
    PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer, SubjectPublicKeyInfoDer,
};
use rustls::sign::SigningKey;
use x509_parser::asn1_rs::{Any, Class, FromDer, Tag};
use x509_parser::x509::SubjectPublicKeyInfo;
use zeroize::Zeroizing;

use super::error::{KeyPairError, KeyPairWarning, Part};
use super::{Algorithm, MAX_PEM_BYTES, pem};

pub(super) struct PrivateKey {
    pub signing: Arc<dyn SigningKey>,
    pub algorithm: Algorithm,
    pub der: KeyDer,
    /// The public key as the `subjectPublicKey` bits of a certificate hold it.
    pub public: Vec<u8>,
}

/// A private key in DER, wiped when it is dropped.
pub(super) struct KeyDer {
    /// What a PEM block of it is called.
    pub label: &'static str,
    pub der: Zeroizing<Vec<u8>>,
}

impl PrivateKey {
    /// Reads the first private key of `text`; parameters blocks, certificates and text around it are skipped.
    pub fn read(text: &[u8], warnings: &mut Vec<KeyPairWarning>) -> Result<Self, KeyPairError> {
        if text.len() > MAX_PEM_BYTES {
            return Err(KeyPairError::TooLarge(Part::Key));
        }
        let blocks = pem::blocks(text, Part::Key, warnings)?;
        let mut keys = blocks.iter().filter(|block| block.is_private_key());
        let block = keys.next().ok_or(KeyPairError::KeyMissing)?;
        let key = Self::decode(block)?;
        warnings.extend(keys.map(|other| KeyPairWarning::SecondKey { line: other.line }));
        Ok(key)
    }

    fn decode(block: &pem::Block<'_>) -> Result<Self, KeyPairError> {
        let line = block.line;
        if block.encrypted || block.label == b"ENCRYPTED PRIVATE KEY" {
            return Err(KeyPairError::KeyEncrypted { line });
        }
        let der = block.der()?;
        let (kind, key, label) = match block.label {
            b"RSA PRIVATE KEY" => (
                check_pkcs1(&der, line)?,
                PrivateKeyDer::Pkcs1(PrivatePkcs1KeyDer::from(der.as_slice())),
                "RSA PRIVATE KEY",
            ),
            b"EC PRIVATE KEY" => (
                check_sec1(&der, line)?,
                PrivateKeyDer::Sec1(PrivateSec1KeyDer::from(der.as_slice())),
                "EC PRIVATE KEY",
            ),
            b"PRIVATE KEY" => (
                check_pkcs8(&der, line)?,
                PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(der.as_slice())),
                "PRIVATE KEY",
            ),
            b"OPENSSH PRIVATE KEY" => {
                return Err(KeyPairError::KeyUnsupported { line, what: "in the format of OpenSSH" });
            }
            _ => return Err(KeyPairError::KeyUnsupported { line, what: "of another kind" }),
        };
        let invalid = || KeyPairError::KeyInvalid { line };
        // Without the kind, an ECDSA key would be parsed twice, as nearly all of the time here is spent on.
        let signing = match kind {
            Kind::Ecdsa => sign::any_ecdsa_type(&key),
            Kind::Rsa | Kind::Ed25519 => sign::any_supported_type(&key),
        };
        let signing = signing.map_err(|_| invalid())?;
        let algorithm = algorithm_of(&*signing).ok_or_else(invalid)?;
        let public = signing.public_key().as_ref().and_then(public_bits).ok_or_else(invalid)?;
        drop(key);
        Ok(Self { signing, algorithm, der: KeyDer { label, der }, public })
    }
}

enum Kind {
    Rsa,
    Ecdsa,
    Ed25519,
}

fn algorithm_of(key: &dyn SigningKey) -> Option<Algorithm> {
    let schemes = [
        (SignatureScheme::ECDSA_NISTP256_SHA256, Algorithm::EcdsaP256),
        (SignatureScheme::ECDSA_NISTP384_SHA384, Algorithm::EcdsaP384),
        (SignatureScheme::ECDSA_NISTP521_SHA512, Algorithm::EcdsaP521),
        (SignatureScheme::ED25519, Algorithm::Ed25519),
        (SignatureScheme::RSA_PSS_SHA256, Algorithm::Rsa),
    ];
    schemes.into_iter().find(|(scheme, _)| key.choose_scheme(&[*scheme]).is_some()).map(|(_, found)| found)
}

fn public_bits(key: &SubjectPublicKeyInfoDer<'_>) -> Option<Vec<u8>> {
    let (_, key) = SubjectPublicKeyInfo::from_der(key.as_ref()).ok()?;
    Some(key.subject_public_key.data.to_vec())
}

/// Contents of object identifiers, as DER has them.
mod oid {
    pub const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
    pub const RSA_PSS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 10];
    pub const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
    pub const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
    pub const ED448: &[u8] = &[0x2b, 0x65, 0x71];
    pub const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
    pub const P384: &[u8] = &[0x2b, 0x81, 4, 0, 0x22];
    pub const P521: &[u8] = &[0x2b, 0x81, 4, 0, 0x23];
}

/// `RSAPrivateKey` (RFC 8017, appendix A.1.2): version, modulus, exponents and primes.
fn check_pkcs1(der: &[u8], line: usize) -> Result<Kind, KeyPairError> {
    let fields = sequence(der).ok_or(KeyPairError::KeyInvalid { line })?;
    let Some([_, modulus]) = fields.first_chunk() else {
        return Err(KeyPairError::KeyInvalid { line });
    };
    match bits(modulus.data) {
        bits @ ..2048 => Err(KeyPairError::WeakKey { bits }),
        2048..=4096 => Ok(Kind::Rsa),
        bits => Err(KeyPairError::KeyTooLarge { bits }),
    }
}

/// `ECPrivateKey` (RFC 5915): version, key, and optionally [0] parameters and [1] public key.
fn check_sec1(der: &[u8], line: usize) -> Result<Kind, KeyPairError> {
    let fields = sequence(der).ok_or(KeyPairError::KeyInvalid { line })?;
    let parameters =
        fields.iter().find(|field| field.class() == Class::ContextSpecific && field.tag() == Tag(0));
    match parameters {
        Some(parameters) => {
            let (_, curve) = Any::from_der(parameters.data).map_err(|_| KeyPairError::KeyInvalid { line })?;
            check_curve(&curve, line)
        }
        None => Ok(Kind::Ecdsa),
    }
}

/// `PrivateKeyInfo` (RFC 5958): version, algorithm with parameters, key.
fn check_pkcs8(der: &[u8], line: usize) -> Result<Kind, KeyPairError> {
    let invalid = || KeyPairError::KeyInvalid { line };
    let fields = sequence(der).ok_or_else(invalid)?;
    let Some([_, algorithm, key]) = fields.first_chunk() else {
        return Err(invalid());
    };
    let algorithm = elements(algorithm.data).ok_or_else(invalid)?;
    let identifier = algorithm.first().ok_or_else(invalid)?;
    match identifier.data {
        oid::RSA => check_pkcs1(key.data, line),
        oid::EC => match algorithm.get(1) {
            Some(curve) => check_curve(curve, line),
            None => Ok(Kind::Ecdsa),
        },
        oid::ED25519 => Ok(Kind::Ed25519),
        oid::ED448 => Err(KeyPairError::KeyUnsupported { line, what: "an Ed448 key" }),
        oid::RSA_PSS => Err(KeyPairError::KeyUnsupported { line, what: "an RSA key for PSS only" }),
        _ => Err(KeyPairError::KeyUnsupported { line, what: "of an unknown algorithm" }),
    }
}

fn check_curve(curve: &Any<'_>, line: usize) -> Result<Kind, KeyPairError> {
    match (curve.tag(), curve.data) {
        (Tag::Oid, oid::P256 | oid::P384 | oid::P521) => Ok(Kind::Ecdsa),
        (Tag::Oid, _) => Err(KeyPairError::KeyUnsupported { line, what: "on another curve" }),
        _ => Err(KeyPairError::KeyUnsupported {
            line,
            what: "an ECDSA key with explicit curve parameters instead of a named curve",
        }),
    }
}

/// The elements of a SEQUENCE that fills `der`.
fn sequence(der: &[u8]) -> Option<Vec<Any<'_>>> {
    match Any::from_der(der) {
        Ok(([], sequence)) if sequence.tag() == Tag::Sequence => elements(sequence.data),
        _ => None,
    }
}

fn elements(mut der: &[u8]) -> Option<Vec<Any<'_>>> {
    let mut elements = Vec::new();
    while !der.is_empty() {
        let (rest, element) = Any::from_der(der).ok()?;
        elements.push(element);
        der = rest;
    }
    Some(elements)
}

/// How many bits a positive INTEGER has.
fn bits(integer: &[u8]) -> usize {
    match integer {
        [0, rest @ ..] => bits(rest),
        [first, rest @ ..] => rest.len() * 8 + (8 - first.leading_zeros() as usize),
        [] => 0,
    }
}
