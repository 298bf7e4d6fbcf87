//! What is to be written next: a head (or chunk size), one slice of the body as it came, and the end of a chunk.
//! Written with one call where the socket takes it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::AsyncWrite;

use crate::proxy::upstream::stream::Stream;

/// A buffer for heads that grew beyond this is not kept.
const MAX_KEPT: usize = 16 * 1024;

#[derive(Default)]
pub struct Output {
    pub head: Vec<u8>,
    written: usize,
    pub data: Bytes,
    pub tail: &'static [u8],
    /// Bytes of this request that the connection took.
    pub sent: u64,
}

impl Output {
    /// Ready for the next request.
    pub fn reset(&mut self) {
        if self.head.capacity() > MAX_KEPT {
            self.head = Vec::new();
        }
        self.head.clear();
        self.written = 0;
        self.data = Bytes::new();
        self.tail = b"";
        self.sent = 0;
    }

    /// Whether the next slice of the body can be put in.
    pub fn takes_data(&self) -> bool {
        self.data.is_empty() && self.tail.is_empty()
    }

    /// Writes until nothing is left.
    pub fn poll_write(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let head = self.head.get(self.written..).unwrap_or_default();
            let slices = [IoSlice::new(head), IoSlice::new(&self.data), IoSlice::new(self.tail)];
            let taken = match (head.is_empty(), self.takes_data()) {
                (true, true) => return Pin::new(stream).poll_flush(cx),
                (false, true) => ready!(Pin::new(&mut *stream).poll_write(cx, head))?,
                _ => ready!(Pin::new(&mut *stream).poll_write_vectored(cx, &slices))?,
            };
            if taken == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.consume(taken);
        }
    }

    fn consume(&mut self, mut taken: usize) {
        self.sent += taken as u64;
        let head = taken.min(self.head.len() - self.written);
        self.written += head;
        taken -= head;
        if self.written == self.head.len() {
            self.head.clear();
            self.written = 0;
        }
        let data = taken.min(self.data.len());
        self.data.advance(data);
        taken -= data;
        self.tail = self.tail.get(taken..).unwrap_or_default();
    }
}
