//! Private keys of the CA and of the certificates it makes itself.
//!
//! A key is parsed once, knows the signature algorithm it signs with (the algorithm always follows from the
//! signing key, never from a request) and shows nothing of itself in `Debug`.

use std::fmt;
use std::str::FromStr;

use der::asn1::ObjectIdentifier;
use rcgen::{PublicKeyData, SigningKey};
use rustls_pki_types::PrivateKeyDer;
use zeroize::Zeroizing;

use super::pem::{self, PemError};

/// Keys that Portcullis generates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum KeyAlgorithm {
    /// ECDSA on P-256.
    #[default]
    #[value(name = "ecdsa-p256")]
    EcdsaP256,
    /// RSA with 2048 bits, for peers that know nothing else.
    #[value(name = "rsa-2048")]
    Rsa2048,
}

impl fmt::Display for KeyAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EcdsaP256 => "ecdsa-p256",
            Self::Rsa2048 => "rsa-2048",
        })
    }
}

impl FromStr for KeyAlgorithm {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        match text {
            "ecdsa-p256" => Ok(Self::EcdsaP256),
            "rsa-2048" => Ok(Self::Rsa2048),
            _ => Err(KeyError::Unsupported),
        }
    }
}

/// Why a key cannot be used. No variant carries bytes of a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("the private key is not readable: {0}")]
    Pem(#[from] PemError),
    #[error("the private key does not parse as PKCS#8, PKCS#1 or SEC1")]
    Malformed,
    #[error(
        "the private key is of an unsupported kind: use ECDSA P-256 or P-384, Ed25519, or RSA of 2048 bits or more"
    )]
    Unsupported,
    #[error("the key could not be generated")]
    Generation,
    #[error("signing failed")]
    Signing,
}

/// A private key that signs.
pub struct PrivateKey {
    pair: rcgen::KeyPair,
    signature_oid: ObjectIdentifier,
    /// PKCS#1 signatures carry a NULL parameter (RFC 4055 section 5), the others none.
    null_parameters: bool,
}

impl PrivateKey {
    pub fn generate(algorithm: KeyAlgorithm) -> Result<Self, KeyError> {
        let algorithm = match algorithm {
            KeyAlgorithm::EcdsaP256 => &rcgen::PKCS_ECDSA_P256_SHA256,
            KeyAlgorithm::Rsa2048 => &rcgen::PKCS_RSA_SHA256,
        };
        Self::from_pair(rcgen::KeyPair::generate_for(algorithm).map_err(|_| KeyError::Generation)?)
    }

    /// Reads the first private key in `text`: PKCS#8, PKCS#1 or SEC1.
    pub fn from_pem(text: &[u8]) -> Result<Self, KeyError> {
        let der = pem::private_key(text)?;
        let parsed = PrivateKeyDer::try_from(der.as_slice()).map_err(|_| KeyError::Malformed)?;
        Self::from_pair(rcgen::KeyPair::try_from(&parsed).map_err(|_| KeyError::Malformed)?)
    }

    /// The key as PEM: `PRIVATE KEY` (PKCS#8) for generated keys, else the encoding it was read from.
    pub fn to_pem(&self) -> Zeroizing<String> {
        let der = self.pair.serialized_der();
        let label = match PrivateKeyDer::try_from(der) {
            Ok(PrivateKeyDer::Pkcs1(_)) => "RSA PRIVATE KEY",
            Ok(PrivateKeyDer::Sec1(_)) => "EC PRIVATE KEY",
            _ => "PRIVATE KEY",
        };
        Zeroizing::new(pem::encode(label, der))
    }

    /// The key as DER, for a TLS configuration.
    pub fn to_der(&self) -> Option<PrivateKeyDer<'static>> {
        PrivateKeyDer::try_from(self.pair.serialized_der()).ok().map(|der| der.clone_key())
    }

    /// `SubjectPublicKeyInfo` of the public half, DER.
    pub fn public_key_info(&self) -> Vec<u8> {
        self.pair.subject_public_key_info()
    }

    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        self.pair.sign(message).map_err(|_| KeyError::Signing)
    }

    /// OID of the algorithm that [`PrivateKey::sign`] signs with, and whether its identifier has NULL parameters.
    pub fn signature_algorithm(&self) -> (ObjectIdentifier, bool) {
        (self.signature_oid, self.null_parameters)
    }

    /// The algorithm to generate keys with that fit next to this one.
    pub fn kind(&self) -> KeyAlgorithm {
        if self.null_parameters { KeyAlgorithm::Rsa2048 } else { KeyAlgorithm::EcdsaP256 }
    }

    /// The key as a CSR maker of rcgen takes it.
    #[cfg(test)]
    pub fn pair(&self) -> &rcgen::KeyPair {
        &self.pair
    }

    fn from_pair(pair: rcgen::KeyPair) -> Result<Self, KeyError> {
        let algorithm = pair.algorithm();
        let (oid, null_parameters) = if algorithm == &rcgen::PKCS_ECDSA_P256_SHA256 {
            ("1.2.840.10045.4.3.2", false)
        } else if algorithm == &rcgen::PKCS_ECDSA_P384_SHA384 {
            ("1.2.840.10045.4.3.3", false)
        } else if algorithm == &rcgen::PKCS_ED25519 {
            ("1.3.101.112", false)
        } else if algorithm == &rcgen::PKCS_RSA_SHA256 {
            ("1.2.840.113549.1.1.11", true)
        } else {
            return Err(KeyError::Unsupported);
        };
        Ok(Self { pair, signature_oid: ObjectIdentifier::new_unwrap(oid), null_parameters })
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(..)")
    }
}
