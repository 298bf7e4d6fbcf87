//! Key pairs from Secrets and PEM files, parsed once, when they arrive.
//!
//! `sources` call [`KeyPair::parse`]; `compile` asks a pair which hosts it covers; the resolver of the
//! handshake hands [`KeyPair::certified`] to rustls as it is. A `KeyPair` can always be served: its key is of
//! a kind and size that is supported and matches the first certificate of its chain.

mod chain;
mod client_keys;
mod error;
mod interned;
mod pem;
mod private;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::sign::CertifiedKey;
use serde::Serialize;
use zeroize::Zeroizing;

use crate::names::HostPattern;
use chain::Chain;
pub use client_keys::ClientKeys;
pub use error::{GenerateError, KeyPairError, KeyPairWarning, Part, PemProblem};
use private::{KeyDer, PrivateKey};

/// Longest `tls.crt` and longest `tls.key`, in bytes.
pub const MAX_PEM_BYTES: usize = 256 * 1024;
/// Most certificates in a `tls.crt`.
pub const MAX_CERTIFICATES: usize = 100;
/// Most subject alternative names of a leaf.
pub const MAX_NAMES: usize = 1000;

/// A certificate chain, leaf first, with the private key that matches it. `Debug` shows no secret bytes.
pub struct KeyPair {
    /// Chain and key as rustls serves them, without a staple.
    pub certified: Arc<CertifiedKey>,
    /// DNS names of the SAN extension (the common name only where there is no SAN); malformed ones left out.
    pub names: Box<[HostPattern]>,
    /// Serial number of the leaf, lower-case hex.
    pub serial: Box<str>,
    pub algorithm: Algorithm,
    /// Seconds since the Unix epoch.
    pub not_before: i64,
    pub not_after: i64,
    /// Where the leaf says its OCSP responder is (RFC 5280, section 4.2.2.1): the first `http` or `https` URL,
    /// else the first of any scheme. Not checked.
    pub ocsp_responder: Option<Box<str>>,
    /// The leaf asks to be served with a staple only (RFC 7633).
    pub must_staple: bool,
    /// SHA-256 of the leaf in DER.
    pub fingerprint: [u8; 32],
    /// SHA-256 over chain and public key: equal pairs are the same certificate for the data plane.
    pub digest: [u8; 32],
    /// What was odd, but not enough to refuse the pair.
    pub warnings: Box<[KeyPairWarning]>,
    /// The private key once more: none can be had from the one that rustls signs with.
    key: KeyDer,
}

impl KeyPair {
    /// Reads a chain and its private key, both in PEM (RFC 7468), as `tls.crt` and `tls.key` of a Secret hold
    /// them.
    ///
    /// The leaf is the certificate that has the public key of `key_pem`. The others follow in the order in
    /// which they sign each other; duplicates go, and so do certificates that have no part in the chain.
    pub fn parse(certificates_pem: &[u8], key_pem: &[u8]) -> Result<Self, KeyPairError> {
        let mut warnings = Vec::new();
        let key = PrivateKey::read(key_pem, &mut warnings)?;
        let chain = Chain::read(certificates_pem, &key.public, &mut warnings)?;
        Ok(Self {
            names: chain.names.into(),
            serial: chain.serial.into(),
            algorithm: key.algorithm,
            not_before: chain.not_before,
            not_after: chain.not_after,
            ocsp_responder: chain.ocsp_responder.map(Into::into),
            must_staple: chain.must_staple,
            fingerprint: sha256(chain.certificates.iter().take(1).map(|leaf| leaf.as_ref())),
            digest: sha256(chain.certificates.iter().map(|c| c.as_ref()).chain([key.public.as_slice()])),
            warnings: warnings.into(),
            certified: Arc::new(CertifiedKey::new(chain.certificates, key.signing)),
            key: key.der,
        })
    }

    /// Makes the self-signed pair that is served where no other is: P-256, valid for 365 days from now. Its
    /// common name is the one that dashboards of ingress-nginx look for.
    pub fn generate_default() -> Result<Self, GenerateError> {
        let mut params = rcgen::CertificateParams::new(["ingress.local".to_owned()])?;
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "Acme Co");
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, "Kubernetes Ingress Controller Fake Certificate");
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
        params.not_before = time::OffsetDateTime::now_utc();
        params.not_after = params.not_before + time::Duration::days(365);
        let key = rcgen::KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        let key_pem = Zeroizing::new(key.serialize_pem());
        Ok(Self::parse(certificate.pem().as_bytes(), key_pem.as_bytes())?)
    }

    /// Whether a client that asks for `host` accepts this certificate. A wildcard host needs that very
    /// wildcard among the names; rules without a host are covered by none.
    pub fn covers(&self, host: &HostPattern) -> bool {
        match host {
            HostPattern::Exact(name) => self.names.iter().any(|own| own.matches(name.as_str())),
            HostPattern::Wildcard(_) => self.names.contains(host),
            HostPattern::Any => false,
        }
    }

    /// Chain and private key in PEM, as [`parse`](Self::parse) reads them: for the generation after this one, and
    /// nobody else. Whoever has it wipes it.
    pub fn to_pem(&self) -> String {
        let certificates = self.certified.cert.iter().map(|der| ("CERTIFICATE", der.as_ref()));
        let blocks = || certificates.clone().chain([(self.key.label, self.key.der.as_slice())]);
        // As long as it gets: what a text that grows leaves behind is not wiped.
        let length = |(label, der): (&str, &[u8])| (der.len().div_ceil(3) + 12) * 4 + 2 * label.len();
        let mut pem = String::with_capacity(blocks().map(length).sum());
        for (label, der) in blocks() {
            pem.extend(["-----BEGIN ", label, "-----\n"]);
            STANDARD.encode_string(der, &mut pem);
            pem.extend(["\n-----END ", label, "-----\n"]);
        }
        pem
    }

    /// The leaf in DER.
    pub fn leaf(&self) -> &[u8] {
        self.certified.cert.first().map_or(&[], |leaf| leaf.as_ref())
    }

    /// The certificate that signed the leaf, in DER, where the chain has it.
    pub fn issuer(&self) -> Option<&[u8]> {
        self.certified.cert.get(1).map(|issuer| issuer.as_ref())
    }
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyPair")
            .field("names", &self.names)
            .field("serial", &self.serial)
            .finish_non_exhaustive()
    }
}

/// What kind of key a certificate has; a host may have one certificate of each. In the order in which they
/// are preferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Algorithm {
    EcdsaP256,
    EcdsaP384,
    EcdsaP521,
    Ed25519,
    Rsa,
}

/// Over all parts in turn; DER says where it ends, so no two lists of parts run into one another.
fn sha256<'a>(parts: impl Iterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    parts.for_each(|part| context.update(part));
    let mut hash = [0; 32];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}
