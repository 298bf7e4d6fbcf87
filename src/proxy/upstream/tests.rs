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
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;

use super::*;
use crate::names::object::{ObjectName, ServicePortRef};
use crate::proxy::body::Streamed;
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

pub fn cluster(addresses: &[SocketAddr]) -> Cluster {
    let service = ObjectName { namespace: "shop".into(), name: "web".into() };
    let key = Arc::new(ClusterKey { service, port: ServicePortRef::Number(80) });
    let endpoints: Vec<_> = addresses.iter().map(|&address| Arc::new(Endpoint::Address(address))).collect();
    Cluster::new(key, endpoints, None)
}

pub fn policy(protocol: BackendProtocol) -> RoutePolicy {
    RoutePolicy {
        redirect: HttpsRedirect::Never,
        protocol,
        backend_mtls: false,
        max_body: None,
        connect_timeout: Duration::from_secs(5),
        read_timeout: Duration::from_secs(60),
        send_timeout: Duration::from_secs(60),
    }
}

pub fn request(method: Method, body: impl Into<Bytes>) -> Request<Body> {
    let request = Request::builder().method(method).uri("/a?b=c").header("host", "shop.example");
    request.body(Body::from(body.into())).unwrap()
}

pub async fn get(upstream: &Upstream, cluster: &Cluster) -> Result<Response<Body>, UpstreamError> {
    upstream.forward(cluster, &policy(BackendProtocol::Http1), request(Method::GET, "")).await
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
    let (upstream, cluster) = (Rc::new(upstream), Rc::new(cluster(&[address])));
    backend(move |_, stream| {
        let (upstream, cluster, deadlines) = (upstream.clone(), cluster.clone(), deadlines.clone());
        let service = service_fn(move |request: Request<hyper::body::Incoming>| {
            let (upstream, cluster) = (upstream.clone(), cluster.clone());
            let request = request.map(|body| Streamed::wrap(body, &deadlines, Duration::from_secs(3600)));
            async move {
                match upstream.forward(&cluster, &policy(protocol), request).await {
                    Ok(response) => Ok::<_, std::convert::Infallible>(response),
                    Err(error) => {
                        let mut response = Response::new(Body::from(Bytes::from(error.to_string())));
                        *response.status_mut() = error.status();
                        Ok(response)
                    }
                }
            }
        });
        async move {
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        }
    })
    .await
}

async fn http1_gateway(address: SocketAddr) -> SocketAddr {
    gateway(address, BackendProtocol::Http1, Deadlines::new()).await
}
