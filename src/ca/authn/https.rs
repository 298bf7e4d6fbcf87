//! One GET of a key set over https, bounded in time and size.
//!
//! `issuers` calls it. The certificate is verified against the web's roots or those the operator names. No error
//! repeats what the other side said.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONNECTION, HOST, HeaderValue, USER_AGENT};
use http::{Request, Uri};
use http_body_util::Full;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::ca::bundle::RootBundle;
use crate::http_exchange::{ExchangeError, exchange};
use crate::tls::client::{Alpn, ClientTls, Roots};

/// The largest key set that is read, in bytes. Real ones have a few thousand.
const MAX_BODY: usize = 256 * 1024;
/// Time for all of it.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    #[error("it has no host")]
    NoHost,
    #[error("no answer within {} s", TIMEOUT.as_secs())]
    Timeout,
    #[error("cannot connect: {0}")]
    Connect(std::io::ErrorKind),
    #[error("the roots to verify it with: {0}")]
    Roots(String),
    #[error("TLS failed: {0}")]
    Tls(String),
    #[error("it cannot be asked for")]
    Url,
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
}

/// The body at `url`, whose scheme must be https.
pub async fn get(url: &Uri, roots: Option<&RootBundle>) -> Result<Bytes, FetchError> {
    timeout(TIMEOUT, attempt(url, roots)).await.unwrap_or(Err(FetchError::Timeout))
}

async fn attempt(url: &Uri, roots: Option<&RootBundle>) -> Result<Bytes, FetchError> {
    let authority = url.authority().ok_or(FetchError::NoHost)?;
    let host = authority.host().trim_matches(['[', ']']);
    let connect = |error: std::io::Error| FetchError::Connect(error.kind());
    let tcp = TcpStream::connect((host, authority.port_u16().unwrap_or(443))).await.map_err(connect)?;
    let address: IpAddr = tcp.peer_addr().map_err(connect)?.ip();
    let ders: Vec<_> = roots.into_iter().flat_map(RootBundle::iter).map(|root| root.der().clone()).collect();
    let trusted = if roots.is_some() { Roots::Bundle(&ders) } else { Roots::WebPki };
    let tls = ClientTls::verified(trusted).map_err(|error| FetchError::Roots(error.to_string()))?;
    let stream = tls.connect(tcp, host, address, Alpn::Http1).await;
    let stream = stream.map_err(|error| FetchError::Tls(error.to_string()))?;

    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::get(path)
        .header(HOST, authority.as_str())
        .header(ACCEPT, HeaderValue::from_static("application/json"))
        .header(USER_AGENT, HeaderValue::from_static("portcullis"))
        .header(CONNECTION, HeaderValue::from_static("close"))
        .body(Full::default())
        .map_err(|_| FetchError::Url)?;
    Ok(exchange(stream, request, MAX_BODY).await?)
}
