//! Who the gateway itself is in the mesh: its certificate with key, and the roots and revocation lists that it verifies
//! its peers with.
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
use rustls::{CertificateError, Error, OtherError, SignatureScheme};

use super::mesh::{IdentityError, MeshTrust, MeshTrustError, TrustBundle};
use super::peer_verifier::{ExpectedPeer, PeerVerifier, ShownChain};
use super::spiffe::SpiffeId;

/// The identity, or none yet. Clones share it.
#[derive(Clone, Default)]
pub struct OwnIdentity {
    current: Arc<ArcSwapOption<Material>>,
}

struct Material {
    certified: Arc<CertifiedKey>,
    trust: MeshTrust,
}

/// Why an identity cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MaterialError {
    #[error("the key does not fit the certificate: {0}")]
    Key(#[from] Error),
    #[error(transparent)]
    Trust(#[from] MeshTrustError),
}

/// Why a peer was not believed.
#[derive(Debug, thiserror::Error)]
enum PeerError {
    #[error("the gateway has no identity yet")]
    NoIdentity,
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("the peer is {0}, which is not who has that address")]
    OtherWorkload(SpiffeId),
}

impl OwnIdentity {
    /// Takes over a certificate (leaf first) with its key. Peers are verified against `bundle`, as of `now` in seconds since
    /// the Unix epoch.
    pub fn set(
        &self,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        bundle: TrustBundle,
        now: i64,
    ) -> Result<(), MaterialError> {
        let certified = Arc::new(CertifiedKey::from_der(chain, key, &super::provider())?);
        let trust = MeshTrust::new(bundle, now)?;
        self.current.store(Some(Arc::new(Material { certified, trust })));
        Ok(())
    }

    /// Takes peers whose chain leads to the roots and is not revoked and whose identity is of the trust domain, as all
    /// that is at the time of the handshake; and of them only `workload`, where it is given: who has its namespace and
    /// service account.
    pub fn verifier(&self, workload: Option<SpiffeId>) -> Arc<dyn ServerCertVerifier> {
        Arc::new(PeerVerifier::new(Expected { own: self.clone(), workload }))
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

/// A workload of the trust domain, any or this one.
#[derive(Debug)]
struct Expected {
    own: OwnIdentity,
    workload: Option<SpiffeId>,
}

impl ExpectedPeer for Expected {
    fn admits(&self, shown: &ShownChain<'_>) -> Result<(), Error> {
        let refused = |error: PeerError| {
            Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(error))))
        };
        let Some(material) = self.own.current.load_full() else { return Err(refused(PeerError::NoIdentity)) };
        shown.leads_to(material.trust.roots())?;
        if material.trust.revokes(shown.leaf, shown.above) {
            return Err(CertificateError::Revoked.into());
        }
        let id = material.trust.identity(shown.leaf).map_err(|error| refused(error.into()))?;
        let is_same = |wanted: &SpiffeId| {
            (id.namespace(), id.service_account()) == (wanted.namespace(), wanted.service_account())
        };
        match self.workload.as_ref().is_none_or(is_same) {
            true => Ok(()),
            false => Err(refused(PeerError::OtherWorkload(id))),
        }
    }
}
