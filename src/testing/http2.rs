//! A well-behaved HTTP/2 client under TLS, on the h2 crate.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use super::certificates::PemPair;
use super::message::{Fields, Response};
use super::wire::{client_config, mutual_config};

/// One connection.
pub struct Http2 {
    pub sender: SendRequest<Bytes>,
    /// Ends with the connection.
    pub driver: JoinHandle<Result<(), h2::Error>>,
}

impl Http2 {
    pub async fn connect(address: SocketAddr, sni: &str) -> Self {
        Self::with_window(address, sni, 65_535).await
    }

    /// A connection whose responses may be `window` bytes ahead of what the test has taken.
    pub async fn with_window(address: SocketAddr, sni: &str, window: u32) -> Self {
        Self::start(address, sni, window, client_config(&["h2"])).await
    }

    /// A connection on which the client shows a certificate where it is asked for one.
    pub async fn mutual(address: SocketAddr, sni: &str, pair: &PemPair) -> Self {
        let mut config = mutual_config(&pair.certificates_pem(), &pair.key_pem).expect("a pair");
        config.alpn_protocols = vec![b"h2".to_vec()];
        Self::start(address, sni, 65_535, config).await
    }

    async fn start(address: SocketAddr, sni: &str, window: u32, config: ClientConfig) -> Self {
        let tcp = TcpStream::connect(address).await.expect("a connection");
        tcp.set_nodelay(true).expect("no delay");
        let name = ServerName::try_from(sni.to_owned()).expect("a name");
        let tls = TlsConnector::from(Arc::new(config)).connect(name, tcp).await;
        let tls = tls.expect("a handshake");
        assert_eq!(tls.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        // A test that is slow to read many small messages is not under attack.
        let builder =
            h2::client::Builder::new().initial_window_size(window).data_frame_budget(1 << 20).clone();
        let (sender, connection) = builder.handshake(tls).await.expect("a preface");
        Self { sender, driver: tokio::spawn(connection) }
    }

    /// Begins a request; `end` where it has no body.
    pub async fn begin(
        &mut self,
        request: Request<()>,
        end: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        std::future::poll_fn(|cx| self.sender.poll_ready(cx)).await?;
        self.sender.send_request(request, end)
    }

    /// Sends a whole request and reads the whole response.
    pub async fn ask(
        &mut self,
        request: Request<()>,
        body: impl Into<Bytes>,
        trailers: Option<HeaderMap>,
    ) -> Result<Response, h2::Error> {
        let body = body.into();
        let end = body.is_empty() && trailers.is_none();
        let (response, mut stream) = self.begin(request, end).await?;
        if !end {
            stream.send_data(body, trailers.is_none())?;
        }
        if let Some(trailers) = trailers {
            stream.send_trailers(trailers)?;
        }
        receive(response).await
    }

    pub async fn get(&mut self, host: &str, path: &str) -> Result<Response, h2::Error> {
        self.ask(get(host, path), Bytes::new(), None).await
    }
}

/// A GET.
pub fn get(host: &str, path: &str) -> Request<()> {
    Request::get(format!("https://{host}{path}")).body(()).expect("a request")
}

/// A POST.
pub fn post(host: &str, path: &str) -> Request<()> {
    Request::post(format!("https://{host}{path}")).body(()).expect("a request")
}

/// Reads a response to its end.
pub async fn receive(response: ResponseFuture) -> Result<Response, h2::Error> {
    let (parts, mut body) = response.await?.into_parts();
    let (data, trailers) = receive_body(&mut body).await?;
    Ok(Response {
        status: parts.status.as_u16(),
        fields: fields(&parts.headers),
        body: data,
        trailers: fields(&trailers),
        complete: true,
    })
}

pub(super) async fn receive_body(body: &mut RecvStream) -> Result<(Vec<u8>, HeaderMap), h2::Error> {
    let mut data = Vec::new();
    while let Some(bytes) = body.data().await {
        let bytes = bytes?;
        body.flow_control().release_capacity(bytes.len())?;
        data.extend_from_slice(&bytes);
    }
    Ok((data, body.trailers().await?.unwrap_or_default()))
}

pub(super) fn fields(headers: &HeaderMap) -> Fields {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    Fields(headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect())
}
