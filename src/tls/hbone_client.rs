//! TLS of tunnels that the gateway opens: it shows its own certificate of the mesh, and takes only the workload that it
//! wants to reach, by its identity.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use imbl::HashMap;
use rustls::pki_types::ServerName;
use rustls::sign::SingleCertAndKey;
use rustls::{CertificateError, ClientConfig, Error};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::client::{ClientStream, ClientTlsError, explain};
use super::keys::KeyPair;
use super::mesh::MeshTrust;
use super::peer_verifier::{ExpectedPeer, PeerVerifier, ShownChain};
use super::spiffe::SpiffeId;

/// What tunnels to workloads are opened with.
pub struct HboneClient {
    trust: Arc<MeshTrust>,
    own: Arc<KeyPair>,
    /// By the workload that each takes, of those that were ever connected to.
    configs: ArcSwap<HashMap<SpiffeId, Arc<ClientConfig>>>,
}

/// Whom a tunnel leads to. Two are equal where one connection serves both.
#[derive(Clone, Debug)]
pub struct Via {
    pub client: Arc<HboneClient>,
    /// The workload, as its certificate must say.
    pub peer: SpiffeId,
}

impl HboneClient {
    /// Shows `own`, and verifies workloads against `trust`.
    pub fn new(trust: Arc<MeshTrust>, own: Arc<KeyPair>) -> Self {
        Self { trust, own, configs: ArcSwap::default() }
    }

    /// What to connect to `peer` with; made once for all workers.
    fn config(&self, peer: &SpiffeId) -> Arc<ClientConfig> {
        if let Some(config) = self.configs.load().get(peer) {
            return config.clone();
        }
        let config = Arc::new(self.new_config(peer));
        self.configs.rcu(|configs| configs.update(peer.clone(), config.clone()));
        config
    }

    fn new_config(&self, peer: &SpiffeId) -> ClientConfig {
        let expected = Workload { trust: self.trust.clone(), id: peer.clone() };
        let mut config = ClientConfig::builder_with_provider(super::provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap_or_else(|_| unreachable!("the provider has suites for TLS 1.3"))
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(PeerVerifier::new(expected)))
            .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(self.own.certified.clone())));
        config.alpn_protocols = vec![b"h2".to_vec()];
        // A session that goes on would show no certificate.
        config.resumption = rustls::client::Resumption::disabled();
        config.enable_sni = false;
        config
    }

    /// Whether it was made of the same.
    pub fn is_made_of(&self, trust: &Arc<MeshTrust>, own: &Arc<KeyPair>) -> bool {
        Arc::ptr_eq(&self.trust, trust) && Arc::ptr_eq(&self.own, own)
    }
}

impl Via {
    /// Handshakes with the workload at `address`. Drop the future to give up.
    pub async fn connect(&self, tcp: TcpStream, address: IpAddr) -> Result<ClientStream, ClientTlsError> {
        let name = ServerName::IpAddress(address.into());
        let connector = TlsConnector::from(self.client.config(&self.peer));
        let stream = connector.connect(name, tcp).await.map_err(explain)?;
        match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => Ok(stream),
            _ => Err(ClientTlsError::Protocol),
        }
    }
}

impl PartialEq for Via {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.client, &other.client) && self.peer == other.peer
    }
}

impl Eq for Via {}

impl Hash for Via {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.client).hash(state);
        self.peer.hash(state);
    }
}

impl fmt::Debug for HboneClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HboneClient").finish_non_exhaustive()
    }
}

/// One workload, by a certificate that leads to a root of the mesh and is not revoked.
#[derive(Debug)]
struct Workload {
    trust: Arc<MeshTrust>,
    id: SpiffeId,
}

impl ExpectedPeer for Workload {
    fn admits(&self, shown: &ShownChain<'_>) -> Result<(), Error> {
        shown.leads_to(self.trust.roots())?;
        if self.trust.revokes(shown.leaf, shown.above) {
            return Err(CertificateError::Revoked.into());
        }
        match self.trust.identity(shown.leaf) {
            Ok(id) if id == self.id => Ok(()),
            _ => Err(CertificateError::NotValidForName.into()),
        }
    }
}

#[cfg(test)]
mod tests;
