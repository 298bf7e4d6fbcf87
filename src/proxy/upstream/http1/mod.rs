//! HTTP/1.1 towards backends: one request at a time on a connection, in the task of whoever asks.
//!
//! No task and no channel stands between the caller and the socket: [`send`] writes at once, reads when there is
//! something, and hands the body on in slices of the read buffer. Invariant: a connection is used again only when
//! its last response ended where we know it ended and nothing came after it.

mod body;
pub(super) mod chunked;
mod exchange;
mod output;
mod request;
mod response;
#[cfg(test)]
mod tests;
mod upload;

use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::{Response, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Head;
use super::error::{Reason, UpstreamError};
use super::pool::{Check, Stack};
use super::stream::Stream;
use crate::net::deadlines::Deadlines;
use crate::proxy::body::Body;
use crate::proxy::guards::Guard;
use crate::proxy::limiter::Slot;
use body::Decoder;
pub use body::ResponseBody;
use chunked::ChunkDecoder;
use exchange::Exchange;
pub(super) use exchange::{MAX_INTERIM, Pace, Wait};
use output::Output;
use response::{Framing, HeadReader, ResponseHead};
use upload::{State, Upload};

/// Big enough for 40 cookies of 4 KB.
const MAX_HEAD: usize = 256 * 1024;
const MAX_FIELDS: usize = 256;
const FIRST_READ: usize = 8 * 1024;
/// Below the size from which the C allocator maps and unmaps each buffer.
const MAX_READ: usize = 120 * 1024;

/// A connection that speaks HTTP/1.1.
pub struct Connection {
    stream: Stream,
    input: BytesMut,
    /// How much to make room for: grows with what comes in.
    read_size: usize,
    output: Output,
}

/// The timeouts of an exchange.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    pub send: Duration,
    pub read: Duration,
}

impl Connection {
    pub fn new(stream: Stream) -> Self {
        Self { stream, input: BytesMut::new(), read_size: FIRST_READ, output: Output::default() }
    }

    /// The address that it leads to.
    pub fn peer(&self) -> Option<IpAddr> {
        self.stream.peer()
    }

    /// Whether nothing has happened on an idle connection.
    pub fn is_quiet(&mut self, check: Check) -> bool {
        match check {
            Check::Cheap => self.stream.is_quiet(),
            Check::Thorough => self.stream.is_quiet_now(),
        }
    }

    /// Gives up the buffers of a connection that has been idle for a while.
    pub fn shrink(&mut self) {
        self.input = BytesMut::new();
        self.output = Output::default();
    }

    /// Prepares to be idle: the buffers stay, for the next request may be near, but no big ones.
    fn rest(&mut self) {
        self.output.reset();
        if self.read_size > FIRST_READ {
            self.input = BytesMut::new();
            self.read_size = FIRST_READ;
        }
    }
}

/// Sends a request and waits for the head of its response. The connection goes to `home` with the last byte of
/// the body. Dropping the future or the body closes the connection.
///
/// A 101 is given only to a request with an `Upgrade` field, with [`Body::Upgraded`] as its body. Errors say
/// whether the request may be sent again.
pub async fn send(
    mut connection: Box<Connection>,
    home: Rc<Stack>,
    request: Head<'_>,
    body: Body,
    timing: Timing,
    deadlines: &Deadlines,
) -> Result<Response<Body>, UpstreamError> {
    let framing = request::Framing::of(&body);
    connection.output.reset();
    request::encode(request, framing, &mut connection.output.head);
    let mut exchange = Exchange {
        connection,
        upload: Upload::new(body, framing),
        pace: Pace::new(deadlines.deadline(timing.read), timing.send, timing.read),
        home,
        send_error: None,
    };
    let (mut reader, mut interim) = (HeadReader::default(), 0);
    let head = poll_fn(|cx| exchange.poll_head(&mut reader, &mut interim, &request.parts.method, cx)).await?;
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        let asked = request::asks_for_upgrade(&request.parts.headers);
        return upgrade(exchange, head, asked, timing.read);
    }
    Ok(respond(exchange, head))
}

fn respond(mut exchange: Exchange, head: ResponseHead) -> Response<Body> {
    let ResponseHead { status, headers, framing, keep_alive } = head;
    let input = &mut exchange.connection.input;
    let body = match framing {
        Framing::Empty => {
            exchange.finish(keep_alive);
            Body::Empty
        }
        Framing::Length(length) => match usize::try_from(length) {
            Ok(length) if length <= input.len() => {
                let data = input.split_to(length).freeze();
                exchange.finish(keep_alive);
                Body::Full(data)
            }
            _ => Body::BackendHttp1(ResponseBody::new(exchange, Decoder::Length(length), keep_alive)),
        },
        Framing::Chunked => {
            let decoder = Decoder::Chunked(ChunkDecoder::default());
            Body::BackendHttp1(ResponseBody::new(exchange, decoder, keep_alive))
        }
        Framing::Close => Body::BackendHttp1(ResponseBody::new(exchange, Decoder::Close, false)),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

fn upgrade(
    exchange: Exchange,
    head: ResponseHead,
    asked: bool,
    idle: Duration,
) -> Result<Response<Body>, UpstreamError> {
    if !asked {
        return Err(Reason::InvalidResponse("unexpected 101").into());
    }
    if exchange.upload.state() != State::Done {
        return Err(Reason::InvalidResponse("101 before the end of the request").into());
    }
    let Connection { stream, input, .. } = *exchange.connection;
    let upgraded = Upgraded { stream, leftover: input.freeze(), idle, guard: None, slot: None };
    let mut response = Response::new(Body::Upgraded(Box::new(upgraded)));
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    Ok(response)
}

/// A connection to a backend that speaks something else now. What the backend sent along with its 101 is read
/// first.
pub struct Upgraded {
    stream: Stream,
    leftover: Bytes,
    /// How long neither side may say anything: the timeout for reading of the route.
    pub idle: Duration,
    /// Ends the tunnel when policy does.
    pub guard: Option<Guard>,
    /// The place of the request among those of its client, as long as the tunnel is there.
    pub slot: Option<Slot>,
}

impl Upgraded {
    /// The stream, and what has been read from it already.
    pub fn into_parts(self) -> (Stream, Bytes) {
        (self.stream, self.leftover)
    }
}

impl AsyncRead for Upgraded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.leftover.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        let length = self.leftover.len().min(buffer.remaining());
        buffer.put_slice(self.leftover.get(..length).unwrap_or_default());
        self.leftover.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Upgraded {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
