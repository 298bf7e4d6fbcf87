//! One stream: its request goes to the service, the response to the client as fast as the client takes it. The
//! client may give up at any moment, and its request goes on to the backend while it takes nothing of the response.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::header::{CONTENT_LENGTH, DATE, EXPECT, Entry};
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::{Body as _, Frame};

use super::request::{RequestBody, Signals};
use super::{OpenStream, SEND_BUFFER};
use crate::net::deadlines::{Deadline, Deadlines};
use crate::proxy::body::{Body, BodyError};
use crate::proxy::date;
use crate::proxy::http1::HeadError;
use crate::proxy::service::Service;

/// Who takes less than this at a time, for as long as a client may pause, takes nothing.
const PROGRESS: usize = 1024;

/// How long a client may go on sending after the whole answer.
const LINGER: Duration = Duration::from_secs(2);

/// Why a stream ended early.
enum Ended {
    /// The client reset it, or the connection is gone.
    ByClient,
    /// The client took nothing for too long.
    Stalled,
    /// The rest of the response never came.
    Broken(Box<BodyError>),
}

impl From<h2::Error> for Ended {
    fn from(_: h2::Error) -> Self {
        Self::ByClient
    }
}

/// Serves one stream to its end. Dropping it resets the stream.
pub async fn serve<S: Service>(
    open: OpenStream<S>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    deadlines: Deadlines,
) {
    let longest_pause = open.service.limits().body_timeout;
    let bodiless = *request.method() == Method::HEAD;
    let (head, body) = request.into_parts();
    let signals = (!body.is_end_stream()).then(Rc::<Signals>::default);
    let body = match &signals {
        Some(signals) => RequestBody::wrap(body, &head.headers, &deadlines, longest_pause, signals.clone()),
        // Which can be sent again.
        None => Body::Empty,
    };
    let answered = match settle_empty(body).await {
        Ok(body) => {
            let request = Request::from_parts(head, body);
            call(&*open.service, request, &mut respond, signals.as_deref()).await
        }
        Err(BodyError::ClientHttp1(_)) => Some(open.service.refuse(HeadError::Unended, Version::HTTP_2)),
        // h2 has reset the stream.
        Err(_) => return,
    };
    let Some(response) = answered else { return open.given_up(&deadlines) };
    let (head, body) = finish_head(response, bodiless);
    let ends = matches!(body, Body::Empty);
    let Ok(mut stream) = respond.send_response(head, ends) else {
        respond.send_reset(Reason::INTERNAL_ERROR);
        return open.given_up(&deadlines);
    };
    if ends {
        return linger(&mut stream, signals.as_deref(), &deadlines).await;
    }
    let stall = deadlines.deadline(longest_pause);
    let mut outlet = Outlet { stream, body, stall, longest_pause, signals };
    outlet.moved();
    match outlet.send_body().await {
        Ok(()) => {
            // Its record ends here.
            outlet.body = Body::Empty;
            linger(&mut outlet.stream, outlet.signals.as_deref(), &deadlines).await;
        }
        Err(Ended::ByClient) => open.given_up(&deadlines),
        Err(Ended::Stalled) => outlet.stream.send_reset(Reason::CANCEL),
        Err(Ended::Broken(error)) => {
            tracing::debug!(%error, "response broken off");
            outlet.stream.send_reset(Reason::INTERNAL_ERROR);
        }
    }
}

/// Runs the service; `None` where the client gives the stream up meanwhile.
async fn call<S: Service>(
    service: &S,
    request: Request<Body>,
    respond: &mut SendResponse<Bytes>,
    signals: Option<&Signals>,
) -> Option<Response<Body>> {
    // What a client waits for that does not send its body before it is told to.
    let mut awaited = match request.headers().get(EXPECT) {
        Some(value) if value.as_bytes().eq_ignore_ascii_case(b"100-continue") => signals,
        Some(_) => return Some(service.refuse(HeadError::Expect, Version::HTTP_2)),
        None => None,
    };
    let mut call = pin!(service.call(request));
    poll_fn(|cx| {
        if let Poll::Ready(response) = call.as_mut().poll(cx) {
            return Poll::Ready(Some(response));
        }
        if awaited.take_if(|signals| signals.body_wanted.get()).is_some() {
            let mut go_on = Response::new(());
            *go_on.status_mut() = StatusCode::CONTINUE;
            // Fails only where the stream is over, which the next line tells.
            let _ = respond.send_informational(go_on);
        }
        respond.poll_reset(cx).map(|_| None)
    })
    .await
}

/// Lets a client that is still sending see the answer. The end of this task resets the stream, which makes some clients
/// drop an answer that they have not taken yet.
async fn linger(stream: &mut SendStream<Bytes>, signals: Option<&Signals>, deadlines: &Deadlines) {
    if signals.is_some_and(|signals| !signals.body_over.get()) {
        let gone = poll_fn(|cx| stream.poll_reset(cx));
        // Whether it went or not: it had its time.
        let _ = deadlines.timeout(LINGER, gone).await;
    }
}

/// Waits for the end of a body that the client says is empty: whatever it sends instead is an error, and known to be
/// one before anything is forwarded.
async fn settle_empty(body: Body) -> Result<Body, BodyError> {
    match body {
        Body::ClientHttp2(mut body) if body.size_hint().exact() == Some(0) => {
            while poll_fn(|cx| body.poll_frame(cx)).await.transpose()?.is_some() {}
            Ok(Body::Empty)
        }
        body => Ok(body),
    }
}

/// The head as it is sent, and a body that is `Empty` where the stream ends with the head.
fn finish_head(response: Response<Body>, bodiless: bool) -> (Response<()>, Body) {
    let (mut parts, mut body) = response.into_parts();
    let bodiless = bodiless || matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if let Some(length @ 1..) = body.size_hint().exact()
        && let Entry::Vacant(entry) = parts.headers.entry(CONTENT_LENGTH)
    {
        entry.insert(HeaderValue::from(length));
    }
    if let Entry::Vacant(entry) = parts.headers.entry(DATE) {
        entry.insert(date::now());
    }
    if bodiless || body.is_end_stream() {
        body = Body::Empty;
    }
    (Response::from_parts(parts, ()), body)
}

/// The way of a response body to the client.
struct Outlet {
    stream: SendStream<Bytes>,
    body: Body,
    stall: Deadline,
    longest_pause: Duration,
    /// `None` where the request had no body.
    signals: Option<Rc<Signals>>,
}

impl Outlet {
    async fn send_body(&mut self) -> Result<(), Ended> {
        while let Some(frame) = self.next_frame().await? {
            match frame.into_data() {
                // Nothing to send; it may have ended the body, which the next look shows.
                Ok(data) if data.is_empty() => {}
                Ok(data) => {
                    let last = self.body.is_end_stream();
                    self.send(data, last).await?;
                    if last {
                        return Ok(());
                    }
                }
                Err(frame) => {
                    if let Ok(trailers) = frame.into_trailers() {
                        self.stream.send_trailers(trailers)?;
                    }
                    return Ok(());
                }
            }
        }
        Ok(self.stream.send_data(Bytes::new(), true)?)
    }

    async fn next_frame(&mut self) -> Result<Option<Frame<Bytes>>, Ended> {
        let frame = poll_fn(|cx| match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(frame) => Poll::Ready(Ok(frame)),
            Poll::Pending => self.stream.poll_reset(cx).map(|_| Err(Ended::ByClient)),
        });
        frame.await?.transpose().map_err(|error| Ended::Broken(Box::new(error)))
    }

    /// Sends `data`, of which h2 takes over no more than the client has room for: what it holds has no deadline.
    async fn send(&mut self, mut data: Bytes, last: bool) -> Result<(), Ended> {
        self.stall.reset(self.longest_pause);
        let mut taken = 0;
        while !data.is_empty() {
            self.stream.reserve_capacity(data.len().min(SEND_BUFFER));
            let room = match self.stream.capacity() {
                0 => self.room().await?,
                room => room,
            };
            let piece = data.split_to(room.min(data.len()));
            taken += piece.len();
            if taken >= PROGRESS {
                self.stall.reset(self.longest_pause);
                taken = 0;
            }
            self.stream.send_data(piece, last && data.is_empty())?;
            self.moved();
        }
        Ok(())
    }

    /// Tells the body of the request that the response goes on.
    fn moved(&self) {
        if let Some(signals) = &self.signals {
            signals.answer_moved.set(true);
        }
    }

    /// Waits until the client has room.
    async fn room(&mut self) -> Result<usize, Ended> {
        poll_fn(|cx| {
            loop {
                match self.stream.poll_capacity(cx) {
                    Poll::Ready(Some(Ok(0))) => {}
                    Poll::Ready(Some(room)) => return Poll::Ready(Ok(room?)),
                    Poll::Ready(None) => return Poll::Ready(Err(Ended::ByClient)),
                    Poll::Pending => break,
                }
            }
            self.body.drive_upload(cx);
            self.stall.poll_passed(cx).map(|()| Err(Ended::Stalled))
        })
        .await
    }
}
