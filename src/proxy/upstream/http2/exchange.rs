//! One request and its response. A single object owns both directions, and whoever waits for the response moves both;
//! when it is dropped, h2 resets a stream that is not over in either direction (CANCEL), so nothing of a request that
//! was given up stays behind.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use h2::client::ResponseFuture;
use http::header::CONTENT_LENGTH;
use http::uri::Scheme;
use http::{HeaderMap, Response};
use http_body::{Body as _, Frame, SizeHint};

use super::request::request_for;
use super::upload::Upload;
use super::{Lease, SendFailure};
use crate::proxy::body::Body;
use crate::proxy::upstream::Head;
use crate::proxy::upstream::error::{Reason, Retry, UpstreamError};
use crate::proxy::upstream::http1::chunked::strip_trailers;
use crate::proxy::upstream::http1::{MAX_INTERIM, Pace, Timing, Wait};

/// While a client takes nothing, pieces below this size are gathered: each costs h2 more than its bytes.
const SMALL_PIECE: usize = 4096;

/// Sends a request and waits for the head of its response.
pub async fn send(
    lease: Lease,
    head: Head<'_>,
    scheme: Scheme,
    body: Body,
    timing: Timing,
) -> Result<Response<Body>, SendFailure> {
    let Some(request) = request_for(head, scheme, &body) else {
        return Err(SendFailure { error: Reason::ClientHost.into(), unsent: Some(body) });
    };
    let (mut response, stream) = match lease.open(request, body.is_end_stream()) {
        Ok(opened) => opened,
        Err(error) => {
            return Err(SendFailure { error: explain(error).retry(Retry::Safe), unsent: Some(body) });
        }
    };
    let pace = Pace::new(lease.deadline(timing.read), timing.send, timing.read);
    let mut exchange = Exchange { upload: Upload::new(stream, body), pace, lease };
    let mut interim = 0;
    match poll_fn(|cx| exchange.poll_head(&mut response, &mut interim, cx)).await {
        Ok(response) => Ok(respond(exchange, response)),
        Err(error) => Err(SendFailure { error, unsent: exchange.upload.into_unsent() }),
    }
}

fn respond(exchange: Exchange, response: Response<RecvStream>) -> Response<Body> {
    let (parts, receive) = response.into_parts();
    let body = match receive.is_end_stream() {
        true => Body::Empty,
        false => Body::BackendHttp2(Box::new(ResponseBody::new(exchange, receive, &parts.headers))),
    };
    Response::from_parts(parts, body)
}

struct Exchange {
    upload: Upload,
    pace: Pace,
    lease: Lease,
}

impl Exchange {
    /// Waits for the head of the final response, skipping interim ones.
    fn poll_head(
        &mut self,
        response: &mut ResponseFuture,
        interim: &mut u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response<RecvStream>, UpstreamError>> {
        let wait = self.upload.poll(&mut self.pace, cx)?;
        while let Poll::Ready(Some(Ok(_))) = response.poll_informational(cx) {
            self.progress();
            *interim += 1;
            if *interim > MAX_INTERIM {
                return Poll::Ready(Err(Reason::InvalidResponse("too many interim responses").into()));
            }
        }
        if let Poll::Ready(head) = Pin::new(response).poll(cx) {
            self.progress();
            let began = *interim > 0;
            return Poll::Ready(head.map_err(|error| match explain(error) {
                error if began => error.retry(Retry::Never),
                error => error,
            }));
        }
        self.poll_late(wait, cx).map(Err)
    }

    /// Ready when neither direction has moved for too long.
    fn poll_late(&mut self, wait: Wait, cx: &mut Context<'_>) -> Poll<UpstreamError> {
        let late = ready!(self.pace.poll(wait, cx));
        // One that only takes nothing of an upload may be well.
        if wait == Wait::Read {
            self.lease.doubt();
        }
        Poll::Ready(late)
    }

    /// The backend sent something.
    fn progress(&mut self) {
        self.pace.moved = true;
        self.lease.heard();
    }
}

fn explain(error: h2::Error) -> UpstreamError {
    let retry = match error.reason() {
        // In both the backend promises that it did nothing (RFC 9113, section 8.7): the other streams of a connection that
        // it is about to close go on.
        Some(h2::Reason::REFUSED_STREAM) if error.is_remote() => Retry::Safe,
        Some(_) if error.is_remote() && error.is_go_away() => Retry::Safe,
        _ if error.is_go_away() || error.is_io() => Retry::IfIdempotent,
        _ => Retry::Never,
    };
    UpstreamError::new(Reason::Http2).caused_by(error).retry(retry)
}

/// The body of a response, and what is left of the request.
pub struct ResponseBody {
    exchange: Exchange,
    receive: RecvStream,
    /// What is still to come, where the backend said how much there is; h2 holds it to its word.
    left: Option<u64>,
    /// Gathered while the client took nothing. The backend gets room for it when it is taken.
    pub(super) gathered: BytesMut,
    data_ended: bool,
    /// What went wrong while the client took nothing.
    failure: Option<UpstreamError>,
}

impl ResponseBody {
    fn new(exchange: Exchange, receive: RecvStream, headers: &HeaderMap) -> Self {
        let left = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        Self { exchange, receive, left, gathered: BytesMut::new(), data_ended: false, failure: None }
    }

    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
        let exchange = &mut self.exchange;
        let wait = match self.failure.take() {
            Some(failure) => return Poll::Ready(Some(Err(failure))),
            None => exchange.upload.poll(&mut exchange.pace, cx)?,
        };
        if let Poll::Ready(frame) = self.poll_next(cx) {
            self.exchange.progress();
            return Poll::Ready(frame.map(|frame| frame.map_err(|error| explain(error).retry(Retry::Never))));
        }
        // An upload that goes on is life enough: the client of a stream in both directions may be the quiet one.
        self.exchange.poll_late(wait, cx).map(|late| Some(Err(late)))
    }

    /// Sends on what is left of the request while nobody takes the response.
    pub fn drive_upload(&mut self, cx: &mut Context<'_>) {
        let exchange = &mut self.exchange;
        if let Err(failure) = exchange.upload.poll(&mut exchange.pace, cx) {
            self.failure = Some(failure);
        }
        self.gather(cx);
    }

    pub fn is_end_stream(&self) -> bool {
        self.failure.is_none() && self.gathered.is_empty() && self.receive.is_end_stream()
    }

    pub fn size_hint(&self) -> SizeHint {
        match self.left {
            Some(left) => SizeHint::with_exact(left),
            None if self.is_end_stream() => SizeHint::with_exact(0),
            None => SizeHint::default(),
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if !self.gathered.is_empty() {
            let data = self.gathered.split().freeze();
            return Poll::Ready(Some(self.deliver(data)));
        }
        if !self.data_ended {
            match ready!(self.receive.poll_data(cx)) {
                Some(data) => return Poll::Ready(Some(data.and_then(|data| self.deliver(data)))),
                None => self.data_ended = true,
            }
        }
        let trailers = ready!(self.receive.poll_trailers(cx)).transpose();
        Poll::Ready(trailers.map(|trailers| {
            trailers.map(|mut trailers| {
                strip_trailers(&mut trailers);
                Frame::trailers(trailers)
            })
        }))
    }

    fn deliver(&mut self, data: Bytes) -> Result<Frame<Bytes>, h2::Error> {
        self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
        // Whoever asks for more has room for this.
        self.receive.flow_control().release_capacity(data.len())?;
        Ok(Frame::data(data))
    }

    fn gather(&mut self, cx: &mut Context<'_>) {
        while !self.data_ended && self.failure.is_none() {
            match self.receive.poll_data(cx) {
                Poll::Ready(Some(Ok(data))) => {
                    self.gathered.extend_from_slice(&data);
                    if data.len() >= SMALL_PIECE {
                        return;
                    }
                }
                Poll::Ready(Some(Err(error))) => {
                    self.failure = Some(explain(error).retry(Retry::Never));
                }
                Poll::Ready(None) => self.data_ended = true,
                Poll::Pending => return,
            }
        }
    }
}
