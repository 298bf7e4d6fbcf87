//! HTTP/2 with a client, on the h2 crate: a connection is driven by one task, each of its streams by another, all on
//! the connection's worker. Limits that the crate leaves open are set explicitly; an idle connection is sent away, a
//! stream whose client takes nothing is dropped.

mod connection;
mod request;
mod stream;

use std::rc::Rc;

use h2::server::Builder;

pub use connection::{Activity, Timing, drive};
pub use request::RequestBody;

use super::client_stream::ClientStream;
use super::service::{self, Service};
use crate::net::deadlines::Deadlines;
use crate::net::drain::DrainWatch;

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
    stream: ClientStream,
    service: Rc<S>,
    limits: Limits,
    deadlines: &Deadlines,
    drain: DrainWatch,
) {
    let service::Limits { header_timeout, keep_alive, .. } = service.limits();
    let timing = Timing { header_timeout, keep_alive };
    let server = limits.server(CONNECTION_WINDOW);
    let activity = Rc::new(Activity::default());
    let on_stream = |request, respond| {
        let open = OpenStream::enter(&activity, &service);
        // Boxed: the runtime moves what it is given several times, and this is kilobytes.
        tokio::task::spawn_local(Box::pin(stream::serve(open, request, respond, deadlines.clone())));
    };
    drive(stream, &server, timing, &activity, deadlines, drain, on_stream).await;
}

/// A stream that is being served, and by whom.
struct OpenStream<S: Service> {
    activity: Rc<Activity>,
    service: Rc<S>,
}

impl<S: Service> OpenStream<S> {
    fn enter(activity: &Rc<Activity>, service: &Rc<S>) -> Self {
        activity.enter();
        Self { activity: activity.clone(), service: service.clone() }
    }

    /// The client gave it up before its response was over.
    fn given_up(&self, deadlines: &Deadlines) {
        self.activity.count_given_up(deadlines.now());
    }
}

impl<S: Service> Drop for OpenStream<S> {
    fn drop(&mut self) {
        self.activity.leave();
        if std::thread::panicking() {
            self.service.panicked();
        }
    }
}
