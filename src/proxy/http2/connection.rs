//! What every HTTP/2 connection with a client goes through, whatever its streams carry: prefaces, streams one by one,
//! and its end, which is the client's, that of the worker, that of silence, or that of patience.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;

use crate::net::deadlines::{Deadline, Deadlines, Tick};
use crate::net::drain::DrainWatch;
use crate::proxy::client_stream::ClientStream;
use crate::proxy::cork::Cork;

/// Streams that a client may give up before their response is over, in a period. Each has cost a backend a request
/// that nobody wants (CVE-2023-44487).
const GIVEN_UP: u32 = 100;
const PERIOD: Duration = Duration::from_secs(10);

/// How long a client may take.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// For its preface, and for each header block from its first byte to its last.
    pub header_timeout: Duration,
    /// Without a stream.
    pub keep_alive: Duration,
}

/// What is going on on one connection.
#[derive(Default)]
pub struct Activity {
    open: Cell<usize>,
    /// Something began since the last look.
    busy: Cell<bool>,
    given_up: Cell<u32>,
    /// When `given_up` began to be counted.
    since: Cell<Tick>,
}

impl Activity {
    /// A stream begins.
    pub fn enter(&self) {
        self.open.set(self.open.get() + 1);
        self.busy.set(true);
    }

    pub fn leave(&self) {
        self.open.set(self.open.get().saturating_sub(1));
    }

    /// The client gave a stream up before its response was over.
    pub fn count_given_up(&self, now: Tick) {
        if now.since(self.since.get()) >= PERIOD {
            self.since.set(now);
            self.given_up.set(0);
        }
        self.given_up.set(self.given_up.get() + 1);
    }

    /// Whether the client asks for more than it takes.
    fn is_wasteful(&self) -> bool {
        self.given_up.get() > GIVEN_UP
    }

    /// Whether the connection has had nothing to do for `keep_alive`.
    fn is_idle(&self, idle: &mut Deadline, keep_alive: Duration, cx: &mut Context<'_>) -> bool {
        if idle.poll_passed(cx).is_pending() {
            return false;
        }
        if self.open.get() == 0 && !self.busy.take() {
            return true;
        }
        // The next look counts from here: a connection goes after one to two times the limit.
        idle.reset(keep_alive);
        idle.poll_passed(cx).is_ready()
    }
}

/// Drives a connection until it ends. Each stream is given to `on_stream`, which says in `activity` that it began.
pub async fn drive(
    stream: ClientStream,
    server: &Builder,
    timing: Timing,
    activity: &Activity,
    deadlines: &Deadlines,
    mut drain: DrainWatch,
    mut on_stream: impl FnMut(Request<RecvStream>, SendResponse<Bytes>),
) {
    let cork = Cork::new(stream, deadlines, timing.header_timeout);
    // A client that never asks anything gets no more time than one that sends a head slowly.
    let mut idle = deadlines.deadline(timing.header_timeout);
    let Some(mut connection) = begin(&cork, server, &mut idle).await else { return };
    let mut ending = false;
    let last_pause = timing.keep_alive.max(Duration::from_secs(1));
    let goodbye = poll_fn(|cx| {
        if activity.is_wasteful() {
            connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
        }
        if !ending
            && (drain.poll_started(cx).is_ready() || activity.is_idle(&mut idle, timing.keep_alive, cx))
        {
            ending = true;
            idle.reset(last_pause);
            connection.graceful_shutdown();
        }
        let done = loop {
            match connection.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => on_stream(request, respond),
                Poll::Ready(Some(Err(_))) => break Some(false),
                Poll::Ready(None) => break Some(!activity.is_wasteful()),
                Poll::Pending => break None,
            }
        };
        // When the connection is done this sends its last frames; it cannot be waited for any longer then.
        match (cork.poll_drain(cx), done) {
            (Poll::Ready(Err(_)), _) => return Poll::Ready(false),
            (drained, Some(goodbye)) => return drained.map(|_| goodbye),
            _ => {}
        }
        if !ending {
            return Poll::Pending;
        }
        if activity.open.get() > 0 {
            idle.reset(last_pause);
        }
        // Told to go and with nothing under way, a client that stays silent is left.
        let silent = activity.open.get() == 0 && !drain.started();
        if silent && idle.poll_passed(cx).is_ready() { Poll::Ready(false) } else { Poll::Pending }
    })
    .await;
    // Who broke the rules is not waited for.
    if goodbye {
        cork.linger(deadlines).await;
    }
}

/// Exchanges the prefaces; `None` where that comes to nothing in time.
async fn begin(cork: &Cork, server: &Builder, patience: &mut Deadline) -> Option<Connection<Cork, Bytes>> {
    let mut handshake = pin!(server.handshake(cork.clone()));
    poll_fn(|cx| {
        let done = handshake.as_mut().poll(cx);
        let broken = matches!(cork.poll_drain(cx), Poll::Ready(Err(_)));
        if broken || patience.poll_passed(cx).is_ready() {
            return Poll::Ready(None);
        }
        done.map(Result::ok)
    })
    .await
}
