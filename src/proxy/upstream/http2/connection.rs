//! One connection to a backend: how much it takes, and whether the backend is still there.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{Ping, PingPong, SendStream};
use http::Request;

use super::upload::SEND_BUFFER;
use crate::net::deadlines::{Deadline, Deadlines, Tick};
use crate::proxy::upstream::stream::Stream;

/// Requests on one connection at a time, where the backend allows that many.
pub const MAX_STREAMS: usize = 100;
/// What a response may be ahead of the client who takes it, in bytes.
pub const STREAM_WINDOW: u32 = 160 * 1024;
/// Room for all streams at once: clients that take nothing must not stop the others.
pub const CONNECTION_WINDOW: u32 = MAX_STREAMS as u32 * STREAM_WINDOW;
/// What may be waiting in DATA frames of less than 256 bytes, which the h2 crate counts as 256. gRPC is made of them, and
/// they come in bursts; where a client takes nothing they are gathered (`exchange`).
const SMALL_FRAMES: usize = 64 * 1024 * 1024;
/// Streams that were given up and whose last frames may still come. What comes for a forgotten one is an error, and the
/// h2 crate ends a connection with too many of them.
const RESET_STREAMS: usize = 10_000;
const MAX_HEADER_LIST: u32 = 256 * 1024;
/// A backend that sends nothing for so long, though it has something to answer, is asked whether it is there.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// And again, while it says nothing else. Servers of gRPC end a connection on which they are asked more than once in five
/// minutes, unless they sent something meanwhile.
const PING_AGAIN: Duration = Duration::from_secs(310);
/// How long it may take to say so.
const PING_TIMEOUT: Duration = Duration::from_secs(20);

pub struct Connection {
    /// Sends nothing itself but is cloned for each request, so that it never waits for one.
    sender: RefCell<SendRequest<Bytes>>,
    activity: Rc<Activity>,
    last_used: Cell<Tick>,
    /// When the backend had last sent something as a request waited in vain: until it does so again, no others are to
    /// wait with it.
    doubted: Cell<Option<Tick>>,
    peer: Option<IpAddr>,
}

/// What the task of a connection has to know of its streams.
struct Activity {
    open: Cell<usize>,
    /// When the backend last sent something.
    heard: Cell<Tick>,
}

impl Connection {
    /// Exchanges the prefaces. The backend's says how many streams it takes, so it is waited for: of too many that are sent
    /// ahead, the backend would refuse some.
    pub async fn establish(stream: Stream, deadlines: &Deadlines) -> Result<Rc<Self>, h2::Error> {
        let peer = stream.peer();
        let (sender, mut connection) = builder().handshake(stream).await?;
        poll_fn(|cx| match Pin::new(&mut connection).poll(cx) {
            Poll::Ready(ended) => Poll::Ready(ended.and(Err(h2::Reason::NO_ERROR.into()))),
            Poll::Pending if connection.max_concurrent_send_streams() > 0 => Poll::Ready(Ok(())),
            Poll::Pending => Poll::Pending,
        })
        .await?;
        let now = deadlines.now();
        let activity = Rc::new(Activity { open: Cell::new(0), heard: Cell::new(now) });
        tokio::task::spawn_local(drive(connection, activity.clone(), deadlines.clone()));
        let sender = RefCell::new(sender);
        let (last_used, doubted) = (Cell::new(now), Cell::new(None));
        Ok(Rc::new(Self { sender, activity, last_used, doubted, peer }))
    }

    /// The address that it leads to.
    pub fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    /// Whether the backend takes requests on it.
    pub fn is_open(&self) -> bool {
        let ready = self.sender.borrow_mut().poll_ready(&mut Context::from_waker(Waker::noop()));
        matches!(ready, Poll::Ready(Ok(())))
    }

    /// Whether the backend takes one more request now, and can be expected to answer it.
    pub fn has_room(&self) -> bool {
        if self.doubted.get() == Some(self.activity.heard.get()) {
            return false;
        }
        let allowed = self.sender.borrow().current_max_send_streams();
        self.activity.open.get() < allowed.min(MAX_STREAMS)
    }

    /// For how long nothing was going on; `None` where something is.
    pub fn idle(&self, now: Tick) -> Option<Duration> {
        (self.activity.open.get() == 0).then(|| now.since(self.last_used.get()))
    }

    /// Takes a place.
    pub fn enter(&self) {
        self.activity.open.set(self.activity.open.get() + 1);
    }

    /// Gives it back.
    pub fn leave(&self, now: Tick) {
        self.activity.open.set(self.activity.open.get().saturating_sub(1));
        self.last_used.set(now);
    }

    /// The backend sent something.
    pub fn heard(&self, now: Tick) {
        self.activity.heard.set(now);
    }

    /// A request has waited for the backend in vain.
    pub fn doubt(&self) {
        self.doubted.set(Some(self.activity.heard.get()));
    }

    /// Begins a request; after an error nothing was sent.
    pub fn open(
        &self,
        request: Request<()>,
        end: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        let mut sender = self.sender.borrow().clone();
        sender.send_request(request, end)
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        // Until the backend has said how many it takes.
        .initial_max_send_streams(0)
        .max_header_list_size(MAX_HEADER_LIST)
        .max_send_buffer_size(SEND_BUFFER)
        .max_concurrent_reset_streams(RESET_STREAMS)
        .data_frame_budget(SMALL_FRAMES);
    builder
}

/// Runs a connection until it is over. With it all its streams are.
async fn drive(
    mut connection: h2::client::Connection<Stream, Bytes>,
    activity: Rc<Activity>,
    deadlines: Deadlines,
) {
    let Some(pings) = connection.ping_pong() else { return };
    let deadline = deadlines.deadline(PING_INTERVAL);
    let mut watch = Watch { pings, pinged: false, last: None, activity, deadlines, deadline };
    let ended = poll_fn(|cx| match Pin::new(&mut connection).poll(cx) {
        Poll::Ready(ended) => Poll::Ready(Some(ended)),
        Poll::Pending => watch.poll_dead(cx).map(|()| None),
    });
    match ended.await {
        Some(Ok(())) => {}
        Some(Err(error)) => tracing::debug!(%error, "connection to an HTTP/2 backend ended"),
        None => tracing::debug!("HTTP/2 backend answers no ping"),
    }
}

/// Finds out whether a backend that owes an answer is still there.
struct Watch {
    pings: PingPong,
    /// The answer to a ping is due at the deadline.
    pinged: bool,
    /// When it was pinged last.
    last: Option<Tick>,
    activity: Rc<Activity>,
    deadlines: Deadlines,
    deadline: Deadline,
}

impl Watch {
    /// Ready when it is not.
    fn poll_dead(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.pinged {
            if self.pings.poll_pong(cx).is_pending() {
                return self.deadline.poll_passed(cx);
            }
            self.pinged = false;
        }
        if self.activity.open.get() == 0 {
            return Poll::Pending;
        }
        let (now, heard) = (self.deadlines.now(), self.activity.heard.get());
        let due = match self.last.filter(|last| *last >= heard) {
            Some(last) => PING_AGAIN.checked_sub(now.since(last)),
            None => PING_INTERVAL.checked_sub(now.since(heard)),
        };
        if let Some(wait) = due.filter(|wait| !wait.is_zero()) {
            self.deadline.reset(wait);
            ready!(self.deadline.poll_passed(cx));
        }
        // It can fail only where the connection is over, which the next look shows.
        let _ = self.pings.send_ping(Ping::opaque());
        self.pinged = true;
        self.last = Some(self.deadlines.now());
        self.deadline.reset(PING_TIMEOUT);
        match self.pings.poll_pong(cx) {
            Poll::Ready(_) => Poll::Pending,
            Poll::Pending => self.deadline.poll_passed(cx),
        }
    }
}
