//! The body of a request on its way to the backend: as much at a time as the backend has room for.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::SendStream;
use http::HeaderMap;
use http_body::{Body as _, Frame};

use crate::proxy::body::Body;
use crate::proxy::upstream::error::{Reason, UpstreamError};
use crate::proxy::upstream::http1::chunked::strip_trailers;
use crate::proxy::upstream::http1::{Pace, Wait};

/// Data of a request that h2 takes over ahead of the connection.
pub const SEND_BUFFER: usize = 64 * 1024;
/// The end of a body that is handed over without asking for room first, and so leaves with the head of a small request.
const LAST_PIECE: usize = 16 * 1024;

pub struct Upload {
    stream: SendStream<Bytes>,
    body: Body,
    /// Taken from the body and not handed over yet.
    data: Bytes,
    untouched: bool,
    /// All was handed over, or the backend takes no more. Why it does not, the response tells.
    over: bool,
}

impl Upload {
    /// A body that ends at once ended with the head.
    pub fn new(stream: SendStream<Bytes>, body: Body) -> Self {
        let over = body.is_end_stream();
        Self { stream, body, data: Bytes::new(), untouched: true, over }
    }

    /// Sends as much as can be sent now, and says what the exchange waits for then. Fails where the client breaks off.
    pub fn poll(&mut self, pace: &mut Pace, cx: &mut Context<'_>) -> Result<Wait, UpstreamError> {
        while !self.over {
            if self.data.is_empty() {
                let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
                    return Ok(Wait::Client);
                };
                self.untouched = false;
                let frame = frame.transpose().map_err(|error| {
                    self.over = true;
                    UpstreamError::new(Reason::ClientBody).caused_by(error)
                })?;
                self.take(frame);
            } else if self.poll_send(cx).is_pending() {
                return Ok(Wait::Send);
            }
            pace.moved = true;
        }
        Ok(Wait::Read)
    }

    /// The body, if it is still whole.
    pub fn into_unsent(self) -> Option<Body> {
        self.untouched.then_some(self.body)
    }

    fn take(&mut self, frame: Option<Frame<Bytes>>) {
        match frame.map(Frame::into_data) {
            Some(Ok(data)) if !data.is_empty() => self.data = data,
            Some(Ok(_)) if !self.body.is_end_stream() => {}
            Some(Err(frame)) if frame.is_trailers() => {
                self.end(frame.into_trailers().ok().unwrap_or_default());
            }
            Some(Err(_)) => {}
            _ => self.hand_over(Bytes::new(), true),
        }
    }

    fn end(&mut self, mut trailers: HeaderMap) {
        strip_trailers(&mut trailers);
        // What fails here is a stream that the backend has ended.
        let _ = self.stream.send_trailers(trailers);
        self.over = true;
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let last = self.body.is_end_stream();
        if last && self.data.len() <= LAST_PIECE {
            let data = mem::take(&mut self.data);
            self.hand_over(data, true);
            return Poll::Ready(());
        }
        self.stream.reserve_capacity(self.data.len().min(SEND_BUFFER));
        let room = match self.stream.capacity() {
            0 => ready!(self.poll_room(cx)),
            room => room,
        };
        let piece = self.data.split_to(room.min(self.data.len()));
        let last = last && self.data.is_empty();
        if piece.is_empty() {
            self.over = true;
        } else {
            self.hand_over(piece, last);
        }
        Poll::Ready(())
    }

    /// How much the backend has room for; nothing where it takes no more at all.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<usize> {
        loop {
            match ready!(self.stream.poll_capacity(cx)) {
                Some(Ok(0)) => {}
                Some(Ok(room)) => return Poll::Ready(room),
                Some(Err(_)) | None => return Poll::Ready(0),
            }
        }
    }

    fn hand_over(&mut self, data: Bytes, last: bool) {
        self.over = self.stream.send_data(data, last).is_err() || last;
    }
}
