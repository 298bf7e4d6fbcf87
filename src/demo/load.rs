//! The demo's own clients: they trust its authority and nobody else, check the name and the validity of every
//! certificate, and count. A client never resumes a session, so each handshake shows a certificate.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls_pki_types::CertificateDer;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::site::{BOTH, FILES, ROTATED, RSA, WILD};
use crate::telemetry::causes::with_causes;
use crate::tls::client::{Alpn, ClientStream, ClientTls, Roots};

/// What the clients saw.
#[derive(Default)]
pub struct Tally {
    pub handshakes: Cell<u64>,
    pub failed_handshakes: Cell<u64>,
    pub requests: Cell<u64>,
    pub failed_requests: Cell<u64>,
    /// Connections that ended although their client wanted to go on.
    pub lost_connections: Cell<u64>,
    /// Handshakes with an older certificate than one before.
    pub went_back: Cell<u64>,
    pub last_error: RefCell<Option<String>>,
}

/// Clients of the gateway at one address.
pub struct Clients {
    address: SocketAddr,
    root: CertificateDer<'static>,
    pub tally: Tally,
}

/// A client gives up after this time; the gateway answers within milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause of a client between two connections or requests: a small load on purpose.
const PAUSE: Duration = Duration::from_millis(10);

impl Clients {
    pub fn new(address: SocketAddr, root: CertificateDer<'static>) -> Self {
        Self { address, root, tally: Tally::default() }
    }

    /// A full handshake as `host`: the connection and the serial number of the certificate. Counts nothing.
    pub async fn connect(&self, host: &str) -> anyhow::Result<(ClientStream, u64)> {
        // A configuration of its own for each connection: nothing to resume.
        let tls = ClientTls::verified(Roots::Bundle(std::slice::from_ref(&self.root)))?;
        let connect = async {
            let tcp = TcpStream::connect(self.address).await?;
            tcp.set_nodelay(true)?;
            Ok::<_, anyhow::Error>(tls.connect(tcp, host, self.address.ip(), Alpn::Http1).await?)
        };
        let stream = timeout(PATIENCE, connect).await.context("no handshake in time")??;
        let certificates = stream.get_ref().1.peer_certificates();
        let leaf = certificates.and_then(|chain| chain.first()).context("no certificate")?;
        let serial = serial_of(leaf)?;
        Ok((stream, serial))
    }

    /// Connects, asks for one page and leaves, again and again, as one host after the other.
    pub async fn come_and_go(self: Rc<Self>) {
        let mut newest = 0;
        for host in [ROTATED, RSA, ROTATED, BOTH, ROTATED, WILD, ROTATED, FILES].into_iter().cycle() {
            match self.connect(host).await {
                Ok((stream, serial)) => {
                    count(&self.tally.handshakes);
                    if host == ROTATED {
                        if serial < newest {
                            count(&self.tally.went_back);
                        }
                        newest = serial;
                    }
                    if let Some(mut requests) = self.speak_http(stream).await {
                        self.request(&mut requests, host).await;
                    }
                }
                Err(error) => self.fail(&self.tally.failed_handshakes, error),
            }
            sleep(PAUSE).await;
        }
    }

    /// Asks on one connection, again and again; no rotation should touch it.
    pub async fn stay(self: Rc<Self>) {
        loop {
            match self.connect(ROTATED).await {
                Ok((stream, _)) => {
                    count(&self.tally.handshakes);
                    if let Some(mut requests) = self.speak_http(stream).await {
                        while self.request(&mut requests, ROTATED).await {
                            sleep(PAUSE).await;
                        }
                    }
                    count(&self.tally.lost_connections);
                }
                Err(error) => self.fail(&self.tally.failed_handshakes, error),
            }
            sleep(PAUSE).await;
        }
    }

    async fn speak_http(&self, stream: ClientStream) -> Option<SendRequest<Empty<Bytes>>> {
        match handshake(TokioIo::new(stream)).await {
            Ok((requests, connection)) => {
                tokio::task::spawn_local(connection);
                Some(requests)
            }
            Err(error) => {
                self.fail(&self.tally.failed_requests, error.into());
                None
            }
        }
    }

    /// Whether all went well.
    async fn request(&self, requests: &mut SendRequest<Empty<Bytes>>, host: &str) -> bool {
        match timeout(PATIENCE, get(requests, host)).await.context("no answer in time").flatten() {
            Ok(()) => {
                count(&self.tally.requests);
                true
            }
            Err(error) => {
                self.fail(&self.tally.failed_requests, error);
                false
            }
        }
    }

    fn fail(&self, counter: &Cell<u64>, error: anyhow::Error) {
        count(counter);
        self.tally.last_error.replace(Some(with_causes(&error)));
    }
}

impl Tally {
    /// Whether every client got what it wanted.
    pub fn is_clean(&self) -> bool {
        let faults =
            [&self.failed_handshakes, &self.failed_requests, &self.lost_connections, &self.went_back];
        faults.iter().all(|fault| fault.get() == 0)
    }
}

async fn get(requests: &mut SendRequest<Empty<Bytes>>, host: &str) -> anyhow::Result<()> {
    requests.ready().await?;
    let request = Request::get("/load").header("host", host).body(Empty::new())?;
    let response = requests.send_request(request).await?;
    ensure!(response.status() == StatusCode::OK, "status {}", response.status());
    response.into_body().collect().await?;
    Ok(())
}

fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

fn serial_of(certificate: &CertificateDer<'_>) -> anyhow::Result<u64> {
    let (_, certificate) = X509Certificate::from_der(certificate)?;
    Ok(certificate.raw_serial().iter().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
}
