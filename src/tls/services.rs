//! TLS of the services that are our own, and not what the gateway serves for others: the CA's CSR service and the
//! admission webhook on one side, the client of a CSR service on the other. Their HTTP is `ca`'s and `admission`'s.

use std::io;
use std::sync::Arc;

pub use rustls::Error as TlsError;
use rustls::RootCertStore;
use rustls::client::ClientConfig;
use rustls::server::{NoServerSessionStorage, ServerConfig, VerifierBuilderError, WebPkiClientVerifier};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

/// A connection from a client whose handshake is over.
pub type Accepted = server::TlsStream<TcpStream>;
/// A connection to a server whose handshake is over.
pub type Connected = client::TlsStream<TcpStream>;

/// A chain, its own certificate first, and the key of that.
pub type ChainAndKey = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// The application protocol that a service speaks, by its ALPN name.
#[derive(Clone, Copy, Debug)]
pub enum Protocol {
    Http1,
    Http2,
}

impl Protocol {
    fn alpn(self) -> Vec<Vec<u8>> {
        let name: &[u8] = match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        };
        vec![name.to_vec()]
    }
}

/// The server side of a service. Cheap to clone; another certificate makes another one.
#[derive(Clone)]
pub struct ServiceTls(Arc<ServerConfig>);

/// Why a service cannot be served with what there is.
#[derive(Debug, thiserror::Error)]
pub enum ServiceTlsError {
    #[error("server certificate: {0}")]
    Certificate(rustls::Error),
    #[error("trusted roots: {0}")]
    Verifier(#[from] VerifierBuilderError),
}

impl ServiceTls {
    /// For a service that asks for no certificate of its clients.
    ///
    /// # Errors
    /// The chain and the key do not belong together.
    pub fn new((chain, key): ChainAndKey, protocol: Protocol) -> Result<Self, ServiceTlsError> {
        let mut config = ServerConfig::builder_with_provider(super::provider())
            .with_safe_default_protocol_versions()
            .map_err(ServiceTlsError::Certificate)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(ServiceTlsError::Certificate)?;
        config.alpn_protocols = protocol.alpn();
        Ok(Self(Arc::new(config)))
    }

    /// For a service that lets clients without a certificate in, but none with one that does not verify against
    /// `roots` or is revoked.
    ///
    /// # Errors
    /// The chain and the key do not belong together, or no root can be used.
    pub fn that_verifies<'a>(
        (chain, key): ChainAndKey,
        protocol: Protocol,
        roots: impl IntoIterator<Item = &'a CertificateDer<'static>>,
        revocations: Vec<CertificateRevocationListDer<'static>>,
    ) -> Result<Self, ServiceTlsError> {
        let provider = super::provider();
        let verifier = WebPkiClientVerifier::builder_with_provider(anchors(roots).into(), provider.clone())
            .with_crls(revocations)
            // The lists of a plugged-in CA may speak of what its issuers signed, and not of our leaves.
            .allow_unknown_revocation_status()
            .allow_unauthenticated()
            .build()?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(ServiceTlsError::Certificate)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(ServiceTlsError::Certificate)?;
        config.alpn_protocols = protocol.alpn();
        // A resumed session would not look at the client certificate again, nor at roots that changed meanwhile.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self(Arc::new(config)))
    }

    /// The handshake with a client. It takes as long as the client does: the caller has the deadline.
    ///
    /// # Errors
    /// The client went away, or the handshake failed.
    pub async fn accept(&self, stream: TcpStream) -> io::Result<Accepted> {
        TlsAcceptor::from(self.0.clone()).accept(stream).await
    }
}

/// The chain that the client showed and that was verified in the handshake, its own certificate first.
pub fn peer_chain(stream: &Accepted) -> Option<Arc<[CertificateDer<'static>]>> {
    let chain = stream.get_ref().1.peer_certificates()?;
    Some(chain.iter().map(|link| link.clone().into_owned()).collect())
}

/// The client side of a service.
pub struct ServiceClient(TlsConnector);

impl ServiceClient {
    /// For servers that verify against `roots`. `identity` is what the client shows, if anything.
    ///
    /// # Errors
    /// The chain and the key of `identity` do not belong together.
    pub fn new<'a>(
        roots: impl IntoIterator<Item = &'a CertificateDer<'static>>,
        identity: Option<ChainAndKey>,
        protocol: Protocol,
    ) -> Result<Self, TlsError> {
        let builder = ClientConfig::builder_with_provider(super::provider())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(anchors(roots));
        let mut config = match identity {
            Some((chain, key)) => builder.with_client_auth_cert(chain, key)?,
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = protocol.alpn();
        Ok(Self(Arc::new(config).into()))
    }

    /// The handshake with a server, whose certificate must be for `name`. The caller has the deadline.
    ///
    /// # Errors
    /// The server went away, or the handshake failed.
    pub async fn connect(&self, name: ServerName<'static>, stream: TcpStream) -> io::Result<Connected> {
        self.0.connect(name, stream).await
    }
}

fn anchors<'a>(roots: impl IntoIterator<Item = &'a CertificateDer<'static>>) -> RootCertStore {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(roots.into_iter().cloned());
    store
}
