//! Fake backends and a small gateway to try the way to the backends with; the cases are in the files below.

mod bodies;
mod framing;
mod retries;
mod secured;

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode, Version};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;

use super::http1::Upgraded;
use super::*;
use crate::names::object::{ObjectName, ServicePortRef};
use crate::net::drain::Drain;
use crate::proxy::client_stream::ClientStream;
use crate::proxy::http1::{HeadError, HeadLimits, serve};
use crate::proxy::service::{Limits, Service};
use crate::snapshot::clusters::ClusterKey;
use crate::snapshot::hosts::HttpsRedirect;

/// Starts a backend that handles each connection, given with its number, by `handle`.
pub async fn backend<F: Future<Output = ()> + 'static>(
    handle: impl Fn(usize, TcpStream) -> F + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    spawn_local(async move {
        for number in 1.. {
            let (stream, _) = listener.accept().await.unwrap();
            spawn_local(handle(number, stream));
        }
    });
    address
}

/// A backend that answers every request head with the same bytes, and how many connections it got.
pub async fn replying(response: impl Into<Vec<u8>>) -> (SocketAddr, Rc<Cell<usize>>) {
    let response: Rc<[u8]> = response.into().into();
    let count = Rc::new(Cell::new(0));
    let seen = count.clone();
    let address = backend(move |number, mut stream| {
        seen.set(number);
        let response = response.clone();
        async move {
            while read_head(&mut stream).await.is_some() {
                stream.write_all(&response).await.unwrap();
            }
        }
    });
    (address.await, count)
}

/// A request or response head with its blank line; `None` at the end of the connection.
pub async fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8(head).unwrap())
}

/// An address that nobody listens on.
pub async fn refusing() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

pub fn upstream() -> Upstream {
    Upstream::new(PoolLimits::default(), ClientTls::unverified(), Deadlines::new())
}

impl Upstream {
    /// To any endpoint, with nothing said about the client.
    pub async fn forward_plainly(
        &self,
        cluster: &Cluster,
        policy: &RoutePolicy,
        request: Request<Body>,
    ) -> Result<Response<Body>, UpstreamError> {
        self.forward_within(Retries { tries: 3, non_idempotent: false }, cluster, policy, request).await
    }

    /// The same, tried as often as `retries` say.
    pub async fn forward_within(
        &self,
        retries: Retries,
        cluster: &Cluster,
        policy: &RoutePolicy,
        request: Request<Body>,
    ) -> Result<Response<Body>, UpstreamError> {
        let target = Target { cluster, policy, session: None };
        self.forward(target, retries, &|_| Ok(Way::default()), &ClientFields::default(), request).await
    }
}

pub fn cluster(addresses: &[SocketAddr]) -> Cluster {
    let service = ObjectName { namespace: "shop".into(), name: "web".into() };
    let key = Arc::new(ClusterKey { service, port: ServicePortRef::Number(80), by_service: false });
    let endpoints: Vec<_> = addresses.iter().map(|&address| Arc::new(Endpoint::Address(address))).collect();
    Cluster::new(key, endpoints, None)
}

pub fn policy(protocol: BackendProtocol) -> RoutePolicy {
    RoutePolicy {
        redirect: HttpsRedirect::Never,
        preserve_trailing_slash: false,
        protocol,
        backend_mtls: false,
        cors: None,
        sources: None,
        auth: None,
        limits: None,
        max_body: None,
        connect_timeout: Duration::from_secs(5),
        read_timeout: Duration::from_secs(60),
        send_timeout: Duration::from_secs(60),
        affinity: None,
    }
}

pub fn request(method: Method, body: impl Into<Bytes>) -> Request<Body> {
    let request = Request::builder().method(method).uri("/a?b=c").header("host", "shop.example");
    request.body(Body::from(body.into())).unwrap()
}

pub async fn get(upstream: &Upstream, cluster: &Cluster) -> Result<Response<Body>, UpstreamError> {
    upstream.forward_plainly(cluster, &policy(BackendProtocol::Http1), request(Method::GET, "")).await
}

pub async fn collect(
    response: Response<Body>,
) -> Result<(Bytes, Option<HeaderMap>), crate::proxy::body::BodyError> {
    let collected = response.into_body().collect().await?;
    let trailers = collected.trailers().cloned();
    Ok((collected.to_bytes(), trailers))
}

/// A server that forwards everything to `address`, so that bodies come from real clients.
pub async fn gateway(address: SocketAddr, protocol: BackendProtocol, deadlines: Deadlines) -> SocketAddr {
    let upstream = Upstream::new(PoolLimits::default(), ClientTls::unverified(), deadlines.clone());
    let forwarder = Rc::new(Forwarder { upstream, cluster: cluster(&[address]), policy: policy(protocol) });
    backend(move |_, stream| {
        let (forwarder, deadlines) = (forwarder.clone(), deadlines.clone());
        async move {
            let drain = Drain::default();
            serve(ClientStream::Plain(stream), &*forwarder, &deadlines, drain.watch()).await;
        }
    })
    .await
}

struct Forwarder {
    upstream: Upstream,
    cluster: Cluster,
    policy: RoutePolicy,
}

impl Service for Forwarder {
    async fn call(&self, request: Request<Body>) -> Response<Body> {
        match self.upstream.forward_plainly(&self.cluster, &self.policy, request).await {
            Ok(response) => response,
            Err(error) => {
                let mut response = Response::new(Body::from(Bytes::from(error.to_string())));
                *response.status_mut() = error.status();
                response
            }
        }
    }

    fn refuse(&self, error: HeadError, _: Version) -> Response<Body> {
        panic!("{error}")
    }

    fn limits(&self) -> Limits {
        let hour = Duration::from_secs(3600);
        let head = HeadLimits { bytes: 64 * 1024, fields: 100 };
        Limits { head, header_timeout: hour, keep_alive: hour, body_timeout: hour }
    }

    fn panicked(&self) {}

    async fn upgraded(&self, _: ClientStream, _: bytes::BytesMut, _: Upgraded) {
        panic!("nobody asked for it")
    }
}

async fn http1_gateway(address: SocketAddr) -> SocketAddr {
    gateway(address, BackendProtocol::Http1, Deadlines::new()).await
}
