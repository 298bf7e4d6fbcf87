//! Which kinds of certificate a client can check, from the signature schemes and suites of its ClientHello: what
//! [`HostCertificates::select`](crate::snapshot::certificates::HostCertificates::select) chooses by.

use rustls::SignatureScheme;

use super::Algorithm;

/// A set of [`Algorithm`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientKeys(u8);

impl ClientKeys {
    pub const NONE: Self = Self(0);

    /// The kinds that sign with one of `schemes`.
    pub fn of_schemes(schemes: &[SignatureScheme]) -> Self {
        schemes.iter().filter_map(|scheme| algorithm_of(*scheme)).fold(Self::NONE, Self::with)
    }

    #[must_use]
    pub const fn with(self, algorithm: Algorithm) -> Self {
        Self(self.0 | 1 << algorithm as u8)
    }

    /// What is in both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// What is in either set.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub const fn accepts(self, algorithm: Algorithm) -> bool {
        self.0 & (1 << algorithm as u8) != 0
    }
}

/// The kind of key that signs with `scheme`. ECDSA schemes are bound to a curve in TLS 1.3 (RFC 8446, section
/// 4.2.3), and rustls binds them in TLS 1.2 too.
fn algorithm_of(scheme: SignatureScheme) -> Option<Algorithm> {
    Some(match scheme {
        SignatureScheme::ECDSA_NISTP256_SHA256 => Algorithm::EcdsaP256,
        SignatureScheme::ECDSA_NISTP384_SHA384 => Algorithm::EcdsaP384,
        SignatureScheme::ECDSA_NISTP521_SHA512 => Algorithm::EcdsaP521,
        SignatureScheme::ED25519 => Algorithm::Ed25519,
        SignatureScheme::RSA_PSS_SHA256
        | SignatureScheme::RSA_PSS_SHA384
        | SignatureScheme::RSA_PSS_SHA512
        | SignatureScheme::RSA_PKCS1_SHA256
        | SignatureScheme::RSA_PKCS1_SHA384
        | SignatureScheme::RSA_PKCS1_SHA512 => Algorithm::Rsa,
        _ => return None,
    })
}
