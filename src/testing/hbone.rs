//! A node proxy's end of HBONE: HTTP/2 CONNECT over TLS, without SNI, with or without a client certificate.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use http::{Method, Request, Uri, Version};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::PATIENCE;
use super::certificates::PemPair;
use super::http2::receive_body;
use super::wire::{client_config, mutual_config};

/// One connection.
pub struct NodeProxy {
    sender: SendRequest<Bytes>,
    /// Ends with the connection.
    pub driver: JoinHandle<Result<(), h2::Error>>,
}

/// The answer to a CONNECT: a tunnel where the status is 200.
pub struct Answer {
    pub status: u16,
    send: SendStream<Bytes>,
    receive: RecvStream,
    ahead: Vec<u8>,
}

impl NodeProxy {
    /// Connects, showing `pair` where there is one. A server that turns the client away may do so only in the first
    /// exchange after the handshake.
    pub async fn connect(address: SocketAddr, pair: Option<&PemPair>) -> io::Result<Self> {
        Self::over(TcpStream::connect(address).await?, pair).await
    }

    /// As [`connect`](Self::connect), over a connection that is there.
    pub async fn over(tcp: TcpStream, pair: Option<&PemPair>) -> io::Result<Self> {
        tcp.set_nodelay(true)?;
        let mut config = match pair {
            Some(pair) => mutual_config(&pair.certificates_pem(), &pair.key_pem)?,
            None => client_config(&[]),
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        config.enable_sni = false;
        let name = ServerName::try_from("none.invalid").map_err(io::Error::other)?;
        let tls = TlsConnector::from(Arc::new(config)).connect(name, tcp).await?;
        let builder = h2::client::Builder::new().initial_window_size(64 * 1024).clone();
        let (sender, connection) = builder.handshake(tls).await.map_err(io::Error::other)?;
        Ok(Self { sender, driver: tokio::spawn(connection) })
    }

    /// Asks for a tunnel to `authority`.
    pub async fn open(&mut self, authority: &str) -> Result<Answer, h2::Error> {
        let uri = Uri::builder().authority(authority).build().expect("an authority");
        self.ask(Method::CONNECT, uri).await
    }

    /// Asks for a tunnel, over a connection that must be fine.
    pub async fn tunnel(&mut self, to: SocketAddr) -> Answer {
        self.open(&to.to_string()).await.expect("an answer")
    }

    pub async fn ask(&mut self, method: Method, uri: Uri) -> Result<Answer, h2::Error> {
        let mut request = Request::new(());
        (*request.method_mut(), *request.uri_mut(), *request.version_mut()) = (method, uri, Version::HTTP_2);
        let asked = async {
            std::future::poll_fn(|cx| self.sender.poll_ready(cx)).await?;
            let (response, send) = self.sender.send_request(request, false)?;
            let response = response.await?;
            let status = response.status().as_u16();
            Ok(Answer { status, send, receive: response.into_body(), ahead: Vec::new() })
        };
        timeout(PATIENCE, asked).await.expect("an answer in time")
    }
}

impl Answer {
    /// Sends as fast as the other end takes it.
    pub async fn send(&mut self, data: &[u8]) {
        let mut rest = Bytes::copy_from_slice(data);
        while !rest.is_empty() {
            self.send.reserve_capacity(rest.len());
            while self.send.capacity() == 0 {
                let room = std::future::poll_fn(|cx| self.send.poll_capacity(cx)).await;
                room.expect("an open stream").expect("an open stream");
            }
            let part = rest.split_to(self.send.capacity().min(rest.len()));
            self.send.send_data(part, false).expect("an open stream");
        }
    }

    /// How much could be sent at once, as far as the other end has said within `moment`.
    pub async fn room(&mut self, wanted: usize, moment: Duration) -> usize {
        self.send.reserve_capacity(wanted);
        let grown = async {
            while self.send.capacity() < wanted {
                if std::future::poll_fn(|cx| self.send.poll_capacity(cx)).await.is_none() {
                    return;
                }
            }
        };
        // Whether it grew in time is what is asked.
        let _ = timeout(moment, grown).await;
        self.send.capacity()
    }

    /// Sends without waiting for room; the caller has asked for it.
    pub fn send_now(&mut self, data: Vec<u8>) {
        self.send.send_data(data.into(), false).expect("an open stream");
    }

    /// Ends the sending direction.
    pub fn finish(&mut self) {
        self.send.send_data(Bytes::new(), true).expect("an open stream");
    }

    /// Gives the tunnel up.
    pub fn reset(&mut self) {
        self.send.send_reset(h2::Reason::CANCEL);
    }

    /// The next `length` bytes.
    pub async fn receive(&mut self, length: usize) -> Result<Vec<u8>, h2::Error> {
        while self.ahead.len() < length {
            let data = timeout(PATIENCE, self.receive.data()).await.expect("bytes in time");
            let data = data.expect("more bytes before the end")?;
            self.receive.flow_control().release_capacity(data.len())?;
            self.ahead.extend_from_slice(&data);
        }
        let rest = self.ahead.split_off(length);
        Ok(std::mem::replace(&mut self.ahead, rest))
    }

    /// Everything to the end, which must be a regular one.
    pub async fn rest(&mut self) -> Result<Vec<u8>, h2::Error> {
        let rest = timeout(PATIENCE, receive_body(&mut self.receive)).await.expect("an end in time")?.0;
        Ok([std::mem::take(&mut self.ahead), rest].concat())
    }

    /// Sends, and waits for the same to come back.
    pub async fn echo(&mut self, text: &str) -> Result<(), h2::Error> {
        self.send(text.as_bytes()).await;
        let back = self.receive(text.len()).await?;
        assert_eq!(String::from_utf8_lossy(&back), text);
        Ok(())
    }
}
