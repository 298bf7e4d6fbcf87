//! The one body type of the data plane, for requests and responses alike.
//!
//! `size_hint` and `is_end_stream` are exact wherever the length is known, so that hyper writes a Content-Length
//! or ends an HTTP/2 stream with the last data. Data is handed on as it was read, never copied.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;

use super::upstream::error::UpstreamError;
use super::upstream::http1::{self, Upgraded};
use super::upstream::http2;

/// A request or response body.
#[derive(Default)]
pub enum Body {
    #[default]
    Empty,
    Full(Bytes),
    /// From a client.
    Incoming(Incoming),
    /// The rest of a response of an HTTP/1.1 backend.
    Upstream(http1::ResponseBody),
    /// A response of an HTTP/2 backend.
    Http2(Box<http2::ResponseBody>),
    /// In place of the body of a 101: the connection to the backend. Whoever sends the 101 on takes it out.
    Upgraded(Box<Upgraded>),
}

/// Why a body broke off.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("client: {0}")]
    Client(#[source] hyper::Error),
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
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
}

impl From<Incoming> for Body {
    /// A request without a body becomes `Empty`, which can be sent again.
    fn from(body: Incoming) -> Self {
        if http_body::Body::is_end_stream(&body) { Self::Empty } else { Self::Incoming(body) }
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
            Self::Incoming(body) => Pin::new(body).poll_frame(cx).map_err(BodyError::Client),
            Self::Upstream(body) => body.poll_frame(cx).map_err(BodyError::Upstream),
            Self::Http2(body) => body.poll_frame(cx).map_err(BodyError::Upstream),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty | Self::Upgraded(_) => true,
            Self::Full(data) => data.is_empty(),
            Self::Incoming(body) => body.is_end_stream(),
            Self::Upstream(body) => body.is_end_stream(),
            Self::Http2(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty | Self::Upgraded(_) => SizeHint::with_exact(0),
            Self::Full(data) => SizeHint::with_exact(data.len() as u64),
            Self::Incoming(body) => body.size_hint(),
            Self::Upstream(body) => body.size_hint(),
            Self::Http2(body) => body.size_hint(),
        }
    }
}
