//! The one body type of the data plane, for requests and responses alike.
//!
//! `size_hint` and `is_end_stream` are exact wherever the length is known, so that a Content-Length is written
//! and an HTTP/2 stream ends with its last data. Data is handed on as it was read, never copied.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::http1::{RequestBody, RequestBodyError};
use super::http2;
use super::record::Record;
use super::upstream::error::{Reason, UpstreamError};
use super::upstream::http1::{self, Upgraded};
use super::upstream::http2::ResponseBody;

/// What a response is recorded as that its client did not wait for, or did not take.
const CLIENT_CLOSED: &str = "client_closed";

/// A request or response body.
#[derive(Default)]
pub enum Body {
    #[default]
    Empty,
    Full(Bytes),
    ClientHttp1(RequestBody),
    ClientHttp2(Box<http2::RequestBody>),
    BackendHttp1(http1::ResponseBody),
    BackendHttp2(Box<ResponseBody>),
    /// In place of the body of a 101: the connection to the backend. Whoever sends the 101 on takes it out.
    Upgraded(Box<Upgraded>),
    Limited(Box<Limited>),
    Recorded(Box<Recorded>),
}

/// A body of unknown length: it is counted, and breaks off when it turns out to be larger than allowed.
pub struct Limited {
    body: Body,
    limit: Option<u64>,
    taken: Rc<Cell<u64>>,
}

/// A response body that carries the record of its request to its end.
pub struct Recorded {
    body: Body,
    record: Record,
    /// Nothing more is to come, or it was recorded why not.
    ended: bool,
}

/// Why a body broke off.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("client: {0}")]
    ClientHttp2(#[source] h2::Error),
    #[error("client: {0}")]
    ClientHttp1(#[from] RequestBodyError),
    #[error("the body is larger than allowed")]
    TooLarge,
    #[error("policy denies the connection now")]
    Denied,
    #[error(transparent)]
    Backend(#[from] UpstreamError),
}

impl Limited {
    /// `body` under `limit`, and how much of it has come.
    pub fn wrap(body: Body, limit: Option<u64>) -> (Body, Rc<Cell<u64>>) {
        let taken = Rc::<Cell<u64>>::default();
        (Body::Limited(Box::new(Self { body, limit, taken: taken.clone() })), taken)
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = ready!(http_body::Body::poll_frame(Pin::new(&mut self.body), cx));
        if let Some(Ok(frame)) = &frame {
            let length = frame.data_ref().map_or(0, Bytes::len) as u64;
            self.taken.set(self.taken.get().saturating_add(length));
            if self.limit.is_some_and(|limit| self.taken.get() > limit) {
                return Poll::Ready(Some(Err(BodyError::TooLarge)));
            }
        }
        Poll::Ready(frame)
    }
}

impl Recorded {
    /// A tunnel has no body: its record ends with the head.
    pub fn wrap(body: Body, record: Record) -> Body {
        match body {
            Body::Upgraded(_) => body,
            body => {
                let ended = record.is_without_body();
                Body::Recorded(Box::new(Self { body, record, ended }))
            }
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.record.guard.as_ref().is_some_and(|guard| guard.poll_denied(cx).is_ready()) {
            self.body = Body::Empty;
            return Poll::Ready(Some(Err(self.broken(BodyError::Denied))));
        }
        match ready!(http_body::Body::poll_frame(Pin::new(&mut self.body), cx)) {
            Some(Ok(frame)) => {
                self.record.sent += frame.data_ref().map_or(0, Bytes::len) as u64;
                self.ended |= frame.is_trailers();
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => Poll::Ready(Some(Err(self.broken(error)))),
            None => {
                self.ended = true;
                Poll::Ready(None)
            }
        }
    }

    fn broken(&mut self, error: BodyError) -> BodyError {
        self.ended = true;
        self.record.set_broken(error.name());
        error
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        if !self.ended && !http_body::Body::is_end_stream(&self.body) {
            self.record.set_broken(CLIENT_CLOSED);
        }
    }
}

impl BodyError {
    /// A word for the access log.
    fn name(&self) -> &'static str {
        match self {
            Self::ClientHttp2(_) | Self::ClientHttp1(_) => CLIENT_CLOSED,
            Self::TooLarge => "body_too_large",
            Self::Denied => Reason::PolicyChanged.name(),
            Self::Backend(error) => error.reason.name(),
        }
    }
}

impl Body {
    /// A body that can be sent again, if this one can: nothing of it must have been read.
    pub fn replay(&self) -> Option<Self> {
        match self {
            Self::Empty => Some(Self::Empty),
            Self::Full(data) => Some(Self::Full(data.clone())),
            _ => None,
        }
    }

    /// For the body of a request: lets its client pause for `pause` once the response has begun, where it may not pause
    /// as long before.
    pub fn allow_pause_answered(&mut self, pause: Duration) {
        match self {
            Self::ClientHttp1(body) => body.allow_pause_answered(pause),
            Self::ClientHttp2(body) => body.allow_pause_answered(pause),
            Self::Limited(limited) => limited.body.allow_pause_answered(pause),
            _ => {}
        }
    }

    /// Sends on what is left of the request that this is the response to. To be called while the response waits for
    /// its client, who may want to send everything before it looks.
    pub fn drive_upload(&mut self, cx: &mut Context<'_>) {
        match self {
            Self::BackendHttp1(body) => body.drive_upload(cx),
            Self::BackendHttp2(body) => body.drive_upload(cx),
            Self::Recorded(recorded) => recorded.body.drive_upload(cx),
            _ => {}
        }
    }
}

impl From<Bytes> for Body {
    fn from(data: Bytes) -> Self {
        if data.is_empty() { Self::Empty } else { Self::Full(data) }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut *self {
            Self::Empty | Self::Upgraded(_) => Poll::Ready(None),
            Self::Full(data) => {
                let data = std::mem::take(data);
                *self = Self::Empty;
                Poll::Ready((!data.is_empty()).then(|| Ok(Frame::data(data))))
            }
            Self::ClientHttp1(body) => body.poll_frame(cx).map_err(BodyError::ClientHttp1),
            Self::ClientHttp2(body) => body.poll_frame(cx),
            Self::Limited(body) => body.poll_frame(cx),
            Self::Recorded(body) => body.poll_frame(cx),
            Self::BackendHttp1(body) => body.poll_frame(cx).map_err(BodyError::Backend),
            Self::BackendHttp2(body) => body.poll_frame(cx).map_err(BodyError::Backend),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty | Self::Upgraded(_) => true,
            Self::Full(data) => data.is_empty(),
            Self::ClientHttp1(body) => body.is_end_stream(),
            Self::ClientHttp2(body) => body.is_end_stream(),
            Self::Limited(limited) => limited.body.is_end_stream(),
            Self::Recorded(recorded) => recorded.body.is_end_stream(),
            Self::BackendHttp1(body) => body.is_end_stream(),
            Self::BackendHttp2(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty | Self::Upgraded(_) => SizeHint::with_exact(0),
            Self::Full(data) => SizeHint::with_exact(data.len() as u64),
            Self::ClientHttp1(body) => body.size_hint(),
            Self::ClientHttp2(body) => body.size_hint(),
            Self::Limited(body) => body.body.size_hint(),
            Self::Recorded(body) => body.body.size_hint(),
            Self::BackendHttp1(body) => body.size_hint(),
            Self::BackendHttp2(body) => body.size_hint(),
        }
    }
}
