//! The smallest load balancer there is: takes TCP connections and gives each to the next of the gateways in its
//! list, which may change at any time.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

pub struct Balancer {
    address: SocketAddr,
    targets: Arc<Mutex<Vec<SocketAddr>>>,
}

impl Balancer {
    /// Balances until the test process ends.
    pub fn start(targets: &[SocketAddr]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let targets = Arc::new(Mutex::new(targets.to_vec()));
        let shared = targets.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                // Connected while the list is held: once a target is off the list, nothing new reaches it.
                let mut targets = shared.lock().unwrap();
                targets.rotate_left(1);
                let server = TcpStream::connect(targets[0]);
                drop(targets);
                // A client of a gateway that takes no connection sees the end of its own.
                if let Ok(server) = server {
                    relay(client, server);
                }
            }
        });
        Self { address, targets }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Gives new connections to these from now on.
    pub fn set(&self, targets: &[SocketAddr]) {
        *self.targets.lock().unwrap() = targets.to_vec();
    }
}

fn relay(client: TcpStream, server: TcpStream) {
    for (from, to) in [(&client, &server), (&server, &client)] {
        let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        thread::spawn(move || {
            let mut buffer = [0; 16 * 1024];
            while let Ok(read @ 1..) = from.read(&mut buffer) {
                if to.write_all(&buffer[..read]).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Write);
        });
    }
}
