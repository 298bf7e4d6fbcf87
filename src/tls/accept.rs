//! The TLS handshake of a client: read the ClientHello, decide, finish.
//!
//! The decision is one pure function of the snapshot and the ClientHello, so a hello that arrives in pieces,
//! over TCP segments or TLS records, cannot change it. Nothing here waits for anything but the client; the
//! deadline is the caller's.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use rustls::server::{Acceptor, ClientHello};
use rustls::sign::CertifiedKey;
use rustls::{AlertDescription, HandshakeKind, InvalidMessage};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::LazyConfigAcceptor;

use super::client_auth::{ClientCertificate, remembering};
use super::mesh::MeshClient;
use super::policy::TlsPolicy;
use crate::clock;
use crate::names::{HostName, canonical_host};
use crate::snapshot::certificates::Certificate;
use crate::snapshot::{Snapshot, TlsPort};

/// An encrypted connection from a client.
pub type TlsStream = tokio_rustls::server::TlsStream<TcpStream>;

/// A finished handshake.
pub struct Accepted {
    pub stream: TlsStream,
    pub identity: ServedIdentity,
    /// The client wants HTTP/2; else HTTP/1.1, chosen or by default.
    pub http2: bool,
    /// The client came back with a ticket: no certificate was sent.
    pub resumed: bool,
    /// A fresh staple was at hand; rustls sends it to clients that ask for one.
    pub stapled: bool,
}

/// Who the gateway was in a handshake: what requests on this connection are held against.
pub struct ServedIdentity {
    /// The name the client asked for, canonical; `None` without SNI or with an address in it.
    pub sni: Option<HostName>,
    pub certificate: Arc<Certificate>,
    /// No certificate is bound to the name: the default one was served.
    pub default: bool,
    /// There are rules or certificates for the name.
    pub known: bool,
    pub policy: Arc<TlsPolicy>,
    pub port: TlsPort,
    /// The client, where it showed a certificate of the mesh in this handshake.
    pub client: Option<Rc<MeshClient>>,
    /// What the client showed to a host that asks for certificates at the edge.
    pub shown: Option<ClientCertificate>,
}

/// Why a handshake came to nothing. None of it is the gateway's fault.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The connection ended or broke before there was a ClientHello: a health check, a scanner.
    #[error("closed before a ClientHello: {0}")]
    Closed(io::Error),
    #[error("not TLS")]
    NotTls,
    #[error("the client's name is unknown here and ssl-reject-handshake is on")]
    UnrecognizedName,
    #[error("there are no root certificates to verify clients of the mesh with")]
    NoTrust,
    #[error("{0}")]
    Failed(io::Error),
}

impl HandshakeError {
    /// A word for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Closed(_) => "closed",
            Self::NotTls => "not_tls",
            Self::UnrecognizedName => "unrecognized_name",
            Self::NoTrust => "no_trust",
            Self::Failed(_) => "failed",
        }
    }
}

/// Takes a client through the handshake. `snapshot` is asked once, when the ClientHello is complete.
pub async fn accept(
    stream: TcpStream,
    port: TlsPort,
    snapshot: impl FnOnce() -> Arc<Snapshot>,
) -> Result<Accepted, HandshakeError> {
    let mut start = LazyConfigAcceptor::new(Acceptor::default(), stream).await.map_err(hello_error)?;
    let decision = decide(&snapshot(), port, &start.client_hello(), clock::since_epoch().as_secs());
    let Decision { mut identity, certified, stapled } = match decision {
        Ok(decision) => decision,
        Err(error) => {
            let alert = match error {
                HandshakeError::UnrecognizedName => AlertDescription::UnrecognisedName,
                _ => AlertDescription::InternalError,
            };
            refuse(&mut start.io, alert).await;
            return Err(error);
        }
    };
    let config = identity.policy.for_certificate(certified);
    let handshake = start.into_stream(config);
    let (stream, judgement) = match identity.policy.authorities() {
        Some(_) => remembering(handshake).await,
        None => (handshake.await, None),
    };
    let stream = stream.map_err(HandshakeError::Failed)?;
    let session = stream.get_ref().1;
    let http2 = session.alpn_protocol() == Some(b"h2");
    let resumed = session.handshake_kind() == Some(HandshakeKind::Resumed);
    if !resumed {
        identity.client = identity.policy.client(session.peer_certificates()).map(Rc::new);
    }
    if let Some(authorities) = identity.policy.authorities() {
        // A session that goes on has the certificates of the one before; they are judged anew.
        let judged = judgement.map(|judgement| (authorities.clone(), judgement));
        identity.shown = session.peer_certificates().and_then(|chain| ClientCertificate::new(chain, judged));
    }
    Ok(Accepted { stream, identity, http2, resumed, stapled })
}

/// What a client gets.
struct Decision {
    identity: ServedIdentity,
    /// The certificate of `identity` as rustls serves it, with its staple where there is a fresh one.
    certified: Arc<CertifiedKey>,
    stapled: bool,
}

/// Which certificate, staple and policy a client gets at `now` (seconds since 1970).
fn decide(
    snapshot: &Snapshot,
    port: TlsPort,
    hello: &ClientHello<'_>,
    now: u64,
) -> Result<Decision, HandshakeError> {
    // rustls has no name for us where the client sent an address.
    let sni = hello.server_name().and_then(|name| canonical_host(name).ok());
    let bound = sni.as_deref().and_then(|name| snapshot.certificates.find(name));
    let known =
        bound.is_some() || sni.as_deref().is_some_and(|name| snapshot.hosts.find_named(name).is_some());
    if snapshot.settings.ssl_reject_handshake && !known {
        return Err(HandshakeError::UnrecognizedName);
    }
    let certificates = bound.unwrap_or(&snapshot.certificates.default);
    let host = snapshot.hosts.asking(sni.as_deref());
    let policy = snapshot.tls_policy(port, host).ok_or(HandshakeError::NoTrust)?.clone();
    let certificate = certificates.select(policy.keys(hello)).clone();
    let sni = sni.and_then(|name| HostName::new(&name).ok());
    let stapling = snapshot.certificates.stapling(&certificate.pair);
    let with_staple = stapling.and_then(|stapling| stapling.stapled.as_ref()?.certified(now));
    Ok(Decision {
        certified: with_staple.unwrap_or(&certificate.pair.certified).clone(),
        stapled: with_staple.is_some(),
        identity: ServedIdentity {
            sni,
            certificate,
            default: bound.is_none(),
            known,
            policy,
            port,
            client: None,
            shown: None,
        },
    })
}

/// A fatal alert, such as `unrecognized_name` (RFC 6066, section 3), in the clear as any before the ServerHello.
async fn refuse(stream: &mut TcpStream, alert: AlertDescription) {
    let alert = [21, 3, 3, 0, 2, 2, u8::from(alert)];
    // The client is being turned away: whether it still listens does not matter.
    let _ = stream.write_all(&alert).await;
    let _ = stream.shutdown().await;
}

/// What an error before or in the ClientHello comes to.
pub(super) fn hello_error(error: io::Error) -> HandshakeError {
    match error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)) => HandshakeError::NotTls,
        Some(_) => HandshakeError::Failed(error),
        None => HandshakeError::Closed(error),
    }
}
