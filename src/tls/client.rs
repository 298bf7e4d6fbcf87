//! TLS towards backends: configurations to connect with, and errors in words for the operator.
//!
//! Built when policies are compiled and shared by all workers; the upstream client connects with them. Who
//! verifies, verifies: chain, names and validity, or identity in place of names within the mesh. Not verifying is a
//! choice of the operator (it is what `backend-protocol: HTTPS` means where nothing else is said), never a fallback.

use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::{fmt, io};

use arc_swap::ArcSwap;
use imbl::HashMap;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption, WebPkiServerVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::own_identity::OwnIdentity;
use super::spiffe::SpiffeId;

#[cfg(test)]
pub(crate) mod tests;

/// A connection to a backend under TLS.
pub type ClientStream = tokio_rustls::client::TlsStream<TcpStream>;

/// How to speak TLS to a backend. Two are equal when they are clones of one: connections made with one are never
/// used for another.
#[derive(Clone)]
pub struct ClientTls(Arc<Settings>);

struct Settings {
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
    /// Whether the certificate must be for the name that is connected to.
    verifies_names: bool,
}

/// Whom to believe.
pub enum Roots<'a> {
    /// The public web's.
    WebPki,
    /// These and no others.
    Bundle(&'a [CertificateDer<'static>]),
}

/// The protocol to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Alpn {
    Http1,
    Http2,
}

/// Why no connection came about.
#[derive(Debug, thiserror::Error)]
pub enum ClientTlsError {
    #[error("the certificate comes from an unknown authority")]
    UnknownCa,
    #[error("the certificate is for another name")]
    WrongName,
    #[error("the certificate has expired or is not valid yet")]
    Expired,
    #[error("the certificate is not acceptable: {0}")]
    Certificate(String),
    #[error("the backend speaks none of the protocols asked for")]
    Protocol,
    #[error("handshake failed: {0}")]
    Handshake(#[source] io::Error),
}

/// Why a configuration could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RootsError {
    #[error("the bundle has no certificate")]
    Empty,
    #[error("certificate {index} of the bundle is malformed")]
    Malformed { index: usize },
}

impl ClientTls {
    /// Takes any certificate.
    pub fn unverified() -> Self {
        let schemes = super::provider().signature_verification_algorithms.supported_schemes();
        Self::with_verifier(Arc::new(AnyCertificate(schemes)), None, false)
    }

    /// Takes certificates that lead to one of `roots` and are for the name that is connected to.
    pub fn verified(roots: Roots<'_>) -> Result<Self, RootsError> {
        let roots = Arc::new(root_store(roots)?);
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, super::provider())
            .build()
            .map_err(|_| RootsError::Empty)?;
        Ok(Self::with_verifier(verifier, None, true))
    }

    fn with_verifier(
        verifier: Arc<dyn ServerCertVerifier>,
        shown: Option<Arc<dyn ResolvesClientCert>>,
        verifies_names: bool,
    ) -> Self {
        let config = |alpn: &[u8]| {
            let builder = ClientConfig::builder_with_provider(super::provider())
                .with_protocol_versions(rustls::ALL_VERSIONS)
                .unwrap_or_else(|_| unreachable!("the provider has suites for TLS 1.2 and 1.3"))
                .dangerous()
                .with_custom_certificate_verifier(verifier.clone());
            let mut config = match &shown {
                None => builder.with_no_client_auth(),
                Some(shown) => {
                    let mut config = builder.with_client_cert_resolver(shown.clone());
                    // A resumed session is one of the certificates and roots of before.
                    config.resumption = Resumption::disabled();
                    config
                }
            };
            config.alpn_protocols = vec![alpn.to_vec()];
            Arc::new(config)
        };
        Self(Arc::new(Settings { http1: config(b"http/1.1"), http2: config(b"h2"), verifies_names }))
    }

    /// Handshakes as `name`, which is sent as SNI unless it is an address. Drop the future to give up.
    pub async fn connect(
        &self,
        tcp: TcpStream,
        name: &str,
        address: IpAddr,
        alpn: Alpn,
    ) -> Result<ClientStream, ClientTlsError> {
        let server = match ServerName::try_from(name) {
            Ok(server) => server.to_owned(),
            // A Host that is no DNS name; without a name to verify, only the unverified may go on.
            Err(_) if self.0.verifies_names => return Err(ClientTlsError::WrongName),
            Err(_) => ServerName::IpAddress(address.into()),
        };
        let config = match alpn {
            Alpn::Http1 => &self.0.http1,
            Alpn::Http2 => &self.0.http2,
        };
        let stream = TlsConnector::from(config.clone()).connect(server, tcp).await.map_err(explain)?;
        // HTTP/1.1 is what a backend without ALPN speaks; HTTP/2 over TLS has to be agreed on (RFC 9113, 3.2).
        match (alpn, stream.get_ref().1.alpn_protocol()) {
            (Alpn::Http1, None | Some(b"http/1.1")) | (Alpn::Http2, Some(b"h2")) => Ok(stream),
            _ => Err(ClientTlsError::Protocol),
        }
    }
}

/// How to speak TLS to workloads of the mesh: the gateway shows its own certificate. Clones share everything.
#[derive(Clone)]
pub struct MeshTls {
    identity: OwnIdentity,
    /// Takes any workload.
    any: ClientTls,
    /// Takes one each, of those that were ever connected to.
    by_workload: Arc<ArcSwap<HashMap<SpiffeId, ClientTls>>>,
}

impl MeshTls {
    pub fn new(identity: &OwnIdentity) -> Self {
        let identity = identity.clone();
        Self { any: tls_to(&identity, None), identity, by_workload: Arc::default() }
    }

    /// To `workload`, or to any where it is not known who has an address; made once for all workers.
    pub fn to(&self, workload: Option<&SpiffeId>) -> ClientTls {
        let Some(workload) = workload else { return self.any.clone() };
        if let Some(tls) = self.by_workload.load().get(workload) {
            return tls.clone();
        }
        let tls = tls_to(&self.identity, Some(workload.clone()));
        self.by_workload.rcu(|known| known.update(workload.clone(), tls.clone()));
        tls
    }
}

fn tls_to(identity: &OwnIdentity, workload: Option<SpiffeId>) -> ClientTls {
    let shown: Arc<dyn ResolvesClientCert> = Arc::new(identity.clone());
    ClientTls::with_verifier(identity.verifier(workload), Some(shown), false)
}

impl PartialEq for ClientTls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ClientTls {}

impl Hash for ClientTls {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").field("verifies_names", &self.0.verifies_names).finish()
    }
}

fn root_store(roots: Roots<'_>) -> Result<RootCertStore, RootsError> {
    match roots {
        Roots::WebPki => Ok(webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect()),
        Roots::Bundle([]) => Err(RootsError::Empty),
        Roots::Bundle(certificates) => {
            let mut store = RootCertStore::empty();
            for (index, certificate) in certificates.iter().enumerate() {
                store.add(certificate.clone()).map_err(|_| RootsError::Malformed { index })?;
            }
            Ok(store)
        }
    }
}

pub(super) fn explain(error: io::Error) -> ClientTlsError {
    let cause = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match cause {
        Some(rustls::Error::InvalidCertificate(reason)) => explain_certificate(reason),
        Some(
            rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol)
            | rustls::Error::NoApplicationProtocol,
        ) => ClientTlsError::Protocol,
        _ => ClientTlsError::Handshake(error),
    }
}

fn explain_certificate(reason: &CertificateError) -> ClientTlsError {
    match reason {
        CertificateError::UnknownIssuer => ClientTlsError::UnknownCa,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            ClientTlsError::WrongName
        }
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => ClientTlsError::Expired,
        // What a self-signed certificate that calls itself a CA comes to.
        CertificateError::Other(other)
            if matches!(other.0.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity)) =>
        {
            ClientTlsError::UnknownCa
        }
        other => ClientTlsError::Certificate(other.to_string()),
    }
}

/// Takes every certificate, even one that cannot be parsed, so there is no key to check signatures with either.
#[derive(Debug)]
struct AnyCertificate(Vec<SignatureScheme>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.clone()
    }
}
