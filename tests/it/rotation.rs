//! Certificates replaced again and again under load: nobody notices but by the serial number.
//!
//! `PORTCULLIS_ROTATIONS=1000` does as many of as many Secrets; by default it is fewer, to end within a minute.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use portcullis::testing::certificates::{Authority, PemPair};
use portcullis::tls::client::{Alpn, ClientStream, ClientTls};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::site::{PATIENCE, Plan, Site, bound};

/// What the clients did.
#[derive(Default)]
struct Tally {
    handshakes: AtomicU64,
    requests: AtomicU64,
    messages: AtomicU64,
    /// The newest serial number that a finished handshake showed.
    newest: AtomicU64,
    stop: AtomicBool,
}

#[tokio::test]
async fn rotations_under_load_disturb_nothing() {
    let count: u64 = std::env::var("PORTCULLIS_ROTATIONS").map_or(200, |count| count.parse().unwrap());
    let authority = Authority::new("test");
    let mut plan = Plan::new().setting("access-log: false");
    let others = authority.leaf(&["*.other.test"]).issue();
    for number in 0..count {
        let name = format!("other-{number}");
        plan = plan.secret(&name, &others);
        plan = plan.file(&format!("{name}-ingress.yaml"), bound(&name, &format!("h{number}.other.test")));
    }
    let issue = |serial: u64| authority.leaf(&["a.test"]).serial(serial).issue();
    let site = plan.secret("a", &issue(FIRST)).file("a-ingress.yaml", bound("a", "a.test")).start();

    let tally = Arc::new(Tally::default());
    let address = site.https;
    let mut load = Vec::new();
    for _ in 0..2 {
        load.push(tokio::spawn(keep_asking(address, tally.clone())));
        load.push(tokio::spawn(keep_connecting(address, tally.clone())));
    }
    load.extend((0..20).map(|_| tokio::spawn(keep_talking(address, tally.clone()))));
    // What the first rotations need is not what the thousandth must not need in addition.
    let warm = count / 4;
    rotate(&site, FIRST + 1..=FIRST + warm, issue).await;
    let (memory, generation) = (site.resident(), site.generation());
    rotate(&site, FIRST + warm + 1..=FIRST + count, issue).await;
    let grown = site.resident().saturating_sub(memory);
    assert!(grown < 16 * 1024, "{grown} KiB more after {} rotations", count - warm);
    assert_eq!(site.generation(), generation + count - warm, "a generation for each, and no other");

    tally.stop.store(true, Ordering::Relaxed);
    for client in load {
        timeout(PATIENCE, client).await.expect("a client that ends").expect("a client without a failure");
    }
    let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    assert!(of(&tally.handshakes) > count / 4, "the load was none: {} handshakes", of(&tally.handshakes));
    assert!(of(&tally.requests) > count && of(&tally.messages) > count);
}

const FIRST: u64 = 0x1000;

/// Replaces the certificate of `a.test` by one after the other, each when the one before is served.
async fn rotate(site: &Site, serials: std::ops::RangeInclusive<u64>, issue: impl Fn(u64) -> PemPair) {
    for serial in serials {
        site.write_secret("a", &issue(serial));
        let served = async { while serial_of(&connect(site.https).await) != serial {} };
        timeout(PATIENCE, served).await.expect("the new certificate is served");
    }
}

async fn connect(address: std::net::SocketAddr) -> ClientStream {
    // A configuration of its own has no session to resume: a certificate is shown each time.
    let tcp = TcpStream::connect(address).await.expect("a connection");
    let tls = ClientTls::unverified();
    let handshake = tls.connect(tcp, "a.test", address.ip(), Alpn::Http1);
    timeout(PATIENCE, handshake).await.expect("a handshake in time").expect("a handshake")
}

fn serial_of(stream: &ClientStream) -> u64 {
    let leaf = &stream.get_ref().1.peer_certificates().expect("a certificate")[0];
    let (_, certificate) = X509Certificate::from_der(leaf).unwrap();
    certificate.raw_serial().iter().fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

/// New handshakes, each with one request. The certificate is never older than one that anybody was shown before.
async fn keep_connecting(address: std::net::SocketAddr, tally: Arc<Tally>) {
    while !tally.stop.load(Ordering::Relaxed) {
        let known = tally.newest.load(Ordering::SeqCst);
        let mut stream = connect(address).await;
        let serial = serial_of(&stream);
        assert!(serial >= known, "{serial:x} after {known:x}");
        tally.newest.fetch_max(serial, Ordering::SeqCst);
        tally.handshakes.fetch_add(1, Ordering::Relaxed);
        ask(&mut stream).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Requests on one connection.
async fn keep_asking(address: std::net::SocketAddr, tally: Arc<Tally>) {
    let mut stream = connect(address).await;
    while !tally.stop.load(Ordering::Relaxed) {
        ask(&mut stream).await;
        tally.requests.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Bytes to and fro on an upgraded connection.
async fn keep_talking(address: std::net::SocketAddr, tally: Arc<Tally>) {
    let mut stream = connect(address).await;
    let request = "GET /ws HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    assert!(read_head(&mut stream).await.starts_with("HTTP/1.1 101"));
    while !tally.stop.load(Ordering::Relaxed) {
        stream.write_all(b"ping").await.expect("an open tunnel");
        let mut echo = [0; 4];
        timeout(PATIENCE, stream.read_exact(&mut echo)).await.expect("an echo").expect("an open tunnel");
        assert_eq!(&echo, b"ping");
        tally.messages.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn ask(stream: &mut ClientStream) {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await.expect("an open connection");
    let head = read_head(stream).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let mut body = [0; 2];
    stream.read_exact(&mut body).await.expect("a body");
    assert_eq!(&body, b"ok");
}

async fn read_head(stream: &mut ClientStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let byte = timeout(PATIENCE, stream.read_u8()).await.expect("an answer in time");
        head.push(byte.expect("an open connection"));
    }
    String::from_utf8(head).unwrap()
}
