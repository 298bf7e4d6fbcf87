//! The body of a request that came over HTTP/2. It breaks off when nothing of it comes for too long, and whenever
//! the client gives it up: half a body must never pass for a whole one.

use std::cell::Cell;
use std::rc::Rc;
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
    /// As long as that once the response has begun.
    longest_pause_answered: Duration,
    signals: Rc<Signals>,
}

/// What the two ways of a stream tell each other.
#[derive(Default)]
pub struct Signals {
    /// The response has moved since the body of the request looked. That counts for the request too, whose client may
    /// have to hear before it says more.
    pub answer_moved: Cell<bool>,
    /// Somebody waits for the body of the request.
    pub body_wanted: Cell<bool>,
    /// The body of the request was taken to its end.
    pub body_over: Cell<bool>,
}

impl RequestBody {
    /// The body that comes in `stream`, which has not ended with its head.
    pub fn wrap(
        stream: RecvStream,
        headers: &HeaderMap,
        deadlines: &Deadlines,
        longest_pause: Duration,
        signals: Rc<Signals>,
    ) -> Body {
        let left = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let pause = deadlines.deadline(longest_pause);
        Body::ClientHttp2(Box::new(Self {
            stream,
            left,
            data_ended: false,
            pause,
            longest_pause,
            longest_pause_answered: longest_pause,
            signals,
        }))
    }

    /// Lets the client pause for `pause` once the response has begun, if that is longer than it may before.
    pub fn allow_pause_answered(&mut self, pause: Duration) {
        self.longest_pause_answered = self.longest_pause.max(pause);
    }

    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Poll::Ready(frame) = self.poll_next(cx) {
            // An empty frame is no progress.
            if !matches!(&frame, Some(Ok(frame)) if frame.data_ref().is_some_and(Bytes::is_empty)) {
                self.pause.reset(self.longest_pause);
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(BodyError::ClientHttp2)));
        }
        self.signals.body_wanted.set(true);
        if self.signals.answer_moved.take() {
            self.longest_pause = self.longest_pause_answered;
            self.pause.reset(self.longest_pause);
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

impl Drop for RequestBody {
    fn drop(&mut self) {
        self.signals.body_over.set(self.stream.is_end_stream());
    }
}
