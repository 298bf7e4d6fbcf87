//! Tunnels to workloads of an ambient mesh: HTTP/2 CONNECT to port 15008 of the pod, over mutual TLS with the
//! gateway's own identity. What goes through a tunnel is what would have gone to the pod directly.
//!
//! The [`Connector`](super::connect::Connector) asks for one where the pipeline says so. A worker has one connection to
//! a pod, more where it carries [`MAX_STREAMS`]; one that nobody uses is closed.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ahash::AHashMap;
use bytes::{Buf, Bytes};
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use http::{Method, Request, StatusCode, Uri, Version};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connect::{connect_address, explain_tls};
use super::error::{Reason, UpstreamError};
use crate::net::deadlines::{Deadlines, Tick};
use crate::tls::hbone_client::Via;

/// Where node proxies take tunnels.
const HBONE_PORT: u16 = 15008;
/// Tunnels of one connection.
const MAX_STREAMS: usize = 100;
const STREAM_WINDOW: u32 = 512 * 1024;
const CONNECTION_WINDOW: u32 = 16 * 1024 * 1024;
/// A connection without tunnels is kept so long.
const IDLE: Duration = Duration::from_secs(60);
/// What is copied into one frame.
const CHUNK: usize = 16 * 1024;

/// The connections of one worker.
pub struct Tunnels {
    connections: RefCell<AHashMap<Key, Vec<Rc<Connection>>>>,
    deadlines: Deadlines,
}

/// A pod, and how it is spoken to.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    proxy: SocketAddr,
    via: Via,
}

struct Connection {
    sender: SendRequest<Bytes>,
    open: Cell<usize>,
    last_used: Cell<Tick>,
    /// The connection is over.
    ended: Cell<bool>,
}

/// A tunnel, as a stream of bytes.
pub struct TunnelStream {
    send: SendStream<Bytes>,
    receive: RecvStream,
    /// Received and not read yet.
    data: Bytes,
    finished: bool,
    _place: Place,
}

/// A place on a connection, free again when dropped.
struct Place {
    connection: Rc<Connection>,
    deadlines: Deadlines,
}

impl Tunnels {
    pub fn new(deadlines: Deadlines) -> Self {
        Self { connections: RefCell::default(), deadlines }
    }

    /// A tunnel to `target`, which is an address and port of the pod.
    pub async fn open(&self, target: SocketAddr, via: &Via) -> Result<TunnelStream, UpstreamError> {
        let key = Key { proxy: SocketAddr::new(target.ip(), HBONE_PORT), via: via.clone() };
        let connection = match self.find(&key) {
            Some(connection) => connection,
            None => self.connect(&key).await?,
        };
        let place = Place::take(connection, &self.deadlines);
        let mut sender = place.connection.sender.clone().ready().await.map_err(failed)?;
        let authority = Uri::builder().authority(target.to_string()).build();
        let mut request = Request::new(());
        *request.method_mut() = Method::CONNECT;
        *request.uri_mut() = authority.map_err(|error| UpstreamError::new(Reason::Http2).caused_by(error))?;
        *request.version_mut() = Version::HTTP_2;
        let (response, send) = sender.send_request(request, false).map_err(failed)?;
        let response = response.await.map_err(failed)?;
        match response.status() {
            StatusCode::OK => {
                let (receive, data) = (response.into_body(), Bytes::new());
                Ok(TunnelStream { send, receive, data, finished: false, _place: place })
            }
            StatusCode::SERVICE_UNAVAILABLE => Err(Reason::ConnectFailed.into()),
            _ => Err(Reason::TunnelRefused.into()),
        }
    }

    /// Closes connections that have been without tunnels for a while, and forgets those that are over.
    pub fn sweep(&self) {
        let now = self.deadlines.now();
        self.connections.borrow_mut().retain(|_, connections| {
            connections.retain(|connection| {
                let used = connection.open.get() > 0 || now.since(connection.last_used.get()) < IDLE;
                used && !connection.ended.get()
            });
            !connections.is_empty()
        });
    }

    /// Whether no connection is open.
    pub fn is_empty(&self) -> bool {
        self.connections.borrow().is_empty()
    }

    fn find(&self, key: &Key) -> Option<Rc<Connection>> {
        let connections = self.connections.borrow();
        let usable =
            |connection: &&Rc<Connection>| !connection.ended.get() && connection.open.get() < MAX_STREAMS;
        connections.get(key)?.iter().find(usable).cloned()
    }

    async fn connect(&self, key: &Key) -> Result<Rc<Connection>, UpstreamError> {
        let (tcp, address) = connect_address(key.proxy).await?;
        let tls = key.via.connect(tcp, address.ip()).await.map_err(explain_tls)?;
        let (sender, driver) = h2::client::Builder::new()
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .handshake(tls)
            .await
            .map_err(failed)?;
        let connection = Rc::new(Connection {
            sender,
            open: Cell::new(0),
            last_used: Cell::new(self.deadlines.now()),
            ended: Cell::new(false),
        });
        let watched = Rc::downgrade(&connection);
        tokio::task::spawn_local(async move {
            if let Err(error) = driver.await {
                tracing::debug!(%error, "connection to a node proxy ended");
            }
            if let Some(connection) = watched.upgrade() {
                connection.ended.set(true);
            }
        });
        self.connections.borrow_mut().entry(key.clone()).or_default().push(connection.clone());
        Ok(connection)
    }
}

impl Place {
    fn take(connection: Rc<Connection>, deadlines: &Deadlines) -> Self {
        connection.open.set(connection.open.get() + 1);
        Self { connection, deadlines: deadlines.clone() }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connection.open.set(self.connection.open.get().saturating_sub(1));
        self.connection.last_used.set(self.deadlines.now());
    }
}

fn failed(error: h2::Error) -> UpstreamError {
    UpstreamError::new(Reason::Http2).caused_by(error)
}

fn broken(error: h2::Error) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, error)
}

impl AsyncRead for TunnelStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.data.is_empty() {
            match ready!(self.receive.poll_data(cx)) {
                Some(data) => self.data = data.map_err(broken)?,
                None => return Poll::Ready(Ok(())),
            }
        }
        let length = self.data.len().min(buffer.remaining());
        buffer.put_slice(self.data.get(..length).unwrap_or_default());
        self.data.advance(length);
        // Fails only where the stream is over, which the next read tells.
        let _ = self.receive.flow_control().release_capacity(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TunnelStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.send.reserve_capacity(data.len().min(CHUNK));
        while self.send.capacity() == 0 {
            match ready!(self.send.poll_capacity(cx)) {
                Some(room) => drop(room.map_err(broken)?),
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            }
        }
        let length = self.send.capacity().min(data.len()).min(CHUNK);
        let part = Bytes::copy_from_slice(data.get(..length).unwrap_or_default());
        self.send.send_data(part, false).map_err(broken)?;
        Poll::Ready(Ok(length))
    }

    /// The connection's own task sends.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !std::mem::replace(&mut self.finished, true) {
            self.send.send_data(Bytes::new(), true).map_err(broken)?;
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for TunnelStream {
    fn drop(&mut self) {
        // One that is dropped in the middle must not pass for one that ended.
        if !self.finished {
            self.send.send_reset(h2::Reason::CANCEL);
        }
    }
}
