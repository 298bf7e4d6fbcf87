//! An HTTP/2 backend with prior knowledge, plain or under TLS, that answers as a gRPC server does: always 200,
//! the outcome in the trailers. What it does is in the path.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::certificates::PemPair;
use super::http2::{fields, receive_body};
use super::message;
use super::wire::server_config;

/// The backend. Its thread lives as long as the process.
pub struct Grpc {
    address: SocketAddr,
    requests: Log,
}

type Log = Arc<Mutex<Vec<message::Request>>>;

impl Grpc {
    pub fn plain() -> Self {
        Self::start(None)
    }

    pub fn secured(pair: &PemPair) -> Self {
        Self::start(Some(TlsAcceptor::from(server_config(pair, &["h2"]))))
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<message::Request> {
        self.requests.lock().expect("not poisoned").clone()
    }

    fn start(tls: Option<TlsAcceptor>) -> Self {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        listener.set_nonblocking(true).expect("non-blocking");
        let address = listener.local_addr().expect("an address");
        let requests = Log::default();
        let log = requests.clone();
        thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                accept(TcpListener::from_std(listener).expect("a listener"), tls, log).await
            });
        });
        Self { address, requests }
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, log: Log) {
    while let Ok((tcp, _)) = listener.accept().await {
        let (tls, log) = (tls.clone(), log.clone());
        tokio::spawn(async move {
            match tls {
                Some(tls) => {
                    if let Ok(stream) = tls.accept(tcp).await {
                        serve(stream, log).await;
                    }
                }
                None => serve(tcp, log).await,
            }
        });
    }
}

/// `/…/Die` ends the connection in the middle of everything.
async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, log: Log) {
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        if request.uri().path().ends_with("/Die") {
            return;
        }
        let log = log.clone();
        tokio::spawn(async move {
            // A client that gives up is part of many tests.
            let _ = answer(request, respond, log).await;
        });
    }
}

async fn answer(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    log: Log,
) -> Result<(), h2::Error> {
    let (parts, mut body) = request.into_parts();
    let mut seen = message::Request {
        method: parts.method.to_string(),
        target: parts.uri.to_string(),
        version: "HTTP/2.0".into(),
        fields: fields(&parts.headers),
        ..message::Request::default()
    };
    let place = {
        let mut log = log.lock().expect("not poisoned");
        log.push(seen.clone());
        log.len() - 1
    };
    let path = parts.uri.path();
    if path.ends_with("/Hang") {
        tokio::time::sleep(Duration::from_secs(3600)).await;
    }
    if path.ends_with("/Chat") {
        return chat(body, respond).await;
    }
    let (data, trailers) = receive_body(&mut body).await?;
    (seen.body, seen.trailers, seen.complete) = (data.clone(), fields(&trailers), true);
    log.lock().expect("not poisoned")[place] = seen;
    match path {
        _ if path.ends_with("/Fail") => {
            let mut response = head();
            response.headers_mut().extend(status("5", "no such thing"));
            respond.send_response(response, true)?;
        }
        // The request says how many messages it wants, five bytes of gRPC framing ahead.
        _ if path.ends_with("/Many") => {
            let count = std::str::from_utf8(&data[5..]).expect("a number").parse().expect("a number");
            let mut stream = respond.send_response(head(), false)?;
            for number in 0..count {
                send(&mut stream, message_of(format!("message {number}").as_bytes())).await?;
            }
            stream.send_trailers(status("0", ""))?;
        }
        _ => {
            let mut stream = respond.send_response(head(), false)?;
            send(&mut stream, data.into()).await?;
            stream.send_trailers(status("0", ""))?;
        }
    }
    Ok(())
}

/// Sends back each piece as it comes.
async fn chat(mut body: RecvStream, mut respond: SendResponse<Bytes>) -> Result<(), h2::Error> {
    let mut stream = respond.send_response(head(), false)?;
    while let Some(bytes) = body.data().await {
        let bytes = bytes?;
        body.flow_control().release_capacity(bytes.len())?;
        send(&mut stream, bytes).await?;
    }
    stream.send_trailers(status("0", ""))
}

/// Sends all of `data` as the window allows.
pub async fn send(stream: &mut SendStream<Bytes>, mut data: Bytes) -> Result<(), h2::Error> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let Some(capacity) = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await else {
            return Err(h2::Reason::CANCEL.into());
        };
        let piece = data.split_to(capacity?.min(data.len()));
        stream.send_data(piece, false)?;
    }
    Ok(())
}

/// A gRPC message: not compressed, its length, its bytes.
pub fn message_of(bytes: &[u8]) -> Bytes {
    let length = u32::try_from(bytes.len()).expect("a length").to_be_bytes();
    [&[0], &length[..], bytes].concat().into()
}

fn head() -> Response<()> {
    Response::builder().header("content-type", "application/grpc").body(()).expect("a response")
}

fn status(code: &'static str, message: &'static str) -> HeaderMap {
    let mut fields = HeaderMap::new();
    fields.insert("grpc-status", HeaderValue::from_static(code));
    if !message.is_empty() {
        fields.insert("grpc-message", HeaderValue::from_static(message));
    }
    fields
}
