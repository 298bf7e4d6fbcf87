//! Listening sockets: for each worker its own, of one `SO_REUSEPORT` group, so that the kernel spreads
//! connections and workers share no accept queue.
//!
//! The supervisor opens them and its worker generations take connections from them. No socket of a group may be
//! closed while clients come: what the kernel has queued on it would be reset.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use socket2::{Domain, Protocol, Socket, Type};

/// Connections the kernel queues for each socket.
const BACKLOG: i32 = 4096;

/// Opens `count` sockets on one address. Port 0 is chosen by the system, the same for all of them.
///
/// # Errors
/// The address is in use by another process, or not ours to bind.
pub fn listen(mut address: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>> {
    // With SO_REUSEPORT two gateways of one user would silently share a port; without it the second one fails.
    // This one does not listen: a client that came in by it would be reset when it is closed.
    if address.port() != 0 {
        drop(open(address, false)?);
    }
    let mut sockets = Vec::with_capacity(count);
    for _ in 0..count {
        let socket = open(address, true)?;
        start(&socket)?;
        address.set_port(socket.local_addr()?.port());
        sockets.push(socket);
    }
    Ok(sockets)
}

/// Opens `count` sockets next to others of ours on the same port. They get no connections before [`start`].
///
/// # Errors
/// The address is in use by another process, or not ours to bind.
pub fn reserve(address: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>> {
    (0..count).map(|_| open(address, true)).collect()
}

/// Lets connections come in by `socket`; nothing changes where they do already.
///
/// # Errors
/// Somebody else listens on the address.
pub fn start(socket: &TcpListener) -> io::Result<()> {
    Ok(rustix::net::listen(socket, BACKLOG)?)
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
    match socket.bind(&address.into()) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && claim_low_ports() => {
            socket.bind(&address.into())?;
        }
        other => other?,
    }
    Ok(socket.into())
}

/// Makes the right to ports below 1024 effective for this thread, if it is permitted but was not so far. That is how
/// it arrives in a container: a program file that had it effective could not be run where it is not permitted.
fn claim_low_ports() -> bool {
    let right = CapabilitySet::NET_BIND_SERVICE;
    let Ok(mut sets) = capabilities(None) else { return false };
    if !sets.permitted.contains(right) || sets.effective.contains(right) {
        return false;
    }
    sets.effective |= right;
    set_capabilities(None, sets).is_ok()
}

fn is_no_ipv6(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::AddrNotAvailable)
        || error.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error())
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn sockets_of_one_listener_share_a_port_and_no_second_listener_does() {
        let sockets = listen((Ipv4Addr::LOCALHOST, 0).into(), 3).unwrap();
        let address = sockets[0].local_addr().unwrap();
        assert!(sockets.iter().all(|s| s.local_addr().unwrap() == address));
        assert_eq!(listen(address, 1).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    /// How many connections wait on each socket, out of `count` that came in.
    fn spread(sockets: &[TcpListener], count: usize) -> Vec<usize> {
        let address = sockets[0].local_addr().unwrap();
        let clients: Vec<_> = (0..count).map(|_| TcpStream::connect(address).unwrap()).collect();
        let waiting = sockets.iter().map(|socket| {
            socket.set_nonblocking(true).unwrap();
            std::iter::from_fn(|| socket.accept().ok()).count()
        });
        let waiting = waiting.collect();
        drop(clients);
        waiting
    }

    #[test]
    fn a_reserved_socket_takes_no_connection_before_it_is_started() {
        let mut sockets = listen((Ipv4Addr::LOCALHOST, 0).into(), 1).unwrap();
        sockets.extend(reserve(sockets[0].local_addr().unwrap(), 1).unwrap());
        assert_eq!(spread(&sockets, 64), [64, 0]);
        start(&sockets[1]).unwrap();
        let spread = spread(&sockets, 64);
        assert_eq!(spread.iter().sum::<usize>(), 64);
        assert!(spread[1] > 0, "{spread:?}");
    }
}
