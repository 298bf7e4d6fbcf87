//! An endpoint without a container: an HTTP server in the test, and the EndpointSlice that leads to it.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::thread;

/// Answers every request with 200 and its name, until the test process ends.
pub struct Backend {
    address: IpAddr,
    port: u16,
}

impl Backend {
    pub fn start(name: &'static str) -> Self {
        let address = address();
        let listener = TcpListener::bind((address, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for stream in listener.incoming() {
                thread::spawn(move || answer(stream.unwrap(), name));
            }
        });
        Self { address, port }
    }

    /// The address that it is reached at.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// A Service of this name, without a selector, and its EndpointSlice.
    pub fn manifest(&self, namespace: &str, service: &str) -> String {
        let Self { address, port } = self;
        format!(
            r#"
apiVersion: v1
kind: Service
metadata: {{ namespace: {namespace}, name: {service} }}
spec: {{ ports: [{{ name: http, port: 80 }}] }}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{ namespace: {namespace}, name: {service}-1, labels: {{ kubernetes.io/service-name: {service} }} }}
addressType: {family}
endpoints: [{{ addresses: ["{address}"], conditions: {{ ready: true }} }}]
ports: [{{ name: http, port: {port} }}]
"#,
            family = if address.is_ipv4() { "IPv4" } else { "IPv6" },
        )
    }
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

fn answer(mut stream: std::net::TcpStream, name: &str) {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        request.extend_from_slice(&buffer[..read]);
        while let Some(end) = request.windows(4).position(|window| window == b"\r\n\r\n") {
            request.drain(..end + 4);
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{name}", name.len());
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }
}
