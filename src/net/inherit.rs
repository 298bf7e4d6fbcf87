//! File descriptors that another process opened for this one: listening sockets from systemd (socket
//! activation, `sd_listen_fds(3)`). The supervisor takes them once, before it opens any file of its own.

use std::io;
use std::net::TcpListener;
use std::os::fd::{FromRawFd, OwnedFd};

/// A listening socket that systemd opened, with the `FileDescriptorName=` of its unit.
#[derive(Debug)]
pub struct Activated {
    pub name: String,
    pub socket: TcpListener,
}

/// Takes the sockets that systemd passed to this process; none where it was started otherwise. To be called once.
///
/// # Errors
/// The variables that announce them make no sense, or one of them is no listening TCP socket.
pub fn activated() -> io::Result<Vec<Activated>> {
    sd_notify::listen_fds_with_names()?.map(|(fd, name)| take(fd, name)).collect()
}

fn take(fd: i32, name: String) -> io::Result<Activated> {
    // SAFETY: `sd_listen_fds(3)` gives these descriptors to this process alone, announced under its own process
    // id; the library has just checked that it is open. Nothing else here knows the number, and this is the
    // only place that takes it.
    #[allow(unsafe_code)]
    let owned = unsafe { OwnedFd::from_raw_fd(fd) };
    let socket = TcpListener::from(owned);
    let odd = |error: io::Error| {
        let message = format!("socket {name:?} from systemd is no listening TCP socket: {error}");
        io::Error::new(io::ErrorKind::InvalidInput, message)
    };
    if !rustix::net::sockopt::socket_acceptconn(&socket).map_err(|error| odd(error.into()))? {
        return Err(odd(io::ErrorKind::NotConnected.into()));
    }
    socket.local_addr().map_err(odd)?;
    socket.set_nonblocking(true)?;
    Ok(Activated { name, socket })
}
