//! One GET of a key set over https: bounded in time and size, no redirects, no reuse of the connection.
//!
//! `issuers` calls it. The certificate is verified against the web's roots or those the operator names. No error
//! repeats what the other side said.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONNECTION, HOST, HeaderValue, USER_AGENT};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::ca::bundle::RootBundle;
use crate::tls::client::{Alpn, ClientTls, Roots};

/// The largest key set that is read, in bytes. Real ones have a few thousand.
const MAX_BODY: usize = 256 * 1024;
/// The largest head of an answer, in bytes.
const MAX_HEAD: usize = 16 * 1024;
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
    #[error("the exchange broke off, was not HTTP, or brought more than {MAX_BODY} bytes")]
    Http,
    #[error("HTTP status {0}")]
    Status(StatusCode),
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
        .body(Empty::<Bytes>::new())
        .map_err(|_| FetchError::Http)?;
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(MAX_HEAD)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|_| FetchError::Http)?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(|_| FetchError::Http)?;
        match response.status() {
            StatusCode::OK => {
                let body = Limited::new(response.into_body(), MAX_BODY).collect().await;
                Ok(body.map_err(|_| FetchError::Http)?.to_bytes())
            }
            status => Err(FetchError::Status(status)),
        }
    };
    tokio::pin!(answer);
    // The connection is driven here and not in a task of its own, so that it ends with us.
    tokio::select! {
        biased;
        answer = &mut answer => answer,
        _ = connection => answer.await,
    }
}
