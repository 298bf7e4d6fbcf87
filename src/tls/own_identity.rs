//! Who the gateway itself is in the mesh: its certificate with key, and the roots that it verifies its peers with.
//!
//! The CA sets them and replaces them long before they end; every handshake uses what it finds, and connections that are
//! open are not touched. `tls::client` makes configurations of it for backends. Until there is an identity, handshakes
//! with it fail.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::client::ResolvesClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme};

use super::mesh;

/// The identity, or none yet. Clones share it.
#[derive(Clone)]
pub struct OwnIdentity {
    current: Arc<ArcSwapOption<Material>>,
    provider: Arc<CryptoProvider>,
}

struct Material {
    certified: Arc<CertifiedKey>,
    roots: RootCertStore,
    trust_domain: String,
}

/// Why an identity cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the key does not fit the certificate: {0}")]
pub struct MaterialError(#[from] Error);

/// Why a peer was not believed.
#[derive(Debug, thiserror::Error)]
enum PeerError {
    #[error("the gateway has no identity yet")]
    NoIdentity,
    #[error("the peer is of trust domain {0:?}")]
    TrustDomain(String),
    #[error(transparent)]
    Identity(#[from] mesh::IdentityError),
}

impl Default for OwnIdentity {
    fn default() -> Self {
        Self { current: Arc::default(), provider: Arc::new(aws_lc_rs::default_provider()) }
    }
}

impl OwnIdentity {
    /// Takes over a certificate (leaf first) with its key. Peers must lead to one of `roots` and be of `trust_domain`.
    pub fn set<'a>(
        &self,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        roots: impl IntoIterator<Item = &'a CertificateDer<'static>>,
        trust_domain: &str,
    ) -> Result<(), MaterialError> {
        let certified = Arc::new(CertifiedKey::from_der(chain, key, &self.provider)?);
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(roots.into_iter().cloned());
        let trust_domain = trust_domain.to_owned();
        self.current.store(Some(Arc::new(Material { certified, roots: store, trust_domain })));
        Ok(())
    }

    /// The certificate in use, leaf first.
    pub fn certificate(&self) -> Option<Vec<CertificateDer<'static>>> {
        self.current.load().as_ref().map(|material| material.certified.cert.clone())
    }
}

impl fmt::Debug for OwnIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnIdentity").field("is_set", &self.current.load().is_some()).finish()
    }
}

impl ResolvesClientCert for OwnIdentity {
    fn resolve(&self, _: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let material = self.current.load_full()?;
        material.certified.key.choose_scheme(schemes)?;
        Some(Arc::clone(&material.certified))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Chain, validity and identity are verified; the name that was connected to is not, because identities of the mesh
/// have none.
impl ServerCertVerifier for OwnIdentity {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let refused = |error: PeerError| {
            Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(error))))
        };
        let Some(material) = self.current.load_full() else { return Err(refused(PeerError::NoIdentity)) };
        let parsed = ParsedCertificate::try_from(leaf)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &material.roots, intermediates, now, algorithms)?;
        let id = mesh::spiffe_id(leaf).map_err(|error| refused(error.into()))?;
        match id.trust_domain() == material.trust_domain {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(refused(PeerError::TrustDomain(id.trust_domain().to_owned()))),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
