//! The body of a request that came over HTTP/2. It breaks off when nothing of it comes for too long, and whenever
//! the client gives it up: half a body must never pass for a whole one.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http_body::{Frame, SizeHint};

use crate::net::deadlines::{Deadline, Deadlines};
use crate::proxy::body::{Body, BodyError};
use crate::proxy::http1::RequestBodyError;

pub struct RequestBody {
    stream: RecvStream,
    /// What is still to come, where the client said how much there is; h2 holds it to its word.
    left: Option<u64>,
    data_ended: bool,
    pause: Deadline,
    longest_pause: Duration,
}

impl RequestBody {
    /// A request without a body becomes [`Body::Empty`], which can be sent again.
    pub fn wrap(
        stream: RecvStream,
        headers: &HeaderMap,
        deadlines: &Deadlines,
        longest_pause: Duration,
    ) -> Body {
        if stream.is_end_stream() {
            return Body::Empty;
        }
        let left = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let pause = deadlines.deadline(longest_pause);
        Body::Incoming(Box::new(Self { stream, left, data_ended: false, pause, longest_pause }))
    }

    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Poll::Ready(frame) = self.poll_next(cx) {
            // An empty frame is no progress.
            if !matches!(&frame, Some(Ok(frame)) if frame.data_ref().is_some_and(Bytes::is_empty)) {
                self.pause.reset(self.longest_pause);
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Client)));
        }
        ready!(self.pause.poll_passed(cx));
        Poll::Ready(Some(Err(RequestBodyError::TimedOut.into())))
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if !self.data_ended {
            match ready!(self.stream.poll_data(cx)) {
                Some(Ok(data)) => {
                    self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
                    // Whoever asks for more has room for this.
                    let released = self.stream.flow_control().release_capacity(data.len());
                    return Poll::Ready(Some(released.map(|()| Frame::data(data))));
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => self.data_ended = true,
            }
        }
        let trailers = ready!(self.stream.poll_trailers(cx)).transpose();
        Poll::Ready(trailers.map(|trailers| trailers.map(Frame::trailers)))
    }

    pub fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    pub fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
