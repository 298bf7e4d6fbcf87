//! An endpoint without a container: an HTTP server in the test, and the EndpointSlice that leads to it.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// Answers every request with 200 and its name, until the test process ends. Requests for `/slow` are answered
/// once the test says so.
pub struct Backend {
    address: IpAddr,
    port: u16,
    slow: Arc<Slow>,
}

/// What requests for `/slow` wait for.
#[derive(Default)]
struct Slow {
    state: Mutex<SlowState>,
    changed: Condvar,
}

#[derive(Default)]
struct SlowState {
    waiting: usize,
    released: bool,
}

impl Backend {
    pub fn start(name: &'static str) -> Self {
        let address = address();
        let listener = TcpListener::bind((address, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let slow = Arc::<Slow>::default();
        let for_requests = slow.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let slow = for_requests.clone();
                thread::spawn(move || answer(stream.unwrap(), name, &slow));
            }
        });
        Self { address, port, slow }
    }

    /// How many requests for `/slow` wait.
    pub fn waiting(&self) -> usize {
        self.slow.state.lock().unwrap().waiting
    }

    /// Answers requests for `/slow` from now on.
    pub fn release(&self) {
        self.slow.state.lock().unwrap().released = true;
        self.slow.changed.notify_all();
    }

    /// The address that it is reached at.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// A Service of this name, without a selector, and its EndpointSlice.
    pub fn manifest(&self, namespace: &str, service: &str) -> String {
        service_manifest(namespace, service) + &self.endpoints(namespace, service, 1)
    }

    /// The EndpointSlice `number` of the Service, with this endpoint alone.
    pub fn endpoints(&self, namespace: &str, service: &str, number: usize) -> String {
        let Self { address, port, .. } = self;
        format!(
            r#"
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{ namespace: {namespace}, name: {service}-{number}, labels: {{ kubernetes.io/service-name: {service} }} }}
addressType: {family}
endpoints: [{{ addresses: ["{address}"], conditions: {{ ready: true }} }}]
ports: [{{ name: http, port: {port} }}]
"#,
            family = if address.is_ipv4() { "IPv4" } else { "IPv6" },
        )
    }
}

/// A Service of this name, without a selector and without endpoints.
pub fn service_manifest(namespace: &str, service: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{ namespace: {namespace}, name: {service} }}\n\
         spec: {{ ports: [{{ name: http, port: 80 }}] }}\n"
    )
}

/// An address of this machine that an EndpointSlice may have: not a loopback one.
fn address() -> IpAddr {
    // Every address of the range is ours after `ip route add local 10.77.0.0/16 dev lo`.
    let any: IpAddr = [10, 77, 0, 11].into();
    if TcpListener::bind((any, 0)).is_ok() {
        return any;
    }
    // Which address would speak to the world. Nothing is sent.
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let outside = socket.connect("198.51.100.1:9").and_then(|()| socket.local_addr());
    outside.expect("an address that isn't loopback: ip route add local 10.77.0.0/16 dev lo").ip()
}

fn answer(mut stream: TcpStream, name: &str, slow: &Slow) {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        request.extend_from_slice(&buffer[..read]);
        while let Some(end) = request.windows(4).position(|window| window == b"\r\n\r\n") {
            if request.starts_with(b"GET /slow ") {
                let mut state = slow.state.lock().unwrap();
                state.waiting += 1;
                drop(slow.changed.wait_while(state, |state| !state.released).unwrap());
            }
            request.drain(..end + 4);
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{name}", name.len());
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }
}
