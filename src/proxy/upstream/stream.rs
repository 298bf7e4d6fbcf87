//! A connection to a backend, plain or under TLS, as one type without a virtual call.

use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::tunnel::TunnelStream;
use crate::tls::client::ClientStream;

pub enum Stream {
    Tcp(TcpStream),
    Tls(Box<ClientStream>),
    /// Through a node proxy of the mesh.
    Tunnel(Box<TunnelStream>),
}

impl Stream {
    /// The address that it leads to.
    pub fn peer(&self) -> Option<IpAddr> {
        let tcp = match self {
            Self::Tcp(tcp) => tcp,
            Self::Tls(tls) => tls.get_ref().0,
            Self::Tunnel(_) => return None,
        };
        tcp.peer_addr().ok().map(|address| address.ip())
    }

    /// Whether an idle connection is still good: open, and nothing came in that nobody asked for. What the
    /// runtime already knows is used; it costs no system call while nothing has arrived.
    pub fn is_quiet(&mut self) -> bool {
        let mut byte = [0];
        let mut buffer = ReadBuf::new(&mut byte);
        // Under TLS a session ticket may be waiting; reading it gives no data and the connection is good.
        Pin::new(self).poll_read(&mut Context::from_waker(Waker::noop()), &mut buffer).is_pending()
    }

    /// As [`is_quiet`](Self::is_quiet), asking the kernel: sees a close that the runtime has not noticed yet.
    pub fn is_quiet_now(&mut self) -> bool {
        use rustix::io::Errno;
        use rustix::net::{RecvFlags, recv};
        let mut byte = [0; 1];
        match self {
            Self::Tcp(tcp) => {
                let peeked = recv(&*tcp, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT);
                matches!(peeked, Err(Errno::AGAIN | Errno::INTR))
            }
            Self::Tls(tls) => {
                // Bytes may be a ticket: only an end of the connection is certain.
                let peeked = recv(tls.get_ref().0, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT);
                matches!(peeked, Ok((1.., _)) | Err(Errno::AGAIN | Errno::INTR)) && self.is_quiet()
            }
            // What the kernel has may be about other tunnels; only the connection's task can tell.
            Self::Tunnel(_) => self.is_quiet(),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_read(cx, buffer),
            Self::Tls(tls) => Pin::new(tls).poll_read(cx, buffer),
            Self::Tunnel(tunnel) => Pin::new(tunnel).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_write(cx, data),
            Self::Tls(tls) => Pin::new(tls).poll_write(cx, data),
            Self::Tunnel(tunnel) => Pin::new(tunnel).poll_write(cx, data),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_write_vectored(cx, slices),
            Self::Tls(tls) => Pin::new(tls).poll_write_vectored(cx, slices),
            Self::Tunnel(tunnel) => Pin::new(tunnel).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            // Nothing is held back in a plain socket.
            Self::Tcp(_) => Poll::Ready(Ok(())),
            Self::Tls(tls) => Pin::new(tls).poll_flush(cx),
            Self::Tunnel(tunnel) => Pin::new(tunnel).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
            Self::Tunnel(tunnel) => Pin::new(tunnel).poll_shutdown(cx),
        }
    }
}
