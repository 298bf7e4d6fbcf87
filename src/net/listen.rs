//! Listening sockets: for each worker its own, of one `SO_REUSEPORT` group, so that the kernel spreads
//! connections and workers share no accept queue.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// Connections the kernel queues for each socket.
const BACKLOG: i32 = 4096;

/// Opens `count` sockets on one address. Port 0 is chosen by the system, the same for all of them.
///
/// # Errors
/// The address is in use by another process, or not ours to bind.
pub fn listen(mut address: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>> {
    // With SO_REUSEPORT two gateways of one user would silently share a port; without it the second one fails.
    if address.port() != 0 {
        drop(open(address, false)?);
    }
    let mut sockets = Vec::with_capacity(count);
    for _ in 0..count {
        let socket = open(address, true)?;
        address.set_port(socket.local_addr()?.port());
        sockets.push(socket);
    }
    Ok(sockets)
}

fn open(address: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    match bind(address, shared) {
        // A machine without IPv6: `::` means every address there is.
        Err(e) if address.ip().is_unspecified() && address.is_ipv6() && is_no_ipv6(&e) => {
            bind((Ipv4Addr::UNSPECIFIED, address.port()).into(), shared)
        }
        other => other,
    }
}

fn bind(address: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    // Accepted sockets inherit it on Linux, which saves a system call for each connection.
    socket.set_tcp_nodelay(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn is_no_ipv6(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::AddrNotAvailable)
        || error.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_of_one_listener_share_a_port_and_no_second_listener_does() {
        let sockets = listen((Ipv4Addr::LOCALHOST, 0).into(), 3).unwrap();
        let address = sockets[0].local_addr().unwrap();
        assert!(sockets.iter().all(|s| s.local_addr().unwrap() == address));
        assert_eq!(listen(address, 1).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
