//! HTTP/2 towards backends, plain with prior knowledge or under TLS: what gRPC needs.
//!
//! hyper speaks the protocol; here connections are shared between requests, at most [`MAX_STREAMS`] on each, and
//! the timeouts are kept. A connection's own task runs on the worker that opened it.

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::mem;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ahash::AHashMap;
use bytes::Bytes;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, Request, Response, Uri, header};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};

use super::Head;
use super::connect::Connector;
use super::error::{Reason, Retry, UpstreamError};
use super::http1::chunked::strip_trailers;
use super::http1::{Pace, Timing, Wait};
use super::pool::Key;
use crate::net::deadlines::{Deadlines, Tick};
use crate::proxy::body::{Body, BodyError};
use crate::proxy::http1::RequestBodyError;

#[cfg(test)]
mod tests;

/// Requests on one connection at a time; what backends commonly allow.
const MAX_STREAMS: usize = 100;
/// The connection's window is wider than a stream's, so that one stalled stream cannot stop the others. The h2
/// crate ends a connection on which too many frames of less than 256 bytes wait to be taken, and allows for half
/// of this window: gRPC is made of such frames, and a client may be slow, so it is wider than data alone needs.
const STREAM_WINDOW: u32 = 512 * 1024;
const CONNECTION_WINDOW: u32 = 16 * 1024 * 1024;
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
const MAX_HEADER_LIST: u32 = 256 * 1024;

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

struct Connection {
    sender: RefCell<SendRequest<RequestBody>>,
    in_flight: Cell<usize>,
    last_used: Cell<Tick>,
    /// The address that it leads to.
    peer: Option<IpAddr>,
}

/// A place on a connection, free again when dropped.
pub struct Lease {
    connection: Rc<Connection>,
    deadlines: Deadlines,
}

/// Why a request failed, and its body if nothing was sent of it.
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
            connector.may_use(&key.endpoint, || found.connection.peer).then_some(found)
        };
        if let Some(lease) = find() {
            return Ok(lease);
        }
        let _dialing = host.dialing.lock().await;
        if let Some(lease) = find() {
            return Ok(lease);
        }
        let stream = connector.connect(key).await?;
        let peer = stream.peer();
        let (sender, driver) = builder()
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| UpstreamError::new(Reason::Http2).caused_by(error).retry(Retry::Safe))?;
        tokio::task::spawn_local(async move {
            if let Err(error) = driver.await {
                tracing::debug!(%error, "connection to an HTTP/2 backend ended");
            }
        });
        let connection = Rc::new(Connection {
            sender: RefCell::new(sender),
            in_flight: Cell::new(0),
            last_used: Cell::new(self.deadlines.now()),
            peer,
        });
        host.connections.borrow_mut().push(connection.clone());
        Ok(self.take(connection))
    }

    /// Closes what is idle for too long and forgets what is closed.
    pub fn sweep(&self) {
        let now = self.deadlines.now();
        self.hosts.borrow_mut().retain(|_, host| {
            let mut connections = host.connections.borrow_mut();
            connections.retain(|connection| {
                let used = connection.in_flight.get() > 0
                    || now.since(connection.last_used.get()) < self.idle_timeout.get();
                used && connection.is_open()
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
        let free = connections.iter().find(|connection| connection.in_flight.get() < MAX_STREAMS);
        free.map(|connection| self.take(connection.clone()))
    }

    fn take(&self, connection: Rc<Connection>) -> Lease {
        connection.in_flight.set(connection.in_flight.get() + 1);
        Lease { connection, deadlines: self.deadlines.clone() }
    }
}

impl Connection {
    fn is_open(&self) -> bool {
        !self.sender.borrow().is_closed()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.connection.in_flight.set(self.connection.in_flight.get().saturating_sub(1));
        self.connection.last_used.set(self.deadlines.now());
    }
}

fn builder() -> Builder<LocalExecutor> {
    let mut builder = Builder::new(LocalExecutor);
    builder
        .timer(TokioTimer::new())
        .adaptive_window(false)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .initial_max_send_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADER_LIST)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}

/// Runs hyper's tasks on the worker's own thread.
#[derive(Clone, Copy)]
struct LocalExecutor;

impl<F: Future<Output = ()> + 'static> Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}

/// Sends a request and waits for the head of its response.
pub async fn send(
    lease: Lease,
    head: Head<'_>,
    scheme: Scheme,
    body: Body,
    timing: Timing,
) -> Result<Response<Body>, SendFailure> {
    let progress = Rc::new(Progress::default());
    let request = match request_for(head, scheme, RequestBody { body, progress: progress.clone() }) {
        Ok(request) => request,
        Err(body) => {
            let error = UpstreamError::new(Reason::ClientHost);
            return Err(SendFailure { error, unsent: Some(body) });
        }
    };
    let mut pace = Pace::new(lease.deadlines.deadline(timing.read), timing.send, timing.read);
    let mut response = pin!(lease.connection.sender.borrow_mut().try_send_request(request));
    let sent = std::future::poll_fn(|cx| match response.as_mut().poll(cx) {
        Poll::Ready(response) => Poll::Ready(Ok(response)),
        Poll::Pending => progress.poll(&mut pace, cx).map(Err),
    });
    match sent.await {
        Ok(Ok(response)) => {
            let body = |incoming| ResponseBody { incoming, pace, progress, _lease: lease };
            Ok(response.map(|incoming| Body::Http2(Box::new(body(incoming)))))
        }
        Ok(Err(mut failed)) => {
            let unsent = failed.take_message().map(|mut request| mem::take(&mut request.body_mut().body));
            let error = explain(failed.into_error(), &progress);
            let error = if unsent.is_some() { error.retry(Retry::Safe) } else { error };
            Err(SendFailure { error, unsent })
        }
        Err(error) => Err(SendFailure { error, unsent: None }),
    }
}

/// The request as HTTP/2 has it (RFC 9113, section 8.3.1): `:authority` for Host, no connection fields.
fn request_for(head: Head<'_>, scheme: Scheme, mut body: RequestBody) -> Result<Request<RequestBody>, Body> {
    let Head { parts, about } = head;
    let host = parts.headers.get(header::HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let mut uri = http::uri::Parts::default();
    uri.scheme = Some(scheme);
    uri.authority = host.or_else(|| parts.uri.authority().cloned());
    uri.path_and_query =
        Some(parts.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/")));
    let Ok(uri) = Uri::from_parts(uri) else { return Err(mem::take(&mut body.body)) };
    let mut request = Request::new(body);
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = uri;
    *request.headers_mut() = headers_for(&parts.headers);
    about.insert_into(request.headers_mut());
    Ok(request)
}

fn headers_for(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    for name in [
        header::HOST,
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
        header::CONNECTION,
        header::UPGRADE,
        header::EXPECT,
    ] {
        headers.remove(name);
    }
    for name in ["keep-alive", "proxy-connection", "http2-settings"] {
        headers.remove(name);
    }
    // The one value that may pass, and gRPC insists on it.
    if headers.get(header::TE).is_some_and(|te| te.as_bytes() != b"trailers") {
        headers.remove(header::TE);
    }
    headers
}

fn explain(error: hyper::Error, progress: &Progress) -> UpstreamError {
    // What hyper makes of it is a stream that was reset; the client's own failure says more.
    if let Some(failure) = progress.failure.take() {
        return UpstreamError::new(Reason::ClientBody).caused_by(failure);
    }
    let protocol_error = error.source().and_then(|cause| cause.downcast_ref::<h2::Error>());
    let retry = match protocol_error {
        // The backend promises that it did nothing (RFC 9113, section 8.7).
        Some(cause) if cause.is_remote() && cause.reason() == Some(h2::Reason::REFUSED_STREAM) => Retry::Safe,
        Some(cause) if cause.is_go_away() || cause.is_io() => Retry::IfIdempotent,
        Some(_) => Retry::Never,
        None => Retry::IfIdempotent,
    };
    UpstreamError::new(Reason::Http2).caused_by(error).retry(retry)
}

/// How far the upload is: told by the request body, which the connection's task polls, to whoever waits for the
/// response and its clock.
struct Progress {
    wait: Cell<Wait>,
    moved: Cell<bool>,
    /// Why the client's body broke off.
    failure: RefCell<Option<BodyError>>,
    waiting: RefCell<Option<Waker>>,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            wait: Cell::new(Wait::Send),
            moved: Cell::new(false),
            failure: RefCell::default(),
            waiting: RefCell::default(),
        }
    }
}

impl Progress {
    fn set(&self, wait: Wait, moved: bool) {
        self.moved.set(self.moved.get() || moved);
        // The clock of the one who waits has to be set anew.
        if self.wait.replace(wait) != wait
            && let Some(waiting) = self.waiting.take()
        {
            waiting.wake();
        }
    }

    fn poll(&self, pace: &mut Pace, cx: &mut Context<'_>) -> Poll<UpstreamError> {
        self.waiting.replace(Some(cx.waker().clone()));
        pace.moved |= self.moved.take();
        pace.poll(self.wait.get(), cx)
    }
}

/// A request body that says how far it is.
struct RequestBody {
    body: Body,
    progress: Rc<Progress>,
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut frame = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Err(failure))) = &mut frame {
            let failure = mem::replace(failure, RequestBodyError::Closed.into());
            self.progress.failure.replace(Some(failure));
        }
        if let Poll::Ready(Some(Ok(frame))) = &mut frame
            && let Some(trailers) = frame.trailers_mut()
        {
            strip_trailers(trailers);
        }
        match &frame {
            Poll::Pending => self.progress.set(Wait::Client, false),
            Poll::Ready(Some(Ok(_))) if !self.body.is_end_stream() => self.progress.set(Wait::Send, true),
            Poll::Ready(_) => self.progress.set(Wait::Read, true),
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        let ended = self.body.is_end_stream();
        if ended {
            self.progress.set(Wait::Read, false);
        }
        ended
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        self.progress.set(Wait::Read, false);
    }
}

/// The body of a response; holds its place on the connection until it is dropped.
pub struct ResponseBody {
    incoming: Incoming,
    pace: Pace,
    progress: Rc<Progress>,
    _lease: Lease,
}

impl ResponseBody {
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(cx) {
            self.pace.moved = true;
            return Poll::Ready(
                frame.map(|frame| frame.map_err(|error| explain(error, &self.progress).retry(Retry::Never))),
            );
        }
        // An upload that goes on is life enough: the client of a stream in both directions may be the quiet one.
        self.progress.poll(&mut self.pace, cx).map(|late| Some(Err(late)))
    }

    pub fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    pub fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
