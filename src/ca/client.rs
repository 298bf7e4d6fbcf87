//! A connection to a CSR service: TLS against the mesh roots, HTTP/2, ready for the generated gRPC client.

use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;

use crate::tls::services::{ChainAndKey, Protocol, ServiceClient, TlsError};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum CaClientError {
    #[error("{0:?} is not HOST:PORT")]
    Address(String),
    #[error("TLS configuration: {0}")]
    Config(#[from] TlsError),
    #[error("connecting to {0}: {1}")]
    Connect(String, io::Error),
    #[error("HTTP/2 with {0}: {1}")]
    Http(String, hyper::Error),
}

/// Requests go in here; the connection lives as long as its handles.
pub type Sender = http2::SendRequest<tonic::body::Body>;

/// Connects to `address` (`HOST:PORT`), whose certificate must be for `server_name` and verify against `roots`.
/// `identity` is the client's own chain and key, to authenticate with.
pub async fn connect<'a>(
    address: &str,
    server_name: Option<&str>,
    roots: impl IntoIterator<Item = &'a CertificateDer<'static>>,
    identity: Option<ChainAndKey>,
) -> Result<Sender, CaClientError> {
    let malformed = || CaClientError::Address(address.to_owned());
    let (host, _) = address.rsplit_once(':').ok_or_else(malformed)?;
    let host = server_name.unwrap_or(host).trim_matches(['[', ']']).to_owned();
    let name = ServerName::try_from(host).map_err(|_| malformed())?;
    let client = ServiceClient::new(roots, identity, Protocol::Http2)?;
    let open = async {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        client.connect(name, stream).await
    };
    let timed_out = |_| io::Error::from(io::ErrorKind::TimedOut);
    let stream = tokio::time::timeout(CONNECT_TIMEOUT, open).await.map_err(timed_out).flatten();
    let stream = stream.map_err(|error| CaClientError::Connect(address.to_owned(), error))?;
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .map_err(|error| CaClientError::Http(address.to_owned(), error))?;
    // Ends by itself once every sender is dropped; a failure shows in the calls.
    tokio::spawn(connection);
    Ok(sender)
}

/// A connection as the generated client wants it.
pub struct GrpcService(pub Sender);

impl tonic::codegen::Service<http::Request<tonic::body::Body>> for GrpcService {
    type Response = http::Response<hyper::body::Incoming>;
    type Error = hyper::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}
