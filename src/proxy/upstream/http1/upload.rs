//! Sends a request: the head together with the first of the body, then the rest as the client delivers it.
//!
//! It is polled by whoever waits for the response, so that both directions flow at once and a backend that
//! answers early is heard.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as _, Frame};

use super::chunked::may_trail;
use super::output::Output;
use super::request::{Framing, field};
use crate::proxy::body::Body;
use crate::proxy::upstream::error::{Reason, Retry, UpstreamError};
use crate::proxy::upstream::stream::Stream;

pub struct Upload {
    body: Body,
    framing: Framing,
    state: State,
    /// Whether the head was held back once for the sake of the body.
    held: bool,
}

/// What the upload is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The client, for more of the body.
    Client,
    /// The backend, to take what there is.
    Backend,
    /// Nothing: all is written.
    Done,
    /// Nothing: it failed, and the connection with it.
    Failed,
}

impl Upload {
    pub fn new(body: Body, framing: Framing) -> Self {
        Self { body, framing, state: State::Backend, held: false }
    }

    pub fn state(&self) -> State {
        self.state
    }

    /// Sends as much as can be sent now; ready with the end of the request. `output` has its head in it.
    pub fn poll(
        &mut self,
        output: &mut Output,
        stream: &mut Stream,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), UpstreamError>> {
        if matches!(self.state, State::Done | State::Failed) {
            return Poll::Ready(Ok(()));
        }
        let sent = self.poll_send(output, stream, cx);
        match &sent {
            Poll::Ready(Ok(())) => self.state = State::Done,
            Poll::Ready(Err(_)) => self.state = State::Failed,
            Poll::Pending => {}
        }
        sent
    }

    fn poll_send(
        &mut self,
        output: &mut Output,
        stream: &mut Stream,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), UpstreamError>> {
        loop {
            let waits_for_client = self.wants_body()
                && output.takes_data()
                && match Pin::new(&mut self.body).poll_frame(cx) {
                    Poll::Ready(frame) => {
                        self.take(frame.transpose().map_err(client_error)?, output)?;
                        false
                    }
                    Poll::Pending => true,
                };
            if waits_for_client && !self.held {
                // Asking made the server read; a small body is here at the next look and goes out with the head.
                self.held = true;
                self.state = State::Client;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            match output.poll_write(stream, cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => {
                    // Not one byte was taken: the backend cannot have seen a request.
                    let retry = if output.sent == 0 { Retry::Safe } else { Retry::IfIdempotent };
                    return Poll::Ready(Err(UpstreamError::new(Reason::SendFailed)
                        .caused_by(error)
                        .retry(retry)));
                }
                Poll::Pending => {
                    self.state = State::Backend;
                    return Poll::Pending;
                }
            }
            if waits_for_client {
                self.state = State::Client;
                return Poll::Pending;
            }
            if !self.wants_body() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    fn wants_body(&self) -> bool {
        !matches!(self.framing, Framing::None | Framing::Length(0))
    }

    fn take(&mut self, frame: Option<Frame<Bytes>>, output: &mut Output) -> Result<(), UpstreamError> {
        match (frame.map(Frame::into_data), self.framing) {
            (Some(Ok(data)), Framing::Length(left)) => {
                let left = left.checked_sub(data.len() as u64).ok_or(Reason::ClientBody)?;
                self.framing = Framing::Length(left);
                output.data = data;
            }
            (None, Framing::Length(_)) => return Err(Reason::ClientBody.into()),
            (Some(Ok(data)), Framing::Chunked) if !data.is_empty() => {
                output.head.extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
                output.data = data;
                output.tail = b"\r\n";
            }
            (Some(Err(frame)), Framing::Chunked) if frame.is_trailers() => {
                self.end_chunks(frame.into_trailers().ok(), output);
            }
            (None, Framing::Chunked) => self.end_chunks(None, output),
            // An empty slice would end a chunked body. Trailers have no place after a Content-Length.
            _ => {}
        }
        Ok(())
    }

    fn end_chunks(&mut self, trailers: Option<HeaderMap>, output: &mut Output) {
        output.head.extend_from_slice(b"0\r\n");
        for (name, value) in trailers.iter().flatten() {
            if may_trail(name) {
                field(&mut output.head, name.as_str(), value.as_bytes());
            }
        }
        output.head.extend_from_slice(b"\r\n");
        self.framing = Framing::None;
    }
}

fn client_error(error: crate::proxy::body::BodyError) -> UpstreamError {
    UpstreamError::new(Reason::ClientBody).caused_by(error)
}
