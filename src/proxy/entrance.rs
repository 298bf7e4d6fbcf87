//! A connection from a client, from its first byte to its last: the PROXY header, the handshake, and who serves it then.
//!
//! The worker that accepted it calls [`client`]. Nothing is served before the client is known as well as it can be:
//! by the header of the load balancer, by its certificate where it shows one.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use tokio::net::TcpStream;

use super::client_stream::ClientStream;
use super::derived::Derived;
use super::guards::Peer;
use super::hbone::Hbone;
use super::headers::is_trusted;
use super::pipeline::Client;
use super::worker::Worker;
use super::{http1, http2};
use crate::net::proxy_protocol::{Proxied, read_header};
use crate::snapshot::TlsPort;
use crate::telemetry::worker_stats::WorkerStats;
use crate::tls::accept::{Accepted, HandshakeError, accept};
use crate::tls::mesh::MeshClient;

/// Which of the ports a connection came in by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entrance {
    Http,
    Tls(TlsPort),
    /// Tunnels of node proxies.
    Hbone,
}

/// Counts a connection as open.
pub struct OpenConnection(Arc<WorkerStats>);

impl OpenConnection {
    pub fn enter(stats: &Arc<WorkerStats>) -> Self {
        stats.connections.enter();
        Self(stats.clone())
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.connections.leave();
        if std::thread::panicking() {
            self.0.panics.add_one();
        }
    }
}

/// Serves a connection to its end.
pub async fn client(
    worker: Rc<Worker>,
    mut stream: TcpStream,
    peer: SocketAddr,
    entrance: Entrance,
    _open: OpenConnection,
) {
    let settings = worker.derived();
    let is_public = matches!(entrance, Entrance::Http | Entrance::Tls(TlsPort::Https));
    let proxied = match settings.settings.use_proxy_protocol && is_public {
        true => match worker.read_proxy_header(&mut stream, peer, &settings).await {
            Ok(proxied) => proxied,
            Err(()) => return worker.stats.proxy_headers_refused.add_one(),
        },
        false => None,
    };
    let peer = proxied.map_or(peer, |proxied| proxied.client);
    match entrance {
        Entrance::Http => {
            let port = proxied.map_or(settings.settings.http_port, |proxied| proxied.destination.port());
            let mut client = Client::new(worker.clone(), peer, port, None);
            // Who connected to the load balancer's port 443 came over TLS, which ended there.
            client.set_secure(proxied.is_some() && port == 443);
            http1::serve(ClientStream::Plain(stream), &client, &worker.deadlines, worker.drain.watch()).await;
        }
        Entrance::Tls(tls) => match worker.handshake(stream, tls, &settings).await {
            Ok(accepted) => {
                worker.count_handshake(&accepted);
                // Clients see 443, whichever port it is mapped to.
                let port = proxied.map_or(443, |proxied| proxied.destination.port());
                let mesh_client = accepted.identity.client.clone();
                let client = Client::new(worker.clone(), peer, port, Some(accepted.identity));
                let stream = ClientStream::Tls(Box::new(accepted.stream));
                let drain = worker.drain.watch();
                let serving = async {
                    match accepted.http2 {
                        true => {
                            let limits = settings.http2();
                            http2::serve(stream, Rc::new(client), limits, &worker.deadlines, drain).await;
                        }
                        false => http1::serve(stream, &client, &worker.deadlines, drain).await,
                    }
                };
                match mesh_client {
                    Some(mesh_client) => worker.while_trusted(peer, mesh_client, serving).await,
                    None => serving.await,
                }
            }
            Err(reason) => worker.stats.handshakes_failed.count(reason),
        },
        Entrance::Hbone => tunnels(&worker, stream, peer, &settings).await,
    }
}

/// One connection to the HBONE port.
async fn tunnels(worker: &Rc<Worker>, stream: TcpStream, peer: SocketAddr, settings: &Derived) {
    let Ok(local) = stream.local_addr() else { return };
    let Some(tls) = worker.with_snapshot(|snapshot| snapshot.hbone.clone()) else {
        return worker.stats.handshakes_failed.count(HandshakeError::NoTrust.reason());
    };
    match worker.bound_handshake(tls.accept(stream), settings).await {
        Ok((stream, client)) => {
            worker.stats.handshakes_full.add_one();
            let stream = ClientStream::Tls(Box::new(stream));
            let tunnels = Hbone::new(worker.clone(), peer, local, client.clone());
            let serving = Rc::new(tunnels).serve(stream, settings.http2());
            match client {
                Some(client) => worker.while_trusted(peer, client, serving).await,
                None => serving.await,
            }
        }
        Err(reason) => worker.stats.handshakes_failed.count(reason),
    }
}

impl Worker {
    /// What the load balancer says about the client; `None` where it says nothing or is not believed. Whoever sends
    /// no header is closed without a word: it may be a port scan or a health check.
    async fn read_proxy_header(
        &self,
        stream: &mut TcpStream,
        peer: SocketAddr,
        settings: &Derived,
    ) -> Result<Option<Proxied>, ()> {
        let settings = &settings.settings;
        let header =
            self.deadlines.timeout(settings.proxy_protocol_header_timeout, read_header(stream)).await;
        let trusted = &settings.proxy_real_ip_cidr;
        let believed = trusted.is_empty() || is_trusted(peer.ip(), trusted);
        match header {
            Ok(Ok(proxied)) => Ok(proxied.filter(|_| believed)),
            Ok(Err(error)) => {
                tracing::debug!(%peer, %error, "connection closed");
                Err(())
            }
            Err(_) => Err(()),
        }
    }

    async fn handshake(
        &self,
        stream: TcpStream,
        port: TlsPort,
        settings: &Derived,
    ) -> Result<Accepted, &'static str> {
        self.bound_handshake(accept(stream, port, || self.snapshot()), settings).await
    }

    /// A handshake takes its time at most, and is one of so many.
    async fn bound_handshake<T>(
        &self,
        handshake: impl Future<Output = Result<T, HandshakeError>>,
        settings: &Derived,
    ) -> Result<T, &'static str> {
        let settings = &settings.settings;
        self.stats.handshakes.enter();
        let handshake = self.deadlines.timeout(settings.tls_handshake_timeout, handshake);
        let result = self.handshakes.run(settings.max_handshakes, handshake).await;
        self.stats.handshakes.leave();
        match result {
            Ok(Ok(Ok(accepted))) => Ok(accepted),
            Ok(Ok(Err(error))) => {
                if !matches!(error, HandshakeError::Closed(_)) {
                    tracing::debug!(%error, "handshake failed");
                }
                Err(error.reason())
            }
            Ok(Err(_)) => Err("timeout"),
            Err(_) => Err("crowded_out"),
        }
    }

    /// Serves a client of the mesh for as long as its certificate is good.
    async fn while_trusted(
        &self,
        peer: SocketAddr,
        client: Rc<MeshClient>,
        serving: impl Future<Output = ()>,
    ) {
        let source = peer.ip().to_canonical();
        let guard = self.guards.register(Peer { source, client: Some(client) });
        // Roots or lists may have changed while the handshake went on.
        if self.with_snapshot(|snapshot| guard.check(snapshot)).is_err() {
            return;
        }
        let mut serving = pin!(serving);
        poll_fn(|cx| match guard.poll_denied(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => serving.as_mut().poll(cx),
        })
        .await;
    }

    fn count_handshake(&self, accepted: &Accepted) {
        let (stats, identity) = (&self.stats, &accepted.identity);
        if identity.default && identity.sni.is_some() {
            stats.sni_no_match.add_one();
        }
        if accepted.resumed {
            return stats.handshakes_resumed.add_one();
        }
        stats.handshakes_full.add_one();
        identity.certificate.handshakes.add_one();
        match (identity.default, identity.known) {
            (true, true) => stats.default_for_host.add_one(),
            (true, false) => stats.default_for_others.add_one(),
            (false, _) => {}
        }
        self.count_staple(accepted);
    }

    fn count_staple(&self, accepted: &Accepted) {
        let pair = &accepted.identity.certificate.pair;
        if accepted.stapled {
            self.stats.handshakes_stapled.add_one();
            return;
        }
        if pair.ocsp_responder.is_some() {
            self.stats.handshakes_unstapled.add_one();
        }
        if pair.must_staple {
            self.stats.must_staple_unstapled.add_one();
        }
    }
}
