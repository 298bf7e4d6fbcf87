//! HTTP/2 with a client, on hyper: each stream is a task of the connection's worker. Limits that hyper leaves
//! open are set explicitly; an idle connection is sent away, a stream whose client takes nothing is dropped.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use pin_project_lite::pin_project;

use super::body::Streamed;
use super::cork::Cork;
use super::deadlines::{Deadline, Deadlines};
use super::http1::Service;
use crate::net::drain::DrainWatch;
use crate::net::stream::Stream;

/// Flow control of request bodies: a stream may have this much in flight, a connection four streams' worth,
/// so that one slow upload cannot hold up the others.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// Response data that hyper takes over ahead of a client's flow control, for each stream.
pub(super) const SEND_BUFFER: usize = 64 * 1024;
/// Streams that the client resets before they were looked at (CVE-2023-44487), and that we reset because of
/// what the client did (CVE-2025-8671), before the connection ends.
pub(super) const PENDING_RESETS: usize = 20;
pub(super) const LOCAL_RESETS: usize = 100;

/// How much one connection may ask for, as the settings say when it begins.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub streams: u32,
    pub header_bytes: u32,
}

/// Serves one connection until it ends.
pub async fn serve<S: Service + 'static>(
    stream: Stream,
    service: Rc<S>,
    limits: Limits,
    deadlines: &Deadlines,
    mut drain: DrainWatch,
) {
    let activity = Rc::new(Activity::default());
    let cork = Cork::new(stream, deadlines);
    let executor = StreamExecutor { activity: activity.clone(), deadlines: deadlines.clone() };
    let timing = service.limits();
    let call = service_fn({
        let (activity, service, deadlines) = (activity.clone(), service.clone(), deadlines.clone());
        move |request: http::Request<Incoming>| {
            let state = activity.begin(timing.body_timeout);
            let service = service.clone();
            let request = request.map(|body| Streamed::wrap(body, &deadlines, timing.body_timeout));
            // Boxed: hyper and the runtime move a stream's future several times before it runs, and this one
            // is kilobytes.
            Box::pin(async move {
                let response = service.call(request).await;
                state.sending.set(true);
                Ok::<_, Infallible>(response)
            })
        }
    });
    let mut connection = pin!(
        http2::Builder::new(executor)
            .max_concurrent_streams(limits.streams)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(limits.header_bytes)
            .max_send_buf_size(SEND_BUFFER)
            .max_pending_accept_reset_streams(PENDING_RESETS)
            .max_local_error_reset_streams(LOCAL_RESETS)
            .serve_connection(TokioIo::new(cork.clone()), call)
    );

    // A client that never asks anything gets no more time than one that sends a head slowly.
    let mut idle = deadlines.deadline(timing.header_timeout);
    let mut ending = false;
    poll_fn(|cx| {
        if !ending
            && (drain.poll_started(cx).is_ready() || is_idle(&mut idle, &activity, timing.keep_alive, cx))
        {
            ending = true;
            idle.reset(timing.keep_alive.max(Duration::from_secs(1)));
            connection.as_mut().graceful_shutdown();
        }
        let done = connection.as_mut().poll(cx);
        // When the connection is done this sends its last frames; it cannot be waited for any longer then.
        match cork.poll_drain(cx) {
            Poll::Ready(Err(_)) => return Poll::Ready(()),
            drained if done.is_ready() => return drained.map(|_| ()),
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
    /// The stream that was just begun, on its way from the service to the executor.
    begun: RefCell<Option<Rc<StreamState>>>,
}

impl Activity {
    /// hyper calls the service and then hands the stream's future to the executor, with nothing in between.
    fn begin(&self, longest_pause: Duration) -> Rc<StreamState> {
        let state = Rc::new(StreamState { sending: Cell::new(false), longest_pause });
        *self.begun.borrow_mut() = Some(state.clone());
        self.busy.set(true);
        state
    }
}

struct StreamState {
    /// The response is on its way: from here on it is the client that keeps the stream waiting.
    sending: Cell<bool>,
    longest_pause: Duration,
}

/// Runs streams on this worker.
#[derive(Clone)]
struct StreamExecutor {
    activity: Rc<Activity>,
    deadlines: Deadlines,
}

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for StreamExecutor {
    fn execute(&self, future: F) {
        let state = self.activity.begun.borrow_mut().take();
        self.activity.open.set(self.activity.open.get() + 1);
        let open = OpenStream(self.activity.clone());
        let stall = self.deadlines.deadline(Duration::MAX);
        tokio::task::spawn_local(StreamTask { future, state, stall, _open: open });
    }
}

struct OpenStream(Rc<Activity>);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get().saturating_sub(1));
    }
}

pin_project! {
    /// One stream; dropping it resets the stream.
    struct StreamTask<F> {
        #[pin]
        future: F,
        state: Option<Rc<StreamState>>,
        stall: Deadline,
        _open: OpenStream,
    }
}

impl<F: Future<Output = ()>> Future for StreamTask<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        let sending = |state: &&mut Option<Rc<StreamState>>| state.as_ref().is_some_and(|s| s.sending.get());
        let stalled = sending(&this.state) && this.stall.poll_passed(cx).is_ready();
        if this.future.poll(cx).is_ready() || stalled {
            return Poll::Ready(());
        }
        if let Some(state) = this.state.as_ref().filter(|state| state.sending.get()) {
            this.stall.reset(state.longest_pause);
            return this.stall.poll_passed(cx);
        }
        Poll::Pending
    }
}
