//! The listener of the CA's gRPC service: HTTP/2 only, client certificates asked for and verified if given.
//!
//! Its TLS is replaced as a whole when the server certificate or the trusted roots change; connections
//! with the one before are asked to go (GOAWAY) and come again. Anybody may connect, so one who shows nothing must not
//! take the place of others: connections that ask nothing end, and no address has more than its share of them.
//! `server` makes the certificates, `service` answers the calls.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls_pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tonic::codegen::Service;

use super::per_source::PerSource;
use crate::tls::services::{ServiceTls, peer_chain};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A client that has not finished its handshake by then is gone or hostile.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// A client that has its connection and asks nothing by then only takes a place.
const FIRST_CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Afterwards a connection may be silent for so long. Agents open another one when they need it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// For one call, its request included.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Connections at once; agents hold one each.
const MAX_CONNECTIONS: usize = 4096;
/// Connections at once of one address. Behind it may be all agents of a node.
const MAX_OF_ONE_SOURCE: usize = 256;
/// How often it is said that there are no places left.
const WARN_AGAIN: Duration = Duration::from_secs(60);
/// Idle connections are pinged so that dead peers free their place.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// Calls under way get this long once the service stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The chain that the client of a connection showed, its own certificate first; an extension of the requests on it. It
/// was verified in the handshake, which may be long ago.
#[derive(Clone, Debug)]
pub struct PeerChain(pub Arc<[CertificateDer<'static>]>);

/// Where a request came from; an extension of it.
#[derive(Clone, Copy, Debug)]
pub struct PeerAddress(pub IpAddr);

/// Serves until `stop` becomes true, then lets calls that are under way finish for a moment.
pub async fn serve<S, B>(
    listener: TcpListener,
    tls: watch::Receiver<ServiceTls>,
    service: S,
    mut stop: watch::Receiver<bool>,
) where
    S: Service<http::Request<Incoming>, Response = http::Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let sources = PerSource::new(MAX_OF_ONE_SOURCE);
    let mut connections = JoinSet::new();
    let mut warned: Option<Instant> = None;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        match accepted {
            Ok((stream, address)) => {
                let place = Arc::clone(&places).try_acquire_owned().ok();
                let Some(place) = place.and_then(|place| Some((place, sources.enter(address.ip())?))) else {
                    if warned.is_none_or(|last| last.elapsed() >= WARN_AGAIN) {
                        warned = Some(Instant::now());
                        let open = MAX_CONNECTIONS - places.available_permits();
                        let source = address.ip();
                        tracing::warn!(open, %source, "CSR service: a connection found no place");
                    }
                    continue;
                };
                let peer = PeerAddress(address.ip());
                let (tls, service, stop) = (tls.clone(), service.clone(), stop.clone());
                connections.spawn(async move {
                    if let Err(error) = connection(stream, peer, tls, service, stop).await {
                        tracing::debug!(%error, "CSR connection ended");
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                // Out of file descriptors, most likely: trying again at once would only burn the core.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    let drained = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, drained).await;
}

async fn connection<S, B>(
    stream: TcpStream,
    address: PeerAddress,
    mut tls: watch::Receiver<ServiceTls>,
    service: S,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()>
where
    S: Service<http::Request<Incoming>, Response = http::Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let _ = stream.set_nodelay(true);
    let current = tls.borrow_and_update().clone();
    let stream = timeout(HANDSHAKE_TIMEOUT, current.accept(stream)).await??;
    let peer = peer_chain(&stream).map(PeerChain);
    let calls = watch::Sender::new(Calls::default());
    let mut seen = calls.subscribe();
    let inner = TowerToHyperService::new(service);
    let service = hyper::service::service_fn(move |mut request: http::Request<Incoming>| {
        request.extensions_mut().insert(address);
        if let Some(peer) = peer.clone() {
            request.extensions_mut().insert(peer);
        }
        let call = Call::begin(calls.clone());
        let answer = timeout(CALL_TIMEOUT, hyper::service::Service::call(&inner, request));
        async move {
            let answer = answer.await;
            drop(call);
            answer.map_err(io::Error::from)?.map_err(io::Error::other)
        }
    });
    let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .max_concurrent_streams(128)
        .max_header_list_size(32 * 1024)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        done = connection.as_mut() => return done.map_err(io::Error::other),
        () = falls_silent(&mut seen) => {}
        Ok(()) = tls.changed() => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
    connection.as_mut().graceful_shutdown();
    timeout(CALL_TIMEOUT, connection).await?.map_err(io::Error::other)
}

/// The calls of a connection.
#[derive(Clone, Copy, Debug, Default)]
struct Calls {
    begun: u64,
    under_way: usize,
}

/// One that is under way until it is dropped.
struct Call(watch::Sender<Calls>);

impl Call {
    fn begin(calls: watch::Sender<Calls>) -> Self {
        calls.send_modify(|calls| {
            calls.begun += 1;
            calls.under_way += 1;
        });
        Self(calls)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.0.send_modify(|calls| calls.under_way -= 1);
    }
}

/// Waits until a connection has asked nothing for longer than it may.
async fn falls_silent(calls: &mut watch::Receiver<Calls>) {
    let mut may = FIRST_CALL_TIMEOUT;
    // The sender is gone only with the connection.
    while let Ok(begun) = calls.wait_for(|calls| calls.under_way == 0).await.map(|calls| calls.begun) {
        if timeout(may, calls.wait_for(|calls| calls.begun != begun)).await.is_err() {
            return;
        }
        may = IDLE_TIMEOUT;
    }
    std::future::pending().await
}

#[cfg(test)]
mod tests;
