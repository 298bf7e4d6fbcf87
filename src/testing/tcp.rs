//! Backends that speak no protocol.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Listens until the process ends, and serves each connection on a thread of its own.
pub struct TcpBackend {
    pub address: SocketAddr,
    accepted: Arc<AtomicUsize>,
}

impl TcpBackend {
    /// Sends everything back; when the client has finished, says `bye` and closes.
    pub fn echo() -> Self {
        Self::serve(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port"), echo)
    }

    /// Serves what comes in by `listener`.
    pub fn serve(listener: TcpListener, serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let address = listener.local_addr().expect("an address");
        let accepted = Arc::new(AtomicUsize::new(0));
        let (serve, count) = (Arc::new(serve), accepted.clone());
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::SeqCst);
                let serve = serve.clone();
                thread::spawn(move || serve(connection));
            }
        });
        Self { address, accepted }
    }

    /// Connections so far.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

/// What [`TcpBackend::echo`] does with a connection.
pub fn echo(mut connection: TcpStream) {
    let mut buffer = [0; 16 * 1024];
    loop {
        match connection.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) if connection.write_all(&buffer[..length]).is_ok() => {}
            _ => return,
        }
    }
    // The other end may be gone.
    let _ = connection.write_all(b"bye");
    let _ = connection.shutdown(Shutdown::Write);
}
