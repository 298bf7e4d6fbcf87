//! One attempt to ask one responder: resolve, check, connect, ask, read at most 64 KiB, all within one timeout.
//!
//! The responder is whatever a tenant's certificate names, so the client has no cookies, no redirects, no
//! compression, no connection reuse and no patience. Dropping the future closes everything it opened.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::Request as HttpRequest;
use http::header::{ACCEPT, CONNECTION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use http_body_util::Full;
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use super::address::is_permitted;
use super::settings::OcspSettings;
use crate::http_exchange::{ExchangeError, MAX_HEAD, exchange};
use crate::names::responder::{Host, Target};
use crate::tls::ocsp::https;
use crate::tls::ocsp::request::Request;

/// The largest response that is read, in bytes. Real ones have two thousand.
pub const MAX_RESPONSE: usize = 64 * 1024;
/// Of the addresses a name resolves to, this many are tried.
const MAX_ADDRESSES: usize = 4;

/// What to ask whom.
#[derive(Clone, Debug)]
pub struct Order {
    pub target: Target,
    /// The operator chose the target: its address is not checked.
    pub trusted: bool,
    pub request: Request,
    /// Send POST even where GET would do.
    pub post: bool,
    /// Also vouches for an https responder.
    pub issuer: CertificateDer<'static>,
    pub settings: Arc<OcspSettings>,
}

/// Why an attempt brought no answer. No text of the responder is ever repeated.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error("no answer within the time allowed")]
    Timeout,
    #[error("the responder's name cannot be resolved")]
    Resolve,
    #[error("the responder's address is not public and not in ocsp-allowed-cidrs")]
    AddressRefused,
    #[error("cannot connect: {0}")]
    Connect(io::ErrorKind),
    #[error("TLS with the responder failed: {0}")]
    Tls(io::Error),
    #[error("the proxy refused the connection")]
    Proxy,
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    #[error("the attempt ended unexpectedly")]
    Internal,
}

/// Asks responders. The loop knows only this, so its tests need no network.
pub trait Fetch: Send + Sync + 'static {
    /// Makes one attempt. Returns the body of the answer, unverified.
    fn fetch(&self, order: Order) -> BoxFuture<'static, Result<Bytes, FetchError>>;
}

/// Turns a name and a port into addresses.
pub type Resolve = Arc<dyn Fn(String, u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync>;

/// The real client.
#[derive(Clone)]
pub struct HttpFetch {
    resolve: Resolve,
}

impl HttpFetch {
    /// Resolves names as the system does.
    pub fn new() -> Self {
        Self::with_resolver(Arc::new(|host, port| {
            Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
        }))
    }

    /// Resolves names with `resolve`.
    pub fn with_resolver(resolve: Resolve) -> Self {
        Self { resolve }
    }

    async fn attempt(&self, order: &Order, deadline: Instant) -> Result<Bytes, FetchError> {
        let target = &order.target;
        let mut stream = self.connect(order, deadline).await?;
        if !target.https {
            return Ok(exchange(stream, http_request(order)?, MAX_RESPONSE).await?);
        }
        if order.settings.proxy.is_some() {
            open_tunnel(&mut stream, target).await?;
        }
        let host = target.host();
        let stream = https::connect(stream, &host, &order.issuer).await.map_err(FetchError::Tls)?;
        Ok(exchange(stream, http_request(order)?, MAX_RESPONSE).await?)
    }

    /// Connects to the proxy where there is one, or else to a permitted address of the responder.
    async fn connect(&self, order: &Order, deadline: Instant) -> Result<TcpStream, FetchError> {
        let (target, trusted) = match &order.settings.proxy {
            Some(proxy) => (proxy, true),
            None => (&order.target, order.trusted),
        };
        let mut addresses = self.addresses(target).await?;
        if !trusted {
            addresses.retain(|address| is_permitted(address.ip(), &order.settings.allowed_cidrs));
        }
        if addresses.is_empty() {
            return Err(FetchError::AddressRefused);
        }
        addresses.truncate(MAX_ADDRESSES);
        connect_any(&addresses, deadline).await
    }

    async fn addresses(&self, target: &Target) -> Result<Vec<SocketAddr>, FetchError> {
        let name = match &target.host {
            Host::Address(address) => return Ok(vec![SocketAddr::new(*address, target.port)]),
            Host::Name(name) => name.clone(),
        };
        let addresses = (self.resolve)(name, target.port).await.map_err(|_| FetchError::Resolve)?;
        if addresses.is_empty() { Err(FetchError::Resolve) } else { Ok(addresses) }
    }
}

impl Default for HttpFetch {
    fn default() -> Self {
        Self::new()
    }
}

impl Fetch for HttpFetch {
    fn fetch(&self, order: Order) -> BoxFuture<'static, Result<Bytes, FetchError>> {
        let client = self.clone();
        Box::pin(async move {
            let time = order.settings.timeout;
            let deadline = Instant::now() + time;
            timeout(time, client.attempt(&order, deadline)).await.unwrap_or(Err(FetchError::Timeout))
        })
    }
}

/// Tries the addresses in turn. Each gets an equal part of the time left: the first may be a black hole.
async fn connect_any(addresses: &[SocketAddr], deadline: Instant) -> Result<TcpStream, FetchError> {
    let mut error = FetchError::Timeout;
    for (tried, address) in addresses.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(addresses.len() - tried).unwrap_or(1);
        match timeout_at(Instant::now() + share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(refused)) => error = FetchError::Connect(refused.kind()),
            Err(_) => {}
        }
    }
    Err(error)
}

/// Asks the proxy for a tunnel to an https responder (RFC 9110, 9.3.6).
async fn open_tunnel(stream: &mut TcpStream, target: &Target) -> Result<(), FetchError> {
    let authority = match &target.host {
        Host::Address(std::net::IpAddr::V6(address)) => format!("[{address}]:{}", target.port),
        _ => format!("{}:{}", target.host(), target.port),
    };
    let head = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.map_err(|_| FetchError::Proxy)?;
    let mut answer = Vec::new();
    // The responder speaks only after our ClientHello, so nothing but the proxy's head can arrive here.
    while answer.len() < MAX_HEAD {
        if stream.read_buf(&mut answer).await.map_err(|_| FetchError::Proxy)? == 0 {
            return Err(FetchError::Proxy);
        }
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut response = httparse::Response::new(&mut headers);
        match response.parse(&answer) {
            Ok(httparse::Status::Partial) => {}
            Ok(httparse::Status::Complete(_)) if response.code == Some(200) => return Ok(()),
            _ => return Err(FetchError::Proxy),
        }
    }
    Err(FetchError::Proxy)
}

/// GET with the request in the path, or POST with the request as body.
fn http_request(order: &Order) -> Result<HttpRequest<Full<Bytes>>, FetchError> {
    let target = &order.target;
    let url = target.to_string();
    let get = if order.post { None } else { order.request.get_url(&url) };
    let full = get.as_deref().unwrap_or(&url);
    // A proxy wants the whole URL, a server only the path.
    let through_proxy = order.settings.proxy.is_some() && !target.https;
    let uri = if through_proxy { full } else { full.strip_prefix(&target.origin()).unwrap_or(full) };
    let builder = HttpRequest::builder()
        .uri(uri)
        .header(HOST, target.authority())
        .header(ACCEPT, HeaderValue::from_static("application/ocsp-response"))
        .header(USER_AGENT, HeaderValue::from_static("portcullis"))
        .header(CONNECTION, HeaderValue::from_static("close"));
    let request = if get.is_some() {
        builder.method("GET").body(Full::default())
    } else {
        builder
            .method("POST")
            .header(CONTENT_TYPE, HeaderValue::from_static("application/ocsp-request"))
            .body(Full::from(order.request.der().to_vec()))
    };
    request.map_err(|_| FetchError::Internal)
}

#[cfg(test)]
mod tests;
