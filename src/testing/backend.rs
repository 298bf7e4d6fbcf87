//! HTTP/1 backends that remember every request they make out in what the gateway sends.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use rustls::ServerConfig;

use super::certificates::PemPair;
use super::eventually;
use super::message::Request;
use super::wire::{Wire, server_config};

/// What a backend does after its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    KeepAlive,
    Close,
}

/// Whether request bodies are read before the handler is called.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bodies {
    Read,
    Leave,
}

/// A backend on a port of its own, until it is dropped.
pub struct Backend {
    address: SocketAddr,
    log: Arc<Log>,
}

#[derive(Default)]
struct Log {
    requests: Mutex<Vec<Request>>,
    connections: AtomicUsize,
    open: AtomicUsize,
    stopped: AtomicBool,
}

type Handler = dyn Fn(&mut Request, &mut Wire) -> After + Send + Sync;

impl Backend {
    /// Answers with the body it was sent, or with its request line.
    pub fn echo() -> Self {
        Self::on_request(echo)
    }

    /// [`echo`](Self::echo) under TLS.
    pub fn secured_echo(pair: &PemPair) -> Self {
        Self::start(Some(server_config(pair, &["http/1.1"])), Bodies::Read, echo)
    }

    /// Answers every request with these bytes.
    pub fn answering(answer: impl Into<Vec<u8>>, after: After) -> Self {
        let answer = answer.into();
        Self::on_request(move |_, wire| match wire.send(&answer) {
            Ok(()) => after,
            Err(_) => After::Close,
        })
    }

    /// Calls `handler` when a request is there with its body.
    pub fn on_request(handler: impl Fn(&mut Request, &mut Wire) -> After + Send + Sync + 'static) -> Self {
        Self::start(None, Bodies::Read, handler)
    }

    /// Calls `handler` when the head of a request is there; the body is the handler's to read.
    pub fn on_head(handler: impl Fn(&mut Request, &mut Wire) -> After + Send + Sync + 'static) -> Self {
        Self::start(None, Bodies::Leave, handler)
    }

    fn start(
        tls: Option<Arc<ServerConfig>>,
        bodies: Bodies,
        handler: impl Fn(&mut Request, &mut Wire) -> After + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let log = Arc::<Log>::default();
        let handler: Arc<Handler> = Arc::new(handler);
        let shared = log.clone();
        thread::spawn(move || {
            for tcp in listener.incoming().flatten() {
                if shared.stopped.load(Ordering::Relaxed) {
                    return;
                }
                let (tls, handler, log) = (tls.clone(), handler.clone(), shared.clone());
                thread::spawn(move || serve(tcp, tls, bodies, &*handler, &log));
            }
        });
        Self { address, log }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// All requests so far, in the order their heads came in.
    pub fn requests(&self) -> Vec<Request> {
        self.log.requests.lock().expect("not poisoned").clone()
    }

    /// The request that is there, or will be, as the only one.
    pub fn only_request(&self) -> Request {
        eventually("a request at the backend", || {
            self.requests().first().is_some_and(|first| first.complete)
        });
        let requests = self.requests();
        assert_eq!(requests.len(), 1, "{requests:#?}");
        requests[0].clone()
    }

    /// The request lines so far, of requests that came whole.
    pub fn lines(&self) -> Vec<String> {
        let requests = self.requests();
        requests
            .iter()
            .filter(|request| request.complete)
            .map(|request| format!("{} {}", request.method, request.target))
            .collect()
    }

    /// Connections that were ever made.
    pub fn connections(&self) -> usize {
        self.log.connections.load(Ordering::Relaxed)
    }

    /// Connections that are open now.
    pub fn open_connections(&self) -> usize {
        self.log.open.load(Ordering::Relaxed)
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.log.stopped.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

/// An address where nobody listens.
pub fn refusing_address() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.local_addr().expect("an address")
}

fn serve(tcp: TcpStream, tls: Option<Arc<ServerConfig>>, bodies: Bodies, handler: &Handler, log: &Log) {
    let connection = log.connections.fetch_add(1, Ordering::Relaxed);
    let wire = match tls {
        Some(config) => Wire::server(tcp, config),
        None => Ok(Wire::plain(tcp)),
    };
    let Ok(mut wire) = wire else { return };
    // A kept-alive connection may be idle for as long as the test runs.
    wire.tcp().set_read_timeout(None).expect("no timeout");
    log.open.fetch_add(1, Ordering::Relaxed);
    while let Some(mut request) = Request::read_head(&mut wire) {
        request.connection = connection;
        let place = {
            let mut requests = log.requests.lock().expect("not poisoned");
            requests.push(request.clone());
            requests.len() - 1
        };
        let keep = |request: &Request| log.requests.lock().expect("not poisoned")[place] = request.clone();
        if bodies == Bodies::Read {
            request.read_body(&mut wire);
            keep(&request);
            if !request.complete {
                break;
            }
        }
        let after = handler(&mut request, &mut wire);
        keep(&request);
        if after == After::Close {
            break;
        }
    }
    wire.finish();
    log.open.fetch_sub(1, Ordering::Relaxed);
}

fn echo(request: &mut Request, wire: &mut Wire) -> After {
    let mut body = request.body.clone();
    if body.is_empty() {
        body = format!("{} {}", request.method, request.target).into_bytes();
    }
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    if request.method == "HEAD" {
        body.clear();
    }
    match wire.send([head.as_bytes(), &body].concat()) {
        Ok(()) => After::KeepAlive,
        Err(_) => After::Close,
    }
}
