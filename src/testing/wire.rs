//! A blocking connection, plain or encrypted, from either end, with the bytes that were read ahead.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::DerefMut;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, ConnectionCommon, ServerConfig, ServerConnection, SideData, StreamOwned,
};

use super::PATIENCE;
use super::certificates::PemPair;
use crate::tls::peer_verifier::{ExpectedPeer, PeerVerifier, ShownChain};

/// One end of a connection.
pub struct Wire {
    stream: Stream,
    /// Read and not used yet.
    pub input: Vec<u8>,
}

enum Stream {
    Plain(TcpStream),
    Client(Box<StreamOwned<ClientConnection, TcpStream>>),
    Server(Box<StreamOwned<ServerConnection, TcpStream>>),
}

impl Wire {
    pub fn plain(tcp: TcpStream) -> Self {
        tcp.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        tcp.set_nodelay(true).expect("no delay");
        Self { stream: Stream::Plain(tcp), input: Vec::new() }
    }

    /// A client that asks for `sni` and takes whatever certificate it is shown. Without `sni` it sends none.
    pub fn client(tcp: TcpStream, sni: Option<&str>, alpn: &[&str]) -> io::Result<Self> {
        let mut config = client_config(alpn);
        config.enable_sni = sni.is_some();
        let name =
            ServerName::try_from(sni.unwrap_or("none.invalid").to_owned()).map_err(io::Error::other)?;
        let session = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        Ok(Self { stream: Stream::Client(Box::new(handshake(session, tcp)?)), input: Vec::new() })
    }

    /// As [`client`](Self::client), showing a certificate with its chain (PEM) where it is asked for one. Whether the
    /// server takes it shows in the first read.
    pub fn mutual(tcp: TcpStream, sni: &str, chain_pem: &str, key_pem: &str) -> io::Result<Self> {
        let config = mutual_config(chain_pem, key_pem)?;
        let name = ServerName::try_from(sni.to_owned()).map_err(io::Error::other)?;
        let session = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        Ok(Self { stream: Stream::Client(Box::new(handshake(session, tcp)?)), input: Vec::new() })
    }

    pub(super) fn server(tcp: TcpStream, config: Arc<ServerConfig>) -> io::Result<Self> {
        let session = ServerConnection::new(config).map_err(io::Error::other)?;
        Ok(Self { stream: Stream::Server(Box::new(handshake(session, tcp)?)), input: Vec::new() })
    }

    /// The certificate the other end showed.
    pub fn certificate(&self) -> CertificateDer<'static> {
        let Stream::Client(tls) = &self.stream else { panic!("not a client of TLS") };
        tls.conn.peer_certificates().expect("a certificate")[0].clone()
    }

    /// The protocol that was agreed on.
    pub fn alpn(&self) -> Option<String> {
        let Stream::Client(tls) = &self.stream else { panic!("not a client of TLS") };
        tls.conn.alpn_protocol().map(|name| String::from_utf8_lossy(name).into_owned())
    }

    /// The SNI that the client sent, at a backend.
    pub fn sni(&self) -> Option<String> {
        let Stream::Server(tls) = &self.stream else { return None };
        tls.conn.server_name().map(str::to_owned)
    }

    pub fn tcp(&self) -> &TcpStream {
        match &self.stream {
            Stream::Plain(tcp) => tcp,
            Stream::Client(tls) => &tls.sock,
            Stream::Server(tls) => &tls.sock,
        }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        let bytes = bytes.as_ref();
        match &mut self.stream {
            Stream::Plain(tcp) => tcp.write_all(bytes),
            Stream::Client(tls) => tls.write_all(bytes).and_then(|()| tls.flush()),
            Stream::Server(tls) => tls.write_all(bytes).and_then(|()| tls.flush()),
        }
    }

    /// Reads more into `input`; 0 is the end, however it came.
    pub fn fill(&mut self) -> io::Result<usize> {
        let mut buffer = [0; 16 * 1024];
        let read = match &mut self.stream {
            Stream::Plain(tcp) => tcp.read(&mut buffer),
            Stream::Client(tls) => tls.read(&mut buffer),
            Stream::Server(tls) => tls.read(&mut buffer),
        };
        let read = match read {
            Err(error) if is_end(&error) => 0,
            other => other?,
        };
        self.input.extend_from_slice(&buffer[..read]);
        Ok(read)
    }

    /// Ends the sending direction; the other may go on.
    pub fn finish(&mut self) {
        match &mut self.stream {
            Stream::Plain(_) => {}
            Stream::Client(tls) => {
                tls.conn.send_close_notify();
                let _ = tls.flush();
            }
            Stream::Server(tls) => {
                tls.conn.send_close_notify();
                let _ = tls.flush();
            }
        }
        let _ = self.tcp().shutdown(Shutdown::Write);
    }

    /// Takes `length` bytes, or what there is until the end.
    pub fn take(&mut self, length: usize) -> Vec<u8> {
        while self.input.len() < length && self.fill().expect("readable") > 0 {}
        self.input.drain(..length.min(self.input.len())).collect()
    }

    /// Everything until the other end closes.
    pub fn take_all(&mut self) -> Vec<u8> {
        while self.fill().expect("readable") > 0 {}
        std::mem::take(&mut self.input)
    }
}

/// Goes through the handshake, from either end.
fn handshake<C, S>(session: C, tcp: TcpStream) -> io::Result<StreamOwned<C, TcpStream>>
where
    C: DerefMut<Target = ConnectionCommon<S>>,
    S: SideData,
{
    tcp.set_read_timeout(Some(PATIENCE))?;
    tcp.set_nodelay(true)?;
    let mut tls = StreamOwned::new(session, tcp);
    while tls.conn.is_handshaking() {
        tls.conn.complete_io(&mut tls.sock)?;
    }
    Ok(tls)
}

fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe)
}

pub(super) fn client_config(alpn: &[&str]) -> ClientConfig {
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("default versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(PeerVerifier::new(AnyPeer)))
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    config
}

/// As [`client_config`] without protocols, showing a certificate.
pub(super) fn mutual_config(chain_pem: &str, key_pem: &str) -> io::Result<ClientConfig> {
    use rustls::pki_types::PrivateKeyDer;
    use rustls::pki_types::pem::PemObject;
    let chain = CertificateDer::pem_slice_iter(chain_pem.as_bytes());
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(io::Error::other)?;
    let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).map_err(io::Error::other)?;
    ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(PeerVerifier::new(AnyPeer)))
        .with_client_auth_cert(chain, key)
        .map_err(io::Error::other)
}

pub(super) fn server_config(pair: &PemPair, alpn: &[&str]) -> Arc<ServerConfig> {
    use rustls::pki_types::PrivateKeyDer;
    use rustls::pki_types::pem::PemObject;
    let pem = pair.certificates_pem();
    let certificates = CertificateDer::pem_slice_iter(pem.as_bytes());
    let certificates = certificates.collect::<Result<Vec<_>, _>>().expect("certificates");
    let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes()).expect("a key");
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("default versions")
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .expect("a pair");
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}

/// Takes any certificate, but holds the server to having its key.
#[derive(Debug)]
struct AnyPeer;

impl ExpectedPeer for AnyPeer {
    fn admits(&self, _: &ShownChain<'_>) -> Result<(), rustls::Error> {
        Ok(())
    }
}
