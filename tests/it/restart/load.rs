//! Clients that tolerate nothing: a connection refused or reset, a failed handshake, a request without its whole
//! answer is a loss. What a server may do is end a connection after an answer that says so, or with a GOAWAY.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::backend::{PIECE, PIECES};
use super::gateway::{HOST, PATIENCE};

/// Which clients, and how many of each.
#[derive(Clone, Copy, Default)]
pub struct Load {
    pub new_connections: usize,
    pub keep_alive: usize,
    pub http2: usize,
    pub downloads: usize,
    pub websockets: usize,
}

/// What they saw.
#[derive(Debug, Default)]
pub struct Tally {
    pub handshakes: Cell<u64>,
    pub requests: Cell<u64>,
    pub downloads: Cell<u64>,
    pub echoes: Cell<u64>,
    pub losses: RefCell<Vec<String>>,
}

#[derive(Clone)]
pub struct Clients {
    address: SocketAddr,
    http1: TlsConnector,
    http2: TlsConnector,
    tally: Rc<Tally>,
    over: Rc<Cell<bool>>,
}

/// Puts load on the gateway for as long as `meanwhile` runs, on another thread, and returns what the clients saw.
pub fn during<T: Send + 'static>(
    address: SocketAddr,
    root: &CertificateDer<'static>,
    load: Load,
    meanwhile: impl FnOnce() -> T + Send + 'static,
) -> (Tally, T) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let clients = Clients::new(address, root);
    let tally = clients.tally.clone();
    let done = runtime.block_on(LocalSet::new().run_until(async {
        let tasks = clients.start(load);
        // Load first: a restart of an idle gateway proves little.
        sleep(Duration::from_millis(500)).await;
        let done = tokio::task::spawn_blocking(meanwhile).await.unwrap();
        sleep(Duration::from_millis(500)).await;
        clients.over.set(true);
        for task in tasks {
            timeout(PATIENCE, task).await.expect("a client is stuck").unwrap();
        }
        done
    }));
    drop(clients);
    (Rc::into_inner(tally).unwrap(), done)
}

impl Clients {
    pub fn new(address: SocketAddr, root: &CertificateDer<'static>) -> Self {
        let connector = |protocol: &[u8]| {
            let mut roots = RootCertStore::empty();
            roots.add(root.clone()).unwrap();
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
            let mut config = config.unwrap().with_root_certificates(roots).with_no_client_auth();
            config.alpn_protocols = vec![protocol.to_vec()];
            TlsConnector::from(Arc::new(config))
        };
        let (http1, http2) = (connector(b"http/1.1"), connector(b"h2"));
        Self { address, http1, http2, tally: Rc::default(), over: Rc::default() }
    }

    fn start(&self, load: Load) -> Vec<tokio::task::JoinHandle<()>> {
        let mut tasks = Vec::new();
        for number in 0..load
            .new_connections
            .max(load.keep_alive)
            .max(load.http2)
            .max(load.downloads.max(load.websockets))
        {
            let pause = Duration::from_millis(5 + 7 * (number as u64 % 10));
            if number < load.new_connections {
                tasks.push(self.repeat("new connection", Duration::ZERO, Self::new_connection));
            }
            if number < load.keep_alive {
                tasks.push(self.repeat("kept connection", pause, move |c| c.keep_alive(pause)));
            }
            if number < load.http2 {
                tasks.push(self.repeat("HTTP/2", pause, Self::http2));
            }
            if number < load.downloads {
                tasks.push(self.repeat("download", pause, Self::download));
            }
            if number < load.websockets {
                tasks.push(self.repeat("WebSocket", pause, Self::websocket));
            }
        }
        tasks
    }

    /// One client after another until the end; each that fails is a loss.
    fn repeat<F: Future<Output = anyhow::Result<()>> + 'static>(
        &self,
        what: &'static str,
        pause: Duration,
        client: impl Fn(Self) -> F + 'static,
    ) -> tokio::task::JoinHandle<()> {
        let clients = self.clone();
        spawn_local(async move {
            while !clients.over.get() {
                if let Err(error) = client(clients.clone()).await {
                    clients.tally.losses.borrow_mut().push(format!("{what}: {error:#}"));
                }
                sleep(pause).await;
            }
        })
    }

    pub async fn connect(&self, connector: &TlsConnector) -> anyhow::Result<TlsStream<TcpStream>> {
        let connect = async {
            let stream = TcpStream::connect(self.address).await.context("connect")?;
            stream.set_nodelay(true)?;
            connector.connect(ServerName::try_from(HOST)?, stream).await.context("handshake")
        };
        let stream = timeout(PATIENCE, connect).await.context("no connection in time")??;
        add(&self.tally.handshakes);
        Ok(stream)
    }

    /// Whether a handshake resumed an earlier session.
    pub async fn resumes(&self) -> anyhow::Result<bool> {
        let mut stream = self.connect(&self.http1).await?;
        // An exchange, for the ticket to arrive.
        stream
            .write_all(format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n").as_bytes())
            .await?;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        ensure!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
        Ok(stream.get_ref().1.handshake_kind() == Some(rustls::HandshakeKind::Resumed))
    }

    async fn new_connection(self) -> anyhow::Result<()> {
        let (mut sender, _) = self.http1().await?;
        self.ask(&mut sender, "/").await.map(|_| ())
    }

    async fn keep_alive(self, pause: Duration) -> anyhow::Result<()> {
        let (mut sender, _) = self.http1().await?;
        while !self.over.get() {
            let close = self.ask(&mut sender, "/").await?;
            if close {
                break;
            }
            sleep(pause).await;
        }
        Ok(())
    }

    async fn download(self) -> anyhow::Result<()> {
        let (mut sender, _) = self.http1().await?;
        let response = timeout(PATIENCE, sender.send_request(get("/slow"))).await??;
        ensure!(response.status() == StatusCode::OK, "{}", response.status());
        let body = timeout(PATIENCE, response.into_body().collect()).await?.context("body")?.to_bytes();
        ensure!(body.len() == PIECES * PIECE, "{} bytes", body.len());
        add(&self.tally.downloads);
        Ok(())
    }

    /// Three streams at a time, one of them slow.
    async fn http2(self) -> anyhow::Result<()> {
        let stream = self.connect(&self.http2).await?;
        let (sender, connection) =
            http2::handshake(hyper_util::rt::TokioExecutor::new(), TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        while !self.over.get() && !sender.is_closed() {
            let ask = |path| {
                let (mut sender, clients) = (sender.clone(), self.clone());
                async move {
                    if sender.ready().await.is_err() {
                        return anyhow::Ok(());
                    }
                    match timeout(PATIENCE, sender.try_send_request(get(path))).await? {
                        // It was never sent: the client opens another connection.
                        Err(error) if error.message().is_some() => Ok(()),
                        Err(error) => Err(error.into_error()).context("request"),
                        Ok(response) => {
                            ensure!(response.status() == StatusCode::OK, "{}", response.status());
                            let body =
                                timeout(PATIENCE, response.into_body().collect()).await?.context("body")?;
                            ensure!(body.to_bytes() == "ok", "not the whole answer");
                            add(&clients.tally.requests);
                            Ok(())
                        }
                    }
                }
            };
            let (a, b, c) = tokio::join!(ask("/"), ask("/wait"), ask("/"));
            a?;
            b?;
            c?;
        }
        drop(sender);
        connection.abort();
        Ok(())
    }

    async fn websocket(self) -> anyhow::Result<()> {
        let mut stream = self.connect(&self.http1).await?;
        let request = format!(
            "GET /ws HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(timeout(PATIENCE, stream.read_u8()).await?.context("head")?);
        }
        ensure!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
        while !self.over.get() {
            stream.write_all(b"echo").await.context("write")?;
            let mut echo = [0; 4];
            timeout(PATIENCE, stream.read_exact(&mut echo)).await?.context("read")?;
            if &echo != b"echo" {
                bail!("{echo:?}");
            }
            add(&self.tally.echoes);
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    async fn http1(&self) -> anyhow::Result<(http1::SendRequest<Empty<Bytes>>, tokio::task::AbortHandle)> {
        let stream = self.connect(&self.http1).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        Ok((sender, tokio::spawn(connection).abort_handle()))
    }

    /// Whether the answer was the last one of its connection.
    async fn ask(&self, sender: &mut http1::SendRequest<Empty<Bytes>>, path: &str) -> anyhow::Result<bool> {
        let response = timeout(PATIENCE, sender.send_request(get(path))).await?.context("request")?;
        ensure!(response.status() == StatusCode::OK, "{}", response.status());
        let close = response.headers().get("connection").is_some_and(|value| value == "close");
        let body = timeout(PATIENCE, response.into_body().collect()).await?.context("body")?.to_bytes();
        ensure!(body == "ok", "not the whole answer");
        add(&self.tally.requests);
        Ok(close)
    }
}

impl Tally {
    pub fn assert_nothing_lost(&self) {
        let losses = self.losses.borrow();
        assert!(
            losses.is_empty(),
            "{} losses, as {:#?}\n{self:?}",
            losses.len(),
            &losses[..losses.len().min(10)]
        );
    }
}

fn get(path: &str) -> Request<Empty<Bytes>> {
    let uri = format!("https://{HOST}{path}");
    Request::get(uri).header("host", HOST).body(Empty::new()).unwrap()
}

fn add(count: &Cell<u64>) {
    count.set(count.get() + 1);
}
