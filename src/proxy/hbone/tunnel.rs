//! Passes bytes between an HTTP/2 stream and a TCP connection, both ways, each side closing in its own time.
//!
//! Neither side is read while the other takes nothing: what a client sends keeps its flow-control window until the
//! workload has it, and what a workload sends is read only when all before it has found room in the client's window.
//! A tunnel at rest holds no buffer. How one side breaks off is told to the other: RST_STREAM here, RST there
//! (RFC 9113, section 8.5).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use h2::{Reason, RecvStream, SendStream};
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;

/// How much is read from a workload at a time.
const CHUNK: usize = 16 * 1024;

/// A tunnel that is open.
pub struct Tunnel {
    backend: TcpStream,
    upload: Upload,
    download: Download,
    /// Bytes went either way since the last look.
    moved: bool,
}

/// Why a tunnel ended before both sides had closed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    Client,
    Backend,
    Policy,
    Silence,
}

impl Cut {
    /// A word for the access log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client_closed",
            Self::Backend => "upstream_closed",
            Self::Policy => "policy_changed",
            Self::Silence => "idle",
        }
    }
}

/// From the client to the workload.
struct Upload {
    stream: RecvStream,
    /// Taken from the stream and not written yet.
    data: Bytes,
    state: State,
    bytes: u64,
}

/// From the workload to the client.
struct Download {
    stream: SendStream<Bytes>,
    /// Read and not sent yet.
    data: BytesMut,
    state: State,
    bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// Nothing more comes.
    Closing,
    Closed,
}

impl Tunnel {
    pub fn new(receive: RecvStream, send: SendStream<Bytes>, backend: TcpStream) -> Self {
        let upload = Upload { stream: receive, data: Bytes::new(), state: State::Open, bytes: 0 };
        let download = Download { stream: send, data: BytesMut::new(), state: State::Open, bytes: 0 };
        Self { backend, upload, download, moved: false }
    }

    /// Ready when both sides have closed.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cut>> {
        let before = (self.upload.bytes, self.download.bytes);
        let up = self.upload.poll(cx, &mut self.backend)?;
        let down = self.download.poll(cx, &mut self.backend)?;
        self.moved |= before != (self.upload.bytes, self.download.bytes);
        if up.is_ready() && down.is_ready() {
            return Poll::Ready(Ok(()));
        }
        match self.download.stream.poll_reset(cx) {
            Poll::Ready(_) => Poll::Ready(Err(Cut::Client)),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Whether bytes went either way since the last call.
    pub fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    /// Bytes that the workload got.
    pub fn received(&self) -> u64 {
        self.upload.bytes
    }

    /// Bytes that the client was sent.
    pub fn sent(&self) -> u64 {
        self.download.bytes
    }

    /// Ends it so that nobody takes it for a regular end.
    pub fn cut(mut self, cut: Cut) {
        match cut {
            Cut::Client => {}
            Cut::Backend => self.download.stream.send_reset(Reason::CONNECT_ERROR),
            Cut::Policy | Cut::Silence => self.download.stream.send_reset(Reason::CANCEL),
        }
        // Without it the workload is told of an end by the closing of the connection alone.
        let _ = self.backend.set_zero_linger();
    }
}

impl Upload {
    fn poll(&mut self, cx: &mut Context<'_>, backend: &mut TcpStream) -> Poll<Result<(), Cut>> {
        loop {
            if self.data.has_remaining() {
                let written = ready!(Pin::new(&mut *backend).poll_write(cx, &self.data));
                let written = written.map_err(|_| Cut::Backend)?;
                self.data.advance(written);
                self.bytes += written as u64;
                // Fails only where the stream is over, which the next read tells.
                let _ = self.stream.flow_control().release_capacity(written);
                continue;
            }
            match self.state {
                State::Closed => return Poll::Ready(Ok(())),
                State::Closing => {
                    ready!(Pin::new(&mut *backend).poll_shutdown(cx)).map_err(|_| Cut::Backend)?;
                    self.state = State::Closed;
                }
                State::Open => match ready!(self.stream.poll_data(cx)) {
                    Some(Ok(data)) => self.data = data,
                    Some(Err(_)) => return Poll::Ready(Err(Cut::Client)),
                    None => self.state = State::Closing,
                },
            }
        }
    }
}

impl Download {
    fn poll(&mut self, cx: &mut Context<'_>, backend: &mut TcpStream) -> Poll<Result<(), Cut>> {
        loop {
            if !self.data.is_empty() {
                let room = ready!(self.poll_room(cx))?;
                let part = self.data.split_to(room.min(self.data.len())).freeze();
                self.bytes += part.len() as u64;
                self.stream.send_data(part, false).map_err(|_| Cut::Client)?;
                continue;
            }
            match self.state {
                State::Closed => return Poll::Ready(Ok(())),
                State::Closing => {
                    self.stream.send_data(Bytes::new(), true).map_err(|_| Cut::Client)?;
                    self.state = State::Closed;
                }
                State::Open => {
                    self.data = BytesMut::new();
                    ready!(backend.poll_read_ready(cx)).map_err(|_| Cut::Backend)?;
                    self.data.reserve(CHUNK);
                    match backend.try_read_buf(&mut self.data) {
                        Ok(0) => self.state = State::Closing,
                        Ok(_) => {}
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Err(_) => return Poll::Ready(Err(Cut::Backend)),
                    }
                }
            }
        }
    }

    /// How much the client has room for. Room is asked for only while there is something to send: it comes out of
    /// what the tunnels of a connection share.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, Cut>> {
        self.stream.reserve_capacity(self.data.len());
        loop {
            match self.stream.capacity() {
                0 => match ready!(self.stream.poll_capacity(cx)) {
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return Poll::Ready(Err(Cut::Client)),
                },
                room => return Poll::Ready(Ok(room)),
            }
        }
    }
}
