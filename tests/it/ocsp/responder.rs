//! An OCSP responder that behaves as a test wants, well or badly, and counts who comes.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use portcullis::tls::ocsp::request::Request;
use portcullis::tls::ocsp::testing::{Answer, Ca, Issued};
use rustls_pki_types::CertificateDer;

use super::now;

/// How a request is answered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// "Good" for so many seconds.
    Good(u64),
    Revoked,
    /// 503 and no body.
    Down,
    /// A body that never ends.
    Endless,
    /// Nothing at all until the manner is another.
    Silent,
}

/// A running responder. Its thread ends with the process of the test.
pub struct Responder {
    pub url: String,
    shared: Arc<Shared>,
}

struct Shared {
    ca: Arc<Ca>,
    manner: Mutex<Manner>,
    delay: Duration,
    /// Leaves by the request that asks about them.
    leaves: Mutex<HashMap<Vec<u8>, CertificateDer<'static>>>,
    connections: AtomicUsize,
}

impl Responder {
    pub fn start(ca: &Arc<Ca>, manner: Manner, delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let shared = Arc::new(Shared {
            ca: ca.clone(),
            manner: Mutex::new(manner),
            delay,
            leaves: Mutex::default(),
            connections: AtomicUsize::new(0),
        });
        let served = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                served.connections.fetch_add(1, Ordering::SeqCst);
                let served = served.clone();
                // A client that gives up is what many of these tests are about.
                thread::spawn(move || served.answer(stream));
            }
        });
        Self { url, shared }
    }

    /// From now on requests about this leaf are understood.
    pub fn knows(&self, leaf: &Issued) {
        let request = Request::new(&leaf.der, &self.shared.ca.der).unwrap();
        self.shared.leaves.lock().unwrap().insert(request.der().to_vec(), leaf.der.clone());
    }

    pub fn behave(&self, manner: Manner) {
        *self.shared.manner.lock().unwrap() = manner;
    }

    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

impl Shared {
    fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let request = read_request(&mut stream)?;
        thread::sleep(self.delay);
        let manner = loop {
            match *self.manner.lock().unwrap() {
                Manner::Silent => {}
                manner => break manner,
            }
            thread::sleep(Duration::from_millis(10));
        };
        let leaf = self.leaves.lock().unwrap().get(&request).cloned();
        let sign = |answer: fn(&CertificateDer<'_>, &CertificateDer<'_>, u64) -> Answer, validity| {
            let leaf = leaf.as_ref().unwrap();
            let answer = answer(leaf, &self.ca.der, now()).window(now(), Some(now() + validity));
            answer.sign(&self.ca.signer())
        };
        match manner {
            Manner::Good(_) | Manner::Revoked if leaf.is_none() => respond(&mut stream, "404 Not Found", b""),
            Manner::Good(validity) => respond(&mut stream, "200 OK", &sign(Answer::good, validity)),
            Manner::Revoked => respond(&mut stream, "200 OK", &sign(Answer::revoked, 3600)),
            Manner::Down | Manner::Silent => respond(&mut stream, "503 Service Unavailable", b""),
            Manner::Endless => {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/ocsp-response\r\n\r\n")?;
                loop {
                    stream.write_all(&[0x30; 4096])?;
                    thread::sleep(Duration::from_millis(1));
                }
            }
        }
    }
}

fn respond(stream: &mut TcpStream, status: &str, body: &[u8]) -> std::io::Result<()> {
    let length = body.len();
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")?;
    stream.write_all(body)
}

/// The OCSP request out of the path of a GET or the body of a POST.
fn read_request(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let head = loop {
        let mut chunk = [0; 4096];
        let read = stream.read(&mut chunk)?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&chunk[..read]);
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let text = String::from_utf8_lossy(&bytes[..head]).into_owned();
    let path = text.split(' ').nth(1).unwrap_or_default();
    if text.starts_with("GET ") {
        let encoded = path.trim_start_matches('/');
        let base64: Vec<u8> = percent_encoding::percent_decode_str(encoded).collect();
        return Ok(BASE64_STANDARD.decode(base64).unwrap_or_default());
    }
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let mut body = bytes.split_off(head);
    let mut rest = vec![0; length.unwrap_or(0).saturating_sub(body.len())];
    stream.read_exact(&mut rest)?;
    body.extend(rest);
    Ok(body)
}
