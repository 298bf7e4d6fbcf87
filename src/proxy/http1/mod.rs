//! HTTP/1 with a client: one request at a time, read strictly, answered, until one side has enough.
//!
//! A server of our own, because strictness and speed both need one: hyper resolves ambiguous framing where a
//! gateway must refuse it, and its timers cost a system call a request (`docs/adr/0004-http1-server.md`). All
//! of a connection runs in one task without locks; deadlines are coarse and shared.

pub(crate) mod chunked;
mod connection;
pub(crate) mod head;
mod respond;

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Request, Response, Version};

use crate::net::deadlines::{Deadline, Deadlines};
use crate::net::drain::DrainWatch;
use crate::proxy::body::Body;
use crate::proxy::client_stream::ClientStream;
use crate::proxy::headers::takes_trailers;
use crate::proxy::service::{Limits, Service};
use crate::proxy::upstream::http1::Upgraded;
use connection::Connection;
pub use connection::{RequestBody, RequestBodyError};
use head::{Head, take_head};
pub use head::{HeadError, HeadLimits};
use respond::{Exchange, respond};

/// A request body that nobody read is read and dropped up to this size, so that the connection can go on.
const DISCARD: usize = 256 * 1024;
/// How long a client may go on sending after an answer that ends the connection.
const LINGER: Duration = Duration::from_secs(2);
/// A client that sends ahead is not read further than this while its request is being served.
const READ_AHEAD: usize = 16 * 1024;

/// When the worker goes away: how long an idle connection may still bring a request. Its answer is the last.
const LAST_REQUEST: Duration = Duration::from_secs(2);

/// Serves one connection until it ends.
pub async fn serve(
    stream: ClientStream,
    service: &impl Service,
    deadlines: &Deadlines,
    mut drain: DrainWatch,
) {
    let connection = Connection::new(stream, deadlines);
    let mut deadline = deadlines.deadline(Duration::ZERO);
    let mut first = true;
    loop {
        let limits = service.limits();
        let head = match next_head(&connection, &limits, first, &mut deadline, &mut drain).await {
            Ok(Some(head)) => head,
            Ok(None) => break,
            Err(error) => {
                let response = service.refuse(error, Version::HTTP_11);
                refuse(&connection, response, &limits, deadlines).await;
                linger(&connection, deadlines).await;
                break;
            }
        };
        first = false;
        match exchange(&connection, head, service, &limits, deadlines, &drain).await {
            Next::Request => {}
            Next::Linger => {
                linger(&connection, deadlines).await;
                break;
            }
            Next::Close => break,
            // Without a goodbye: the client must see that the answer is cut off.
            Next::Abort => return,
            Next::Upgrade(backend) => {
                if let Some((stream, read_ahead)) = connection.into_parts() {
                    service.upgraded(stream, read_ahead, *backend).await;
                }
                return;
            }
        }
    }
    // The client may be gone; then there is no one to say goodbye to.
    let _ = deadlines.timeout(LINGER, connection.shutdown()).await;
}

/// What follows an exchange.
enum Next {
    Request,
    Close,
    /// Close, but let the client finish sending first, or it may lose the answer.
    Linger,
    Abort,
    Upgrade(Box<Upgraded>),
}

/// Waits for a head. `None` where the connection should end without an answer.
async fn next_head(
    connection: &Rc<Connection>,
    limits: &Limits,
    first: bool,
    deadline: &mut Deadline,
    drain: &mut DrainWatch,
) -> Result<Option<Head>, HeadError> {
    let mut scanned = 0;
    let mut leaving = false;
    let mut started = connection.with_input(|input| !input.is_empty());
    deadline.reset(if started || first { limits.header_timeout } else { limits.keep_alive });
    loop {
        if let Some(head) = connection.with_input(|input| take_head(input, &mut scanned, limits.head))? {
            return Ok(Some(head));
        }
        let read = poll_fn(|cx| match connection.poll_read_head(cx) {
            Poll::Ready(read) => Poll::Ready(Some(read)),
            Poll::Pending if deadline.poll_passed(cx).is_ready() => Poll::Ready(None),
            // Closed at once, the connection could meet a request that is on its way and would be lost. A client
            // that has just connected is waited for as ever, one that keeps a connection for a moment.
            Poll::Pending if !started && !first && !leaving && drain.poll_started(cx).is_ready() => {
                leaving = true;
                deadline.reset(limits.keep_alive.min(LAST_REQUEST));
                deadline.poll_passed(cx).map(|()| None)
            }
            Poll::Pending => Poll::Pending,
        });
        match read.await {
            Some(Ok(n)) if n > 0 => {}
            _ => return Ok(None),
        }
        if !started {
            started = true;
            deadline.reset(limits.header_timeout);
        }
    }
}

/// One request and its answer.
async fn exchange(
    connection: &Rc<Connection>,
    head: Head,
    service: &impl Service,
    limits: &Limits,
    deadlines: &Deadlines,
    drain: &DrainWatch,
) -> Next {
    connection.expect_body(head.framing, head.expect_continue, limits.body_timeout);
    // What follows a CONNECT was meant for a tunnel, not for us (RFC 9110, section 9.3.6).
    let keep_alive = head.keep_alive && !limits.keep_alive.is_zero() && head.method != http::Method::CONNECT;
    // It may have sent the next request already.
    let goes_on = head.keep_alive;
    let trailers = takes_trailers(&head.headers);
    let mut exchange = Exchange { method: head.method.clone(), version: head.version, keep_alive, trailers };
    let upgrade = head.upgrade;

    let Some(response) = call(connection, request(connection, head), service).await else {
        return Next::Abort;
    };
    // A body that was not read must not be taken for the next request.
    let whole = connection.is_body_read() || discard_later(connection);
    exchange.keep_alive &= whole && !drain.started();
    let (parts, mut body) = response.into_parts();
    let upgraded = match &mut body {
        Body::Upgraded(_) if upgrade => match std::mem::take(&mut body) {
            Body::Upgraded(backend) => Some(backend),
            _ => None,
        },
        _ => None,
    };
    let responded = respond(connection, &exchange, (parts, body), deadlines, limits.body_timeout).await;
    connection.take_back_body();
    match responded {
        Err(_) => Next::Abort,
        Ok(_) if upgraded.is_some() => upgraded.map_or(Next::Close, Next::Upgrade),
        Ok(true) if connection.is_body_read() || discard(connection).await => Next::Request,
        Ok(_) if connection.is_body_read() && !goes_on => Next::Close,
        Ok(_) => Next::Linger,
    }
}

fn request(connection: &Rc<Connection>, head: Head) -> Request<Body> {
    let body = match connection.is_body_read() {
        true => Body::Empty,
        false => Body::ClientHttp1(connection.request_body()),
    };
    let mut request = Request::new(body);
    *request.method_mut() = head.method;
    *request.uri_mut() = head.target;
    *request.version_mut() = head.version;
    *request.headers_mut() = head.headers;
    request
}

/// Runs the service and watches the client meanwhile: `None` when it has gone, so that its request is dropped
/// and the backend need not finish it.
async fn call(
    connection: &Rc<Connection>,
    request: Request<Body>,
    service: &impl Service,
) -> Option<Response<Body>> {
    let mut call = pin!(service.call(request));
    poll_fn(|cx| {
        if let Poll::Ready(response) = call.as_mut().poll(cx) {
            return Poll::Ready(Some(response));
        }
        poll_left(connection, cx).map(|()| None)
    })
    .await
}

/// Ready when the client has left. What it sends ahead is kept for the next request, up to a limit.
fn poll_left(connection: &Connection, cx: &mut Context<'_>) -> Poll<()> {
    while connection.is_body_read() && connection.with_input(|input| input.len() < READ_AHEAD) {
        match ready!(connection.poll_read_head(cx)) {
            Ok(n) if n > 0 => {}
            _ => return Poll::Ready(()),
        }
    }
    Poll::Pending
}

/// Whether what is left of a request body is little enough, and on its way, to be read and dropped.
fn discard_later(connection: &Rc<Connection>) -> bool {
    let left = http_body::SizeHint::upper(&connection.request_body().size_hint());
    !connection.is_continue_owed()
        && !connection.is_body_broken()
        && left.is_none_or(|left| left <= DISCARD as u64)
}

/// Reads and drops the rest of a request body; `false` where it is too long or broken.
async fn discard(connection: &Rc<Connection>) -> bool {
    let mut dropped = 0;
    while !connection.is_body_read() {
        match poll_fn(|cx| connection.poll_body(cx)).await {
            Some(Ok(frame)) => dropped += frame.data_ref().map_or(0, |data| data.len()),
            Some(Err(_)) => return false,
            None => return true,
        }
        if dropped > DISCARD {
            return false;
        }
    }
    true
}

async fn refuse(
    connection: &Rc<Connection>,
    response: Response<Body>,
    limits: &Limits,
    deadlines: &Deadlines,
) {
    let exchange =
        Exchange { method: http::Method::GET, version: Version::HTTP_11, keep_alive: false, trailers: false };
    // The connection ends either way.
    let _ = respond(connection, &exchange, response.into_parts(), deadlines, limits.body_timeout).await;
}

/// Lets a client that is still sending see the answer: closing at once would make the kernel reset the
/// connection and the client drop what it has not read (RFC 9112, section 9.6).
async fn linger(connection: &Rc<Connection>, deadlines: &Deadlines) {
    let rest = async {
        connection.shutdown().await?;
        for _ in 0..64 {
            if poll_fn(|cx| connection.poll_read(cx, 16 * 1024)).await? == 0 {
                break;
            }
            connection.with_input(|input| input.clear());
        }
        io::Result::Ok(())
    };
    let _ = deadlines.timeout(LINGER, rest).await;
}

#[cfg(test)]
mod tests;
