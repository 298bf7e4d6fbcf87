//! TLS of tunnels that the gateway opens: it shows its own certificate of the mesh, and takes only the workload that it
//! wants to reach, by its identity.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::SingleCertAndKey;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::client::{ClientStream, ClientTlsError, explain};
use super::keys::KeyPair;
use super::mesh::MeshTrust;
use super::spiffe::SpiffeId;

/// What tunnels to workloads are opened with.
pub struct HboneClient {
    config: ClientConfig,
    trust: Arc<MeshTrust>,
    own: Arc<KeyPair>,
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
        let nobody = ExpectsPeer { trust: trust.clone(), peer: None };
        let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap_or_else(|_| unreachable!("the provider has suites for TLS 1.3"))
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(nobody))
            .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own.certified.clone())));
        config.alpn_protocols = vec![b"h2".to_vec()];
        // A session that goes on would show no certificate.
        config.resumption = rustls::client::Resumption::disabled();
        config.enable_sni = false;
        Self { config, trust, own }
    }

    /// Whether it was made of the same.
    pub fn is_made_of(&self, trust: &Arc<MeshTrust>, own: &Arc<KeyPair>) -> bool {
        Arc::ptr_eq(&self.trust, trust) && Arc::ptr_eq(&self.own, own)
    }
}

impl Via {
    /// Handshakes with the workload at `address`. Drop the future to give up.
    pub async fn connect(&self, tcp: TcpStream, address: IpAddr) -> Result<ClientStream, ClientTlsError> {
        let mut config = self.client.config.clone();
        let expects = ExpectsPeer { trust: self.client.trust.clone(), peer: Some(self.peer.clone()) };
        config.dangerous().set_certificate_verifier(Arc::new(expects));
        let name = ServerName::IpAddress(address.into());
        let stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.map_err(explain)?;
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

/// Takes a certificate that leads to a root of the mesh, is not revoked, and is for one workload.
#[derive(Debug)]
struct ExpectsPeer {
    trust: Arc<MeshTrust>,
    /// `None` takes nobody.
    peer: Option<SpiffeId>,
}

impl ServerCertVerifier for ExpectsPeer {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
        let certificate = ParsedCertificate::try_from(end_entity)?;
        verify_server_cert_signed_by_trust_anchor(
            &certificate,
            self.trust.roots(),
            intermediates,
            now,
            algorithms.all,
        )?;
        if self.trust.revokes(end_entity, intermediates) {
            return Err(CertificateError::Revoked.into());
        }
        match self.trust.identity(end_entity) {
            Ok(id) if Some(&id) == self.peer.as_ref() => Ok(ServerCertVerified::assertion()),
            _ => Err(CertificateError::NotValidForName.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
