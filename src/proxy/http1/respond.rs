//! Writes a response to an HTTP/1 client (RFC 9112): one framing header, our own; head and first data in one
//! write; data passed on without a copy.

use std::future::poll_fn;
use std::io::{self, Write as _};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING};
use http::response::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Version};
use http_body::{Body as _, Frame};

use super::connection::Connection;
use super::poll_left;
use crate::net::deadlines::{Deadlines, Elapsed};
use crate::proxy::body::{Body, BodyError};
use crate::proxy::date;

/// What a response has to know of its request.
pub(super) struct Exchange {
    pub method: Method,
    pub version: Version,
    pub keep_alive: bool,
    /// The client said `TE: trailers`.
    pub trailers: bool,
}

/// Why a response was not sent whole; the connection is broken off, so that the client can tell.
#[derive(Debug, thiserror::Error)]
pub(super) enum RespondError {
    #[error("{0}")]
    Client(#[from] io::Error),
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error("the client took nothing of the response for too long")]
    TimedOut,
    #[error("the client has left")]
    Left,
}

impl From<Elapsed> for RespondError {
    fn from(_: Elapsed) -> Self {
        Self::TimedOut
    }
}

/// How the end of a response body is told to the client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Framing {
    None,
    Length,
    Chunked,
    Close,
}

/// Sends `response`. Returns whether the connection may take another request.
pub(super) async fn respond(
    connection: &Connection,
    exchange: &Exchange,
    (parts, body): (Parts, Body),
    deadlines: &Deadlines,
    longest_pause: Duration,
) -> Result<bool, RespondError> {
    let framing = framing(exchange, parts.status, &body);
    let client = Outlet { connection, deadlines, longest_pause };
    let sent = send(&client, exchange, framing, (parts, body)).await;
    // Where the end of the connection is the end of the body, it must not look like one.
    if sent.is_err() && framing == Framing::Close {
        connection.reset();
    }
    sent
}

async fn send(
    client: &Outlet<'_>,
    exchange: &Exchange,
    framing: Framing,
    (mut parts, mut body): (Parts, Body),
) -> Result<bool, RespondError> {
    let keep_alive = exchange.keep_alive && framing != Framing::Close;
    set_framing(&mut parts.headers, exchange, framing, &body);
    set_connection(&mut parts, exchange.version, keep_alive);
    let mut head = head(&parts);

    if framing != Framing::None {
        let mut ended = false;
        loop {
            let frame = match next_frame_now(&mut body).await {
                Some(frame) => frame,
                // Nothing there yet: what is here goes out before the wait.
                None => {
                    client.write(&mut body, &mut head, &Bytes::new()).await?;
                    client.flush(&mut body).await?;
                    client.next_frame(&mut body).await?
                }
            };
            let Some(frame) = frame.transpose()? else { break };
            match frame.into_data() {
                Ok(data) if data.is_empty() => {}
                Ok(data) if framing == Framing::Chunked => {
                    // Writing into a vector cannot fail.
                    let _ = write!(head, "{:x}\r\n", data.len());
                    client.write(&mut body, &mut head, &data).await?;
                    head.extend_from_slice(b"\r\n");
                }
                Ok(data) => client.write(&mut body, &mut head, &data).await?,
                Err(frame) if framing == Framing::Chunked && exchange.trailers => {
                    head.extend_from_slice(b"0\r\n");
                    write_fields(&mut head, frame.trailers_ref().unwrap_or(&HeaderMap::new()));
                    head.extend_from_slice(b"\r\n");
                    ended = true;
                }
                // A client that did not say it understands trailers does without (RFC 9110, section 6.5.1).
                Err(_) => {}
            }
        }
        if framing == Framing::Chunked && !ended {
            head.extend_from_slice(b"0\r\n\r\n");
        }
    }
    client.write(&mut body, &mut head, &Bytes::new()).await?;
    client.flush(&mut body).await?;
    Ok(keep_alive)
}

/// RFC 9112, section 6.3, from the sender's side.
fn framing(exchange: &Exchange, status: StatusCode, body: &Body) -> Framing {
    let bodiless = exchange.method == Method::HEAD
        || status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    match body.size_hint().exact() {
        _ if bodiless => Framing::None,
        Some(_) => Framing::Length,
        None if exchange.version == Version::HTTP_11 => Framing::Chunked,
        None => Framing::Close,
    }
}

fn set_framing(headers: &mut HeaderMap, exchange: &Exchange, framing: Framing, body: &Body) {
    headers.remove(TRANSFER_ENCODING);
    match framing {
        Framing::Length => {
            let length = body.size_hint().exact().unwrap_or_default();
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        Framing::Chunked => {
            headers.remove(CONTENT_LENGTH);
            headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        Framing::Close => drop(headers.remove(CONTENT_LENGTH)),
        // What a GET would have got is for HEAD and 304 to say; nothing else has a length.
        Framing::None if exchange.method == Method::HEAD => {}
        Framing::None => drop(headers.remove(CONTENT_LENGTH)),
    }
}

fn set_connection(parts: &mut Parts, version: Version, keep_alive: bool) {
    if parts.status == StatusCode::SWITCHING_PROTOCOLS {
        parts.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    } else if !keep_alive {
        parts.headers.insert(CONNECTION, HeaderValue::from_static("close"));
    } else if version == Version::HTTP_10 {
        parts.headers.insert(CONNECTION, HeaderValue::from_static("keep-alive"));
    }
}

fn head(parts: &Parts) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(parts.status.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(parts.status.canonical_reason().unwrap_or("").as_bytes());
    out.extend_from_slice(b"\r\n");
    write_fields(&mut out, &parts.headers);
    if !parts.headers.contains_key(DATE) {
        out.extend_from_slice(b"date: ");
        out.extend_from_slice(date::now().as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
    out
}

fn write_fields(out: &mut Vec<u8>, headers: &HeaderMap) {
    for (name, value) in headers {
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}

/// A frame that is there already, or `None`.
async fn next_frame_now(body: &mut Body) -> Option<Option<Result<Frame<Bytes>, BodyError>>> {
    poll_fn(|cx| match Pin::new(&mut *body).poll_frame(cx) {
        Poll::Ready(frame) => Poll::Ready(Some(frame)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// The way to the client. Each wait for it has an end, and the request goes on to the backend meanwhile.
struct Outlet<'a> {
    connection: &'a Connection,
    deadlines: &'a Deadlines,
    longest_pause: Duration,
}

impl Outlet<'_> {
    /// Waits for the backend, unless the client leaves.
    async fn next_frame(
        &self,
        body: &mut Body,
    ) -> Result<Option<Result<Frame<Bytes>, BodyError>>, RespondError> {
        poll_fn(|cx| match Pin::new(&mut *body).poll_frame(cx) {
            Poll::Ready(frame) => Poll::Ready(Ok(frame)),
            Poll::Pending => poll_left(self.connection, cx).map(|()| Err(RespondError::Left)),
        })
        .await
    }

    /// Writes what has gathered in `head`, then `data`; leaves `head` empty.
    async fn write(&self, body: &mut Body, head: &mut Vec<u8>, data: &Bytes) -> Result<(), RespondError> {
        if !head.is_empty() || !data.is_empty() {
            self.wait(body, self.connection.write(head, data)).await?;
            self.connection.answer_moved();
            head.clear();
        }
        Ok(())
    }

    async fn flush(&self, body: &mut Body) -> Result<(), RespondError> {
        self.wait(body, self.connection.flush()).await
    }

    async fn wait(
        &self,
        body: &mut Body,
        step: impl Future<Output = io::Result<()>>,
    ) -> Result<(), RespondError> {
        let mut step = pin!(step);
        let step = poll_fn(|cx| {
            let done = step.as_mut().poll(cx);
            if done.is_pending() {
                body.drive_upload(cx);
            }
            done
        });
        Ok(self.deadlines.timeout(self.longest_pause, step).await??)
    }
}
