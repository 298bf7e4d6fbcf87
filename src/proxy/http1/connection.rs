//! The stream of one HTTP/1 client with its buffers. The server loop and the body of the request in progress
//! share it: both run in the connection's own task, so a cell is all they need.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use tokio::io::AsyncWrite;
use tokio_util::io::poll_read_buf;

use super::chunked::{ChunkDecoder, Piece};
use super::head::Framing;
use crate::net::deadlines::{Deadline, Deadlines};
use crate::proxy::client_stream::ClientStream;

/// Bytes that one read makes room for: enough for any ordinary head, and more while a body streams in.
const READ_HEAD: usize = 8 * 1024;
const READ_BODY: usize = 64 * 1024;

/// What the server loop and the request body share.
pub(super) struct Connection {
    io: RefCell<Io>,
    body: RefCell<BodyState>,
    /// `100 Continue` is owed before the body can come.
    continue_owed: Cell<bool>,
    /// Counts the requests, so that the body of one is never taken for that of another.
    exchange: Cell<u64>,
}

struct Io {
    stream: ClientStream,
    input: BytesMut,
    eof: bool,
}

/// The body of the request in progress.
struct BodyState {
    decoder: Decoder,
    pause: Deadline,
    longest_pause: Duration,
    /// As long as that once the response has begun.
    longest_pause_answered: Duration,
}

enum Decoder {
    Length(u64),
    Chunked(ChunkDecoder),
    Broken,
}

/// The body of a request that came over HTTP/1. Whoever keeps it beyond the answer gets no more of it.
pub struct RequestBody {
    connection: Rc<Connection>,
    exchange: u64,
}

/// Why the body of a request could not be read to its end.
#[derive(Debug, thiserror::Error)]
pub enum RequestBodyError {
    #[error("the client closed the connection inside the body")]
    Closed,
    #[error("{0}")]
    Io(#[source] io::Error),
    #[error("the chunked coding of the body is malformed")]
    Chunk,
    #[error("the client sent nothing of the body for too long")]
    TimedOut,
}

impl Connection {
    pub fn new(stream: ClientStream, deadlines: &Deadlines) -> Rc<Self> {
        let io = Io { stream, input: BytesMut::new(), eof: false };
        let body = BodyState {
            decoder: Decoder::Length(0),
            pause: deadlines.deadline(Duration::ZERO),
            longest_pause: Duration::ZERO,
            longest_pause_answered: Duration::ZERO,
        };
        Rc::new(Self {
            io: RefCell::new(io),
            body: RefCell::new(body),
            continue_owed: Cell::new(false),
            exchange: Cell::new(0),
        })
    }

    /// Runs `read` on what was read and not used yet.
    pub fn with_input<T>(&self, read: impl FnOnce(&mut BytesMut) -> T) -> T {
        read(&mut self.io.borrow_mut().input)
    }

    /// Reads more; 0 is the end.
    pub fn poll_read(&self, cx: &mut Context<'_>, room: usize) -> Poll<io::Result<usize>> {
        self.io.borrow_mut().poll_read(cx, room)
    }

    /// Reads more of a head; 0 is the end.
    pub fn poll_read_head(&self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.poll_read(cx, READ_HEAD)
    }

    /// Writes all of `parts`, gathering them where the stream can.
    pub async fn write(&self, head: &[u8], data: &[u8]) -> io::Result<()> {
        let mut written = 0;
        while written < head.len() + data.len() {
            let first = head.get(written..).unwrap_or_default();
            let second = data.get(written.saturating_sub(head.len())..).unwrap_or_default();
            let slices = [IoSlice::new(first), IoSlice::new(second)];
            let slices = if first.is_empty() { &slices[1..] } else { &slices[..] };
            let step =
                poll_fn(|cx| Pin::new(&mut self.io.borrow_mut().stream).poll_write_vectored(cx, slices));
            match step.await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                n => written += n,
            }
        }
        Ok(())
    }

    pub async fn flush(&self) -> io::Result<()> {
        poll_fn(|cx| Pin::new(&mut self.io.borrow_mut().stream).poll_flush(cx)).await
    }

    pub async fn shutdown(&self) -> io::Result<()> {
        poll_fn(|cx| Pin::new(&mut self.io.borrow_mut().stream).poll_shutdown(cx)).await
    }

    /// Makes the end of the connection a reset, which nobody takes for a regular end.
    pub fn reset(&self) {
        self.io.borrow().stream.reset_at_end();
    }

    /// Sets the connection up for the body of a request.
    pub fn expect_body(self: &Rc<Self>, framing: Framing, expect_continue: bool, longest_pause: Duration) {
        let mut body = self.body.borrow_mut();
        body.decoder = match framing {
            Framing::Length(length) => Decoder::Length(length),
            Framing::Chunked => Decoder::Chunked(ChunkDecoder::new()),
        };
        body.longest_pause = longest_pause;
        body.longest_pause_answered = longest_pause;
        let pending = !body.decoder.is_end();
        if pending {
            body.pause.reset(longest_pause);
        }
        self.continue_owed.set(expect_continue && pending);
    }

    /// The body as a stream, for whoever takes the request on.
    pub fn request_body(self: &Rc<Self>) -> RequestBody {
        RequestBody { connection: self.clone(), exchange: self.exchange.get() }
    }

    /// Ends the exchange for whoever still has its body: what is left of that is the server's alone.
    pub fn take_back_body(&self) {
        self.exchange.set(self.exchange.get().wrapping_add(1));
    }

    /// The whole body of the request has been read.
    pub fn is_body_read(&self) -> bool {
        self.body.borrow().decoder.is_end()
    }

    /// Where the next request begins can no longer be told.
    pub fn is_body_broken(&self) -> bool {
        matches!(self.body.borrow().decoder, Decoder::Broken)
    }

    /// The response goes on: that counts for the request too, whose client may have to hear before it says more.
    pub fn answer_moved(&self) {
        let body = &mut *self.body.borrow_mut();
        if !body.decoder.is_end() {
            body.longest_pause = body.longest_pause_answered;
            body.pause.reset(body.longest_pause);
        }
    }

    /// Whether the client still holds the body back, waiting for `100 Continue`.
    pub fn is_continue_owed(&self) -> bool {
        self.continue_owed.get()
    }

    /// Takes the stream and the bytes read ahead, when the protocol changes.
    pub fn into_parts(self: Rc<Self>) -> Option<(ClientStream, BytesMut)> {
        let io = Rc::into_inner(self)?.io.into_inner();
        Some((io.stream, io.input))
    }

    /// The next frame of the body of the request in progress.
    pub fn poll_body(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        let frame = self.poll_body_frame(cx);
        if let Poll::Ready(Some(Err(_))) = &frame {
            self.body.borrow_mut().decoder = Decoder::Broken;
        }
        frame
    }

    fn poll_body_frame(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        let mut body = self.body.borrow_mut();
        let mut io = self.io.borrow_mut();
        if self.continue_owed.get() {
            ready!(io.poll_send_continue(cx)).map_err(RequestBodyError::Io)?;
            self.continue_owed.set(false);
        }
        loop {
            match body.decoder.decode(&mut io.input) {
                Ok(Step::Frame(frame)) => return Poll::Ready(Some(Ok(frame))),
                Ok(Step::End) => return Poll::Ready(None),
                Err(error) => return Poll::Ready(Some(Err(error))),
                Ok(Step::More) => {}
            }
            match io.poll_read(cx, READ_BODY) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Some(Err(RequestBodyError::Closed))),
                Poll::Ready(Ok(_)) => {
                    let pause = body.longest_pause;
                    body.pause.reset(pause);
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(RequestBodyError::Io(error)))),
                Poll::Pending => {
                    ready!(body.pause.poll_passed(cx));
                    return Poll::Ready(Some(Err(RequestBodyError::TimedOut)));
                }
            }
        }
    }
}

impl Io {
    fn poll_read(&mut self, cx: &mut Context<'_>, room: usize) -> Poll<io::Result<usize>> {
        if self.eof {
            return Poll::Ready(Ok(0));
        }
        self.input.reserve(room);
        let read = ready!(poll_read_buf(Pin::new(&mut self.stream), cx, &mut self.input))?;
        self.eof = read == 0;
        Poll::Ready(Ok(read))
    }

    fn poll_send_continue(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
        // Nothing else is being written before the body was asked for: the socket takes 25 bytes whole.
        match ready!(Pin::new(&mut self.stream).poll_write(cx, CONTINUE))? {
            n if n == CONTINUE.len() => Pin::new(&mut self.stream).poll_flush(cx),
            _ => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
        }
    }
}

enum Step {
    Frame(Frame<Bytes>),
    More,
    End,
}

impl Decoder {
    fn decode(&mut self, input: &mut BytesMut) -> Result<Step, RequestBodyError> {
        match self {
            Self::Length(0) => Ok(Step::End),
            Self::Length(_) if input.is_empty() => Ok(Step::More),
            Self::Length(left) => {
                let take = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                *left -= take as u64;
                Ok(Step::Frame(Frame::data(input.split_to(take).freeze())))
            }
            Self::Chunked(decoder) => match decoder.decode(input) {
                Ok(Some(Piece::Data(data))) => Ok(Step::Frame(Frame::data(data))),
                Ok(Some(Piece::Trailers(trailers))) => Ok(Step::Frame(Frame::trailers(trailers))),
                Ok(Some(Piece::End)) => Ok(Step::End),
                Ok(None) => Ok(Step::More),
                Err(_) => Err(RequestBodyError::Chunk),
            },
            Self::Broken => Err(RequestBodyError::Closed),
        }
    }

    fn is_end(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(decoder) => decoder.is_end(),
            Self::Broken => false,
        }
    }
}

impl RequestBody {
    /// Lets the client pause for `pause` once the response has begun, if that is longer than it may before.
    pub fn allow_pause_answered(&mut self, pause: Duration) {
        let body = &mut *self.connection.body.borrow_mut();
        body.longest_pause_answered = body.longest_pause.max(pause);
    }

    pub fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        match self.is_current() {
            true => self.connection.poll_body(cx),
            false => Poll::Ready(Some(Err(RequestBodyError::Closed))),
        }
    }

    pub fn is_end_stream(&self) -> bool {
        self.is_current() && self.connection.is_body_read()
    }

    pub fn size_hint(&self) -> SizeHint {
        match self.connection.body.borrow().decoder {
            Decoder::Length(left) if self.is_current() => SizeHint::with_exact(left),
            _ => SizeHint::default(),
        }
    }

    fn is_current(&self) -> bool {
        self.connection.exchange.get() == self.exchange
    }
}
