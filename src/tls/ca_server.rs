//! The TLS listener of the CA's gRPC service: HTTP/2 only, client certificates asked for and verified if given.
//!
//! Its configuration is replaced as a whole when the server certificate or the trusted roots change; connections
//! keep the one they began with. `ca::server` makes the configurations, `ca::service` answers the calls.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
pub use rustls::server::ServerConfig;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tonic::codegen::Service;

/// A client that has not finished its handshake by then is gone or hostile.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections at once; agents hold one each.
const MAX_CONNECTIONS: usize = 4096;
/// Idle connections are pinged so that dead peers free their place.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// Calls under way get this long once the service stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The client certificate of the connection a request came on, verified; an extension of the request.
#[derive(Clone, Debug)]
pub struct PeerCertificate(pub CertificateDer<'static>);

/// Why there is no configuration to serve with.
#[derive(Debug, thiserror::Error)]
pub enum CaServerError {
    #[error("server certificate: {0}")]
    Certificate(rustls::Error),
    #[error("trusted roots: {0}")]
    Verifier(#[from] VerifierBuilderError),
}

/// The configuration of the listener. A client without a certificate is let in; one with a certificate that does
/// not verify against `roots`, or is revoked, is not.
pub fn config<'a>(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    roots: impl IntoIterator<Item = &'a CertificateDer<'static>>,
    revocations: Option<CertificateRevocationListDer<'static>>,
) -> Result<Arc<ServerConfig>, CaServerError> {
    let provider = super::provider();
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(roots.into_iter().cloned());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(store), Arc::<CryptoProvider>::clone(&provider))
            .with_crls(revocations)
            // The list of a plugged-in CA speaks of what its issuer signed, not of our leaves.
            .allow_unknown_revocation_status()
            .allow_unauthenticated()
            .build()?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(CaServerError::Certificate)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(CaServerError::Certificate)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    // A resumed session would not look at the client certificate again, nor at roots that changed meanwhile.
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// Serves until `stop` becomes true, then lets calls that are under way finish for a moment.
pub async fn serve<S, B>(
    listener: TcpListener,
    config: Arc<ArcSwap<ServerConfig>>,
    service: S,
    mut stop: watch::Receiver<bool>,
) where
    S: Service<http::Request<hyper::body::Incoming>, Response = http::Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        match accepted {
            Ok((stream, _)) => {
                let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
                let (acceptor, service, stop) =
                    (TlsAcceptor::from(config.load_full()), service.clone(), stop.clone());
                connections.spawn(async move {
                    if let Err(error) = connection(stream, acceptor, service, stop).await {
                        tracing::debug!(%error, "CSR connection ended");
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                // Out of file descriptors, most likely: trying again at once would only burn the core.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    let drained = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, drained).await;
}

async fn connection<S, B>(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    service: S,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()>
where
    S: Service<http::Request<hyper::body::Incoming>, Response = http::Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let _ = stream.set_nodelay(true);
    let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await??;
    let peer = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let peer = peer.map(|leaf| PeerCertificate(leaf.clone().into_owned()));
    let inner = TowerToHyperService::new(service);
    let service = hyper::service::service_fn(move |mut request: http::Request<hyper::body::Incoming>| {
        if let Some(peer) = peer.clone() {
            request.extensions_mut().insert(peer);
        }
        hyper::service::Service::call(&inner, request)
    });
    let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .max_concurrent_streams(128)
        .max_header_list_size(32 * 1024)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        done = connection.as_mut() => return done.map_err(io::Error::other),
        _ = stop.wait_for(|stop| *stop) => connection.as_mut().graceful_shutdown(),
    }
    connection.await.map_err(io::Error::other)
}
