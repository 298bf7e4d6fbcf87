//! Who the gateway itself is in the mesh: its certificate with key, and the roots that it verifies its peers with.
//!
//! The CA sets them and replaces them long before they end; every handshake uses what it finds, and connections that are
//! open are not touched. `tls::client` makes configurations of it for backends. Until there is an identity, handshakes
//! with it fail.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::client::ResolvesClientCert;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, Error, OtherError, RootCertStore, SignatureScheme};

use super::mesh;
use super::peer_verifier::{ExpectedPeer, PeerVerifier, ShownChain};

/// The identity, or none yet. Clones share it.
#[derive(Clone, Default)]
pub struct OwnIdentity {
    current: Arc<ArcSwapOption<Material>>,
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

impl OwnIdentity {
    /// Takes over a certificate (leaf first) with its key. Peers must lead to one of `roots` and be of `trust_domain`.
    pub fn set<'a>(
        &self,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        roots: impl IntoIterator<Item = &'a CertificateDer<'static>>,
        trust_domain: &str,
    ) -> Result<(), MaterialError> {
        let certified = Arc::new(CertifiedKey::from_der(chain, key, &super::provider())?);
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(roots.into_iter().cloned());
        let trust_domain = trust_domain.to_owned();
        self.current.store(Some(Arc::new(Material { certified, roots: store, trust_domain })));
        Ok(())
    }

    /// Takes peers whose chain leads to the roots and whose identity is of the trust domain, as both are at the time of
    /// the handshake.
    pub fn verifier(&self) -> Arc<dyn ServerCertVerifier> {
        Arc::new(PeerVerifier::new(self.clone()))
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

/// Any workload of the trust domain.
impl ExpectedPeer for OwnIdentity {
    fn admits(&self, shown: &ShownChain<'_>) -> Result<(), Error> {
        let refused = |error: PeerError| {
            Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(error))))
        };
        let Some(material) = self.current.load_full() else { return Err(refused(PeerError::NoIdentity)) };
        shown.leads_to(&material.roots)?;
        let id = mesh::spiffe_id(shown.leaf).map_err(|error| refused(error.into()))?;
        match id.trust_domain() == material.trust_domain {
            true => Ok(()),
            false => Err(refused(PeerError::TrustDomain(id.trust_domain().to_owned()))),
        }
    }
}
