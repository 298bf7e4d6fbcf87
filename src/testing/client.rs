//! An HTTP/1 client that sends the bytes it is given.

use std::io;
use std::net::{SocketAddr, TcpStream};

use super::message::Response;
use super::wire::Wire;

/// One connection to a gateway.
pub struct Client {
    pub wire: Wire,
}

impl Client {
    pub fn plain(address: SocketAddr) -> Self {
        Self { wire: Wire::plain(TcpStream::connect(address).expect("a connection")) }
    }

    /// HTTP/1.1 under TLS, asking for `sni`.
    pub fn tls(address: SocketAddr, sni: Option<&str>) -> Self {
        Self::try_tls(address, sni, &["http/1.1"]).expect("a handshake")
    }

    /// As [`tls`](Self::tls), offering these protocols.
    pub fn try_tls(address: SocketAddr, sni: Option<&str>, alpn: &[&str]) -> io::Result<Self> {
        Ok(Self { wire: Wire::client(TcpStream::connect(address)?, sni, alpn)? })
    }

    /// Sends; that the other end has closed already shows in the next read.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.wire.send(bytes);
    }

    /// The next response; `None` at the end of the connection.
    pub fn next_response(&mut self) -> Option<Response> {
        Response::read(&mut self.wire, "GET")
    }

    pub fn response(&mut self) -> Response {
        self.next_response().expect("a response before the end of the connection")
    }

    /// Sends `request` and reads the response to it.
    pub fn ask(&mut self, request: impl AsRef<[u8]>) -> Response {
        let method = if request.as_ref().starts_with(b"HEAD ") { "HEAD" } else { "GET" };
        self.send(request);
        Response::read(&mut self.wire, method).expect("a response before the end of the connection")
    }

    /// A GET with nothing special about it.
    pub fn get(&mut self, host: &str, path: &str) -> Response {
        self.ask(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"))
    }

    /// Every response until the connection ends.
    pub fn responses(&mut self) -> Vec<Response> {
        std::iter::from_fn(|| self.next_response()).collect()
    }

    /// Waits for the other end to close; what it still sends is in the way.
    pub fn assert_closed(&mut self) {
        let rest = self.wire.take_all();
        assert!(rest.is_empty(), "more instead of the end: {:?}", String::from_utf8_lossy(&rest));
    }
}
