//! Gathers what HTTP/2 writes while its connection is polled, and sends it in one piece afterwards.
//!
//! The h2 crate writes and flushes each DATA frame of 256 bytes or more by itself: a TLS record and a system
//! call for every response. Under load seven responses fit one write.
//!
//! What comes in passes by the [`FloodWatch`], and a header block that does not come to its end in time ends the
//! connection: the h2 crate would wait for ever.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::client_stream::ClientStream;
use super::floods::FloodWatch;
use crate::net::deadlines::{Deadline, Deadlines};

/// As much as a TLS record holds.
const ROOM: usize = 16 * 1024;
/// Larger pieces go straight through when nothing is gathered: copying them would gain nothing.
const LARGE: usize = 8 * 1024;
/// How long a client may be silent after the goodbye, and how long it may take in all.
const SILENCE: Duration = Duration::from_secs(5);
const LINGER: Duration = Duration::from_secs(30);
/// How much it may send then: what it had room for.
const LAST_BYTES: usize = 1024 * 1024;

/// The stream as the HTTP/2 connection sees it. Clones are the same stream.
#[derive(Clone)]
pub struct Cork(Rc<RefCell<Corked>>);

struct Corked {
    stream: ClientStream,
    gathered: Vec<u8>,
    sent: usize,
    floods: FloodWatch,
    /// The header block whose end `patience` waits for.
    awaited: Option<u64>,
    patience: Deadline,
    header_timeout: Duration,
}

impl Cork {
    /// `header_timeout` is for a header block, from its first byte to its last.
    pub fn new(stream: ClientStream, deadlines: &Deadlines, header_timeout: Duration) -> Self {
        Self(Rc::new(RefCell::new(Corked {
            stream,
            gathered: Vec::new(),
            sent: 0,
            floods: FloodWatch::new(deadlines),
            awaited: None,
            patience: deadlines.deadline(header_timeout),
            header_timeout,
        })))
    }

    /// Sends what has gathered. To be called whenever the connection has been polled.
    pub fn poll_drain(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let corked = &mut *self.0.borrow_mut();
        ready!(corked.poll_send(cx))?;
        Pin::new(&mut corked.stream).poll_flush(cx)
    }

    /// After the goodbye: reads and drops what the client still sends, until it closes too. It makes room for the rest
    /// of its responses and answers pings; a connection that was closed at once would answer that with a reset, and what
    /// is under way to the client would be lost.
    pub async fn linger(&self, deadlines: &Deadlines) {
        let mut silence = deadlines.deadline(SILENCE);
        let mut patience = deadlines.deadline(LINGER);
        let mut buffer = vec![0; 4096];
        let mut left = LAST_BYTES;
        poll_fn(|cx| {
            loop {
                let mut room = ReadBuf::new(&mut buffer);
                let read = Pin::new(&mut self.0.borrow_mut().stream).poll_read(cx, &mut room);
                let length = room.filled().len();
                match read {
                    Poll::Ready(Ok(())) if (1..=left).contains(&length) => left -= length,
                    Poll::Ready(_) => return Poll::Ready(()),
                    Poll::Pending => break,
                }
                silence.reset(SILENCE);
            }
            match silence.poll_passed(cx) {
                Poll::Pending => patience.poll_passed(cx),
                passed => passed,
            }
        })
        .await;
    }
}

impl Corked {
    /// Reads, and watches what is read.
    fn poll_receive(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf)?;
        if read.is_ready() {
            let bytes = buf.filled().get(before..).unwrap_or_default();
            self.floods.see(bytes).map_err(io::Error::other)?;
        }
        let open = self.floods.open_block();
        if self.awaited != open {
            self.awaited = open;
            self.patience.reset(self.header_timeout);
        }
        if open.is_some() && self.patience.poll_passed(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        read.map(Ok)
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest @ [_, ..]) = self.gathered.get(self.sent..) {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                n => self.sent += n,
            }
        }
        self.gathered.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }

    fn poll_gather(&mut self, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if self.gathered.len() + length > ROOM {
            ready!(self.poll_send(cx))?;
        }
        if self.gathered.is_empty() && length >= LARGE {
            let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, parts))?;
            self.floods.pay(written);
            return Poll::Ready(Ok(written));
        }
        let before = self.gathered.len();
        for part in parts {
            let room = ROOM.saturating_sub(self.gathered.len()).min(part.len());
            self.gathered.extend_from_slice(part.get(..room).unwrap_or_default());
        }
        let taken = self.gathered.len() - before;
        self.floods.pay(taken);
        Poll::Ready(Ok(taken))
    }
}

impl AsyncRead for Cork {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().poll_receive(cx, buf)
    }
}

impl AsyncWrite for Cork {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().poll_gather(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().poll_gather(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Nothing: [`poll_drain`](Cork::poll_drain) does it, once for all.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.0.borrow_mut().stream).poll_shutdown(cx)
    }
}
