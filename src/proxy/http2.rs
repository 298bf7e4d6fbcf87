//! HTTP/2 with a client, on the h2 crate: a connection is driven by one task, each of its streams by another, all on
//! the connection's worker. Limits that the crate leaves open are set explicitly; an idle connection is sent away, a
//! stream whose client takes nothing is dropped.

mod request;
mod stream;

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, Connection};

pub use request::RequestBody;

use super::cork::Cork;
use super::http1::Service;
use crate::net::deadlines::{Deadline, Deadlines};
use crate::net::drain::DrainWatch;
use crate::net::stream::Stream;

/// Flow control of what clients send: a stream may have this much in flight.
const STREAM_WINDOW: u32 = 256 * 1024;
/// Of all request bodies of a connection, so that one slow upload cannot hold up the others.
const CONNECTION_WINDOW: u32 = 4 * STREAM_WINDOW;
/// Response data that h2 takes over ahead of a client's flow control, for each stream.
const SEND_BUFFER: usize = 64 * 1024;
/// Streams that the client resets before they were looked at (CVE-2023-44487), and that we reset because of
/// what the client did (CVE-2025-8671), before the connection ends.
const PENDING_RESETS: usize = 20;
const LOCAL_RESETS: usize = 100;

/// How much one connection may ask for, as the settings say when it begins.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub streams: u32,
    pub header_bytes: u32,
}

impl Limits {
    /// How connections are taken under these limits, with this window for all streams of one together, in bytes.
    pub fn server(&self, connection_window: u32) -> Builder {
        let mut builder = Builder::new();
        builder
            .max_concurrent_streams(self.streams)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(connection_window)
            .max_header_list_size(self.header_bytes)
            .max_send_buffer_size(SEND_BUFFER)
            .max_pending_accept_reset_streams(PENDING_RESETS)
            .max_local_error_reset_streams(Some(LOCAL_RESETS));
        builder
    }
}

/// Serves one connection until it ends.
pub async fn serve<S: Service + 'static>(
    stream: Stream,
    service: Rc<S>,
    limits: Limits,
    deadlines: &Deadlines,
    mut drain: DrainWatch,
) {
    let timing = service.limits();
    let cork = Cork::new(stream, deadlines);
    // A client that never asks anything gets no more time than one that sends a head slowly.
    let mut idle = deadlines.deadline(timing.header_timeout);
    let Some(mut connection) = begin(&cork, &limits.server(CONNECTION_WINDOW), &mut idle).await else {
        return;
    };
    let activity = Rc::new(Activity::default());
    let mut ending = false;
    poll_fn(|cx| {
        if !ending
            && (drain.poll_started(cx).is_ready() || is_idle(&mut idle, &activity, timing.keep_alive, cx))
        {
            ending = true;
            idle.reset(timing.keep_alive.max(Duration::from_secs(1)));
            connection.graceful_shutdown();
        }
        let mut done = false;
        while let Poll::Ready(next) = connection.poll_accept(cx) {
            match next {
                Some(Ok((request, respond))) => {
                    let open = OpenStream::enter(&activity, &service);
                    // Boxed: the runtime moves what it is given several times, and this is kilobytes.
                    let stream = Box::pin(stream::serve(open, request, respond, deadlines.clone()));
                    tokio::task::spawn_local(stream);
                }
                Some(Err(_)) | None => {
                    done = true;
                    break;
                }
            }
        }
        // When the connection is done this sends its last frames; it cannot be waited for any longer then.
        match cork.poll_drain(cx) {
            Poll::Ready(Err(_)) => return Poll::Ready(()),
            drained if done => return drained.map(|_| ()),
            _ => {}
        }
        // Told to go and with nothing under way, a client that stays silent is left.
        if ending && activity.open.get() == 0 && !drain.started() && idle.poll_passed(cx).is_ready() {
            return Poll::Ready(());
        }
        Poll::Pending
    })
    .await;
}

/// Exchanges the prefaces; `None` where that comes to nothing in time.
pub async fn begin(
    cork: &Cork,
    server: &Builder,
    patience: &mut Deadline,
) -> Option<Connection<Cork, Bytes>> {
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

/// Whether the connection has had nothing to do for `keep_alive`.
fn is_idle(idle: &mut Deadline, activity: &Activity, keep_alive: Duration, cx: &mut Context<'_>) -> bool {
    if idle.poll_passed(cx).is_pending() {
        return false;
    }
    if activity.open.get() == 0 && !activity.busy.take() {
        return true;
    }
    // The next look counts from here: a connection goes after one to two times the limit.
    idle.reset(keep_alive);
    idle.poll_passed(cx).is_ready()
}

/// What is going on on one connection.
#[derive(Default)]
struct Activity {
    open: Cell<usize>,
    /// Something began since the last look.
    busy: Cell<bool>,
}

/// A stream that is being served, and by whom.
struct OpenStream<S: Service> {
    activity: Rc<Activity>,
    service: Rc<S>,
}

impl<S: Service> OpenStream<S> {
    fn enter(activity: &Rc<Activity>, service: &Rc<S>) -> Self {
        activity.open.set(activity.open.get() + 1);
        activity.busy.set(true);
        Self { activity: activity.clone(), service: service.clone() }
    }
}

impl<S: Service> Drop for OpenStream<S> {
    fn drop(&mut self) {
        self.activity.open.set(self.activity.open.get().saturating_sub(1));
        if std::thread::panicking() {
            self.service.panicked();
        }
    }
}
