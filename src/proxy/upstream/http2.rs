//! HTTP/2 towards backends, plain with prior knowledge or under TLS: what gRPC needs.
//!
//! The h2 crate speaks the protocol. Here connections are shared between requests, as many on each as the backend
//! takes; an exchange sends its request and reads its response in the task of whoever asks, so that giving it up ends
//! both. A connection has a task of its own on the worker that opened it.

mod connection;
mod exchange;
mod request;
#[cfg(test)]
mod tests;
mod upload;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use ahash::AHashMap;
use bytes::Bytes;
use h2::SendStream;
use h2::client::ResponseFuture;
use http::Request;

use super::connect::Connector;
use super::error::{Reason, Retry, UpstreamError};
use super::pool::Key;
use crate::net::deadlines::{Deadline, Deadlines};
use crate::proxy::body::Body;
use connection::Connection;
pub use exchange::{ResponseBody, send};

/// The HTTP/2 connections of a worker.
pub struct Http2Pool {
    hosts: RefCell<AHashMap<Key, Rc<Host>>>,
    deadlines: Deadlines,
    idle_timeout: Cell<Duration>,
}

#[derive(Default)]
struct Host {
    connections: RefCell<Vec<Rc<Connection>>>,
    /// Held while connecting, so that a burst of requests shares one new connection.
    dialing: tokio::sync::Mutex<()>,
}

/// A place on a connection, free again when dropped.
pub struct Lease {
    connection: Rc<Connection>,
    deadlines: Deadlines,
}

/// Why a request failed, and its body if nothing was taken of it.
pub struct SendFailure {
    pub error: UpstreamError,
    pub unsent: Option<Body>,
}

impl Http2Pool {
    pub fn new(idle_timeout: Duration, deadlines: Deadlines) -> Self {
        Self { hosts: RefCell::default(), deadlines, idle_timeout: Cell::new(idle_timeout) }
    }

    /// How long idle connections are kept from now on.
    pub fn set_idle_timeout(&self, idle_timeout: Duration) {
        self.idle_timeout.set(idle_timeout);
    }

    /// A place on an open connection, or on a new one. Failures are safe to retry.
    pub async fn lease(&self, key: &Key, connector: &Connector) -> Result<Lease, UpstreamError> {
        let host = self.host(key);
        let find = || {
            let found = self.find(&host)?;
            connector.may_use(&key.endpoint, || found.connection.peer()).then_some(found)
        };
        if let Some(lease) = find() {
            return Ok(lease);
        }
        let _dialing = host.dialing.lock().await;
        if let Some(lease) = find() {
            return Ok(lease);
        }
        let stream = connector.connect(key).await?;
        let connection = Connection::establish(stream, &self.deadlines).await;
        let connection = connection
            .map_err(|error| UpstreamError::new(Reason::Http2).caused_by(error).retry(Retry::Safe))?;
        host.connections.borrow_mut().push(connection.clone());
        Ok(self.take(connection))
    }

    /// Closes what is idle for too long and forgets what is closed.
    pub fn sweep(&self) {
        let now = self.deadlines.now();
        self.hosts.borrow_mut().retain(|_, host| {
            let mut connections = host.connections.borrow_mut();
            connections.retain(|connection| {
                connection.is_open() && connection.idle(now).is_none_or(|idle| idle < self.idle_timeout.get())
            });
            !connections.is_empty() || Rc::strong_count(host) > 1
        });
    }

    /// Whether no connection is open or being opened.
    pub fn is_empty(&self) -> bool {
        self.hosts.borrow().is_empty()
    }

    fn host(&self, key: &Key) -> Rc<Host> {
        if let Some(host) = self.hosts.borrow().get(key) {
            return host.clone();
        }
        let host = Rc::<Host>::default();
        self.hosts.borrow_mut().insert(key.clone(), host.clone());
        host
    }

    fn find(&self, host: &Host) -> Option<Lease> {
        let mut connections = host.connections.borrow_mut();
        connections.retain(|connection| connection.is_open());
        let free = connections.iter().find(|connection| connection.has_room());
        free.map(|connection| self.take(connection.clone()))
    }

    fn take(&self, connection: Rc<Connection>) -> Lease {
        connection.enter();
        Lease { connection, deadlines: self.deadlines.clone() }
    }
}

impl Lease {
    /// Begins a request, which ends with its head where `end` is set. After an error nothing was sent.
    fn open(
        &self,
        request: Request<()>,
        end: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        self.connection.open(request, end)
    }

    /// The backend sent something.
    fn heard(&self) {
        self.connection.heard(self.deadlines.now());
    }

    /// The backend was waited for in vain.
    fn doubt(&self) {
        self.connection.doubt();
    }

    fn deadline(&self, duration: Duration) -> Deadline {
        self.deadlines.deadline(duration)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.connection.leave(self.deadlines.now());
    }
}
