//! TLS of the HBONE port: the gateway shows its certificate of the mesh, the client shows its own.
//!
//! `compile` makes an [`HboneTls`] anew when the certificate, the roots or the settings change; open tunnels stay
//! with what their handshake began with.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::accept::{HandshakeError, TlsStream, hello_error};
use super::keys::KeyPair;
use super::mesh::{MeshClient, MeshTrust, spiffe_id};
use super::policy::{TlsPolicy, TlsPolicyError, client_of};
use super::spiffe::SpiffeId;
use crate::settings::Settings;

/// What handshakes of the HBONE port are made with.
pub struct HboneTls {
    config: Arc<ServerConfig>,
    trust: Arc<MeshTrust>,
    /// Who the gateway is in the mesh; `None` where its certificate says nothing about that.
    pub identity: Option<SpiffeId>,
}

impl HboneTls {
    /// Shows `own` to clients and verifies them against `trust`.
    pub fn new(settings: &Settings, trust: Arc<MeshTrust>, own: &KeyPair) -> Result<Self, TlsPolicyError> {
        let config = TlsPolicy::hbone(settings, trust.clone(), own.certified.clone())?;
        Ok(Self { config: Arc::new(config), trust, identity: identity_of(own) })
    }

    /// Takes a client through the handshake. Where the settings ask for a certificate, one without is turned away.
    pub async fn accept(
        &self,
        stream: TcpStream,
    ) -> Result<(TlsStream, Option<Rc<MeshClient>>), HandshakeError> {
        let stream = TlsAcceptor::from(self.config.clone()).accept(stream).await.map_err(hello_error)?;
        let chain = stream.get_ref().1.peer_certificates();
        let client = chain.and_then(|chain| client_of(&self.trust, chain)).map(Rc::new);
        Ok((stream, client))
    }
}

/// The identity that a certificate of the mesh gives to who has it.
pub fn identity_of(pair: &KeyPair) -> Option<SpiffeId> {
    spiffe_id(pair.certified.cert.first()?).ok()
}

impl fmt::Debug for HboneTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HboneTls").field("identity", &self.identity).finish_non_exhaustive()
    }
}
