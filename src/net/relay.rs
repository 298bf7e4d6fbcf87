//! Passes bytes between two connections, both ways, each side closing in its own time: WebSockets and other
//! upgrades, and whatever is not looked into.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::net::deadlines::{Deadline, Deadlines};

/// Bytes in flight each way.
const BUFFER: usize = 16 * 1024;

/// Relays until both sides have closed, or neither has sent anything for `idle`. `first` goes to `b` ahead of
/// what `a` sends, `second` to `a`.
pub async fn relay<A, B>(
    (mut a, first): (A, &[u8]),
    (mut b, second): (B, &[u8]),
    deadlines: &Deadlines,
    idle: Duration,
) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let mut there = Direction::new(first);
    let mut back = Direction::new(second);
    let mut silence = deadlines.deadline(idle);
    poll_fn(|cx| {
        let there_done = there.poll(cx, &mut a, &mut b)?.is_ready();
        let back_done = back.poll(cx, &mut b, &mut a)?.is_ready();
        if there_done && back_done {
            return Poll::Ready(Ok(()));
        }
        poll_silence(&mut silence, cx, idle, &mut [&mut there, &mut back])
    })
    .await
}

fn poll_silence(
    silence: &mut Deadline,
    cx: &mut Context<'_>,
    idle: Duration,
    directions: &mut [&mut Direction; 2],
) -> Poll<io::Result<()>> {
    for direction in directions {
        if std::mem::take(&mut direction.moved) {
            silence.reset(idle);
        }
    }
    ready!(silence.poll_passed(cx));
    Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
}

/// One way.
struct Direction {
    buffer: Box<[u8]>,
    /// What of the buffer is waiting to be written.
    from: usize,
    to: usize,
    state: State,
    /// Something was passed on since the last look.
    moved: bool,
}

#[derive(PartialEq)]
enum State {
    Open,
    Closing,
    Closed,
}

impl Direction {
    fn new(first: &[u8]) -> Self {
        let mut buffer = vec![0; BUFFER.max(first.len())].into_boxed_slice();
        if let Some(start) = buffer.get_mut(..first.len()) {
            start.copy_from_slice(first);
        }
        Self { buffer, from: 0, to: first.len(), state: State::Open, moved: false }
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut (impl AsyncRead + Unpin),
        sink: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        loop {
            while let Some(rest @ [_, ..]) = self.buffer.get(self.from..self.to) {
                match ready!(Pin::new(&mut *sink).poll_write(cx, rest))? {
                    0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    n => self.from += n,
                }
                self.moved = true;
            }
            match self.state {
                State::Closed => return Poll::Ready(Ok(())),
                State::Closing => {
                    ready!(Pin::new(&mut *sink).poll_shutdown(cx))?;
                    self.state = State::Closed;
                }
                State::Open => {
                    let mut room = ReadBuf::new(&mut self.buffer);
                    match Pin::new(&mut *source).poll_read(cx, &mut room) {
                        Poll::Ready(read) => read?,
                        Poll::Pending => {
                            // Nothing to read: what TLS still holds back goes out now.
                            ready!(Pin::new(&mut *sink).poll_flush(cx))?;
                            return Poll::Pending;
                        }
                    }
                    (self.from, self.to) = (0, room.filled().len());
                    if self.to == 0 {
                        self.state = State::Closing;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn both_ways_with_what_was_read_ahead_and_each_side_closing_by_itself() {
        let (client, gateway_client) = duplex(64);
        let (backend, gateway_backend) = duplex(64);
        let deadlines = Deadlines::new();
        let relay = relay(
            (gateway_client, b"ahead "),
            (gateway_backend, b"hello "),
            &deadlines,
            Duration::from_secs(5),
        );
        let client = async move {
            let mut client = client;
            client.write_all(&[b'x'; 1000]).await.unwrap();
            client.shutdown().await.unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let backend = async move {
            let mut backend = backend;
            let mut request = Vec::new();
            backend.read_to_end(&mut request).await.unwrap();
            backend.write_all(b"after the end").await.unwrap();
            request
        };
        let (relayed, answer, request) = tokio::join!(relay, client, backend);
        relayed.unwrap();
        assert_eq!(answer, "hello after the end");
        assert_eq!(request, [b"ahead ".as_slice(), &[b'x'; 1000]].concat());
    }

    #[tokio::test]
    async fn silence_ends_it() {
        let (_client, gateway_client) = duplex(64);
        let (_backend, gateway_backend) = duplex(64);
        let deadlines = Deadlines::new();
        let idle = Duration::from_millis(100);
        let ended = tokio::select! {
            ended = relay((gateway_client, b""), (gateway_backend, b""), &deadlines, idle) => ended,
            () = deadlines.run(|| None) => unreachable!("runs for ever"),
        };
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
