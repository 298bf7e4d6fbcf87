//! A worker: one thread, one current-thread runtime, its own sockets, its own connections to backends. What it
//! shares with the rest of the gateway is the snapshot pointer and atomic counters; whatever happens to the
//! control plane, it keeps serving the last snapshot.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::HeaderValue;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_local};

use super::deadlines::{Deadlines, TICK};
use super::guards::{Guards, Peer};
use super::hbone::Hbone;
use super::headers::is_trusted;
use super::http1::{self, HeadLimits};
use super::http2;
use super::pipeline::Client;
use super::upstream::Upstream;
use super::upstream::pool::PoolLimits;
use crate::net::drain::{Closing, Drain};
use crate::net::handshakes::Handshakes;
use crate::net::proxy_protocol::{Proxied, read_header};
use crate::net::stream::Stream;
use crate::settings::Settings;
use crate::settings::choices::{LogFormat, LogLevel};
use crate::snapshot::shared::{Reader, Shared};
use crate::snapshot::{Snapshot, TlsPort};
use crate::telemetry::access_log::{AccessLog, Entry};
use crate::telemetry::worker_stats::WorkerStats;
use crate::tls::accept::{HandshakeError, accept};
use crate::tls::client::ClientTls;
use crate::tls::mesh::MeshClient;

/// How long accepting pauses when the process is out of file descriptors.
const OUT_OF_FILES_PAUSE: Duration = Duration::from_millis(100);
/// How often idle backend connections are looked over, in ticks.
const SWEEP: u32 = 10;

/// What a worker is made of.
pub struct WorkerParts {
    pub http: Vec<std::net::TcpListener>,
    pub https: Vec<std::net::TcpListener>,
    pub mesh: Vec<std::net::TcpListener>,
    pub hbone: Vec<std::net::TcpListener>,
    pub shared: Shared,
    pub stats: Arc<WorkerStats>,
    pub access_log: AccessLog,
    pub upstream_tls: ClientTls,
    /// For backends that are workloads of the mesh.
    pub mesh_tls: ClientTls,
    /// Says when the worker should drain and end, and which of its sockets are closed then.
    pub stop: watch::Receiver<Option<Closing>>,
}

/// One worker, as its connections see it.
pub struct Worker {
    reader: RefCell<Reader>,
    derived: RefCell<Rc<Derived>>,
    access_log: AccessLog,
    handshakes: Handshakes,
    pub upstream: Upstream,
    pub deadlines: Deadlines,
    pub drain: Drain,
    pub guards: Guards,
    pub stats: Arc<WorkerStats>,
}

/// Settings in the form the request path wants them, made anew when they change.
pub struct Derived {
    pub settings: Arc<Settings>,
    pub hsts: Option<HeaderValue>,
    pub http1: http1::Limits,
    access_log: Option<LogFormat>,
}

/// Which of the ports a connection came in by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entrance {
    Http,
    Tls(TlsPort),
    /// Tunnels of node proxies.
    Hbone,
}

/// Runs a worker on this thread until it is told to stop and its connections have ended, or their time is over.
///
/// # Errors
/// The runtime or its sockets could not be set up.
pub fn run(parts: WorkerParts) -> io::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default())?;
    runtime.block_on(serve(parts))
}

async fn serve(parts: WorkerParts) -> io::Result<()> {
    let WorkerParts { http, https, mesh, hbone, shared, stats, access_log, upstream_tls, mesh_tls, mut stop } =
        parts;
    let deadlines = Deadlines::new();
    let snapshot = shared.load();
    let limits = pool_limits(&snapshot.settings);
    // Asked when a name has been resolved for a new connection, which is seldom.
    let newest = shared.clone();
    let guarded = move |address| {
        let snapshot = newest.load();
        snapshot.workloads.may_guard(address, &snapshot.settings.mesh_root_namespace)
    };
    let worker = Rc::new(Worker {
        reader: RefCell::new(shared.reader()),
        derived: RefCell::new(Rc::new(Derived::new(&snapshot.settings))),
        access_log,
        handshakes: Handshakes::default(),
        upstream: Upstream::new(limits, upstream_tls, deadlines.clone())
            .with_mesh(mesh_tls)
            .guarding_names(guarded),
        deadlines: deadlines.clone(),
        drain: Drain::default(),
        guards: Guards::default(),
        stats,
    });
    drop(snapshot);
    spawn_local(async move { deadlines.run().await });
    spawn_local(tick(worker.clone()));
    let mut accepting = Vec::new();
    for (listeners, entrance) in [
        (http, Entrance::Http),
        (https, Entrance::Tls(TlsPort::Https)),
        (mesh, Entrance::Tls(TlsPort::Mesh)),
        (hbone, Entrance::Hbone),
    ] {
        for listener in listeners {
            let listener = Rc::new(TcpListener::from_std(listener)?);
            let task = spawn_local(accept_all(worker.clone(), listener.clone(), entrance));
            accepting.push(Accepting { task, listener, entrance });
        }
    }
    // The sender is gone only when the process is ending.
    let closing = match stop.wait_for(Option::is_some).await {
        Ok(stop) => stop.clone().unwrap_or(Closing::All),
        Err(_) => Closing::All,
    };
    for accepting in accepting {
        accepting.stop(&worker, &closing).await;
    }
    drain(&worker).await;
    Ok(())
}

/// A listening socket and who takes connections from it.
struct Accepting {
    task: JoinHandle<()>,
    listener: Rc<TcpListener>,
    entrance: Entrance,
}

impl Accepting {
    /// Takes no more connections. A socket that another process goes on with keeps what is queued; from one that is
    /// closed it is taken, because the kernel would reset it.
    async fn stop(self, worker: &Rc<Worker>, closing: &Closing) {
        self.task.abort();
        // An aborted task is no failure; after this the listener is ours alone.
        let _ = self.task.await;
        let Some(listener) = Rc::into_inner(self.listener) else { return };
        // Asked of the kernel and not of the runtime, which knows what was queued when it last looked.
        let Ok(listener) = listener.into_std() else { return };
        if !listener.local_addr().is_ok_and(|address| closing.includes(address)) {
            return;
        }
        while let Ok((stream, peer)) = listener.accept() {
            let stream = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
            if let Ok(stream) = stream {
                take(worker, stream, peer, self.entrance);
            }
        }
    }
}

/// Lets the open connections finish, gives up at the deadline.
async fn drain(worker: &Rc<Worker>) {
    worker.drain.start();
    let limit = worker.derived().settings.worker_shutdown_timeout;
    let begun = worker.deadlines.now();
    while worker.stats.connections.get() > 0 && worker.deadlines.now().since(begun) < limit {
        tokio::time::sleep(TICK / 4).await;
    }
    worker.access_log.flush();
}

/// The worker's housekeeping: log lines go out, an old snapshot is let go, idle backend connections close.
async fn tick(worker: Rc<Worker>) {
    let mut interval = tokio::time::interval(TICK);
    let mut ticks = 0u32;
    loop {
        interval.tick().await;
        worker.access_log.flush();
        worker.refresh();
        worker.with_snapshot(|snapshot| worker.guards.recheck(snapshot));
        worker.guards.flush(&worker.stats.policies);
        ticks = ticks.wrapping_add(1);
        if ticks.is_multiple_of(SWEEP) {
            worker.upstream.sweep();
            worker.stats.upstream_idle.set(worker.upstream.idle() as u64);
        }
    }
}

async fn accept_all(worker: Rc<Worker>, listener: Rc<TcpListener>, entrance: Entrance) {
    loop {
        // More than this wait in the kernel's queue, where they cost nothing.
        while worker.stats.connections.get() >= worker.derived().settings.max_connections as u64 {
            tokio::time::sleep(TICK).await;
        }
        match listener.accept().await {
            Ok((stream, peer)) => take(&worker, stream, peer, entrance),
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "no connection can be accepted, trying again");
                tokio::time::sleep(OUT_OF_FILES_PAUSE).await;
            }
        }
    }
}

/// Begins to serve a connection.
fn take(worker: &Rc<Worker>, stream: TcpStream, peer: SocketAddr, entrance: Entrance) {
    worker.stats.accepted.add_one();
    let open = OpenConnection::enter(&worker.stats);
    spawn_local(client(worker.clone(), stream, peer, entrance, open));
}

/// The client was gone before its connection was accepted.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// Counts a connection as open.
struct OpenConnection(Arc<WorkerStats>);

impl OpenConnection {
    fn enter(stats: &Arc<WorkerStats>) -> Self {
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

/// One connection from its first byte to its last.
async fn client(
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
            http1::serve(Stream::Plain(stream), &client, &worker.deadlines, worker.drain.watch()).await;
        }
        Entrance::Tls(tls) => match worker.handshake(stream, tls, &settings).await {
            Ok(accepted) => {
                worker.count_handshake(&accepted);
                // Clients see 443, whichever port it is mapped to.
                let port = proxied.map_or(443, |proxied| proxied.destination.port());
                let mesh_client = accepted.identity.client.clone();
                let client = Client::new(worker.clone(), peer, port, Some(accepted.identity));
                let stream = Stream::Tls(Box::new(accepted.stream));
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
            let stream = Stream::Tls(Box::new(stream));
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
    /// Runs `read` on the current snapshot. Nothing of it is held afterwards but what `read` returns.
    pub fn with_snapshot<T>(&self, read: impl FnOnce(&Snapshot) -> T) -> T {
        read(self.reader.borrow_mut().current())
    }

    /// The current settings.
    pub fn derived(&self) -> Rc<Derived> {
        self.refresh();
        self.derived.borrow().clone()
    }

    pub fn is_access_logged(&self) -> bool {
        self.derived.borrow().access_log.is_some()
    }

    pub fn log(&self, entry: &Entry<'_>) {
        if let Some(format) = self.derived.borrow().access_log {
            self.access_log.write(entry, format);
        }
    }

    fn refresh(&self) {
        let mut reader = self.reader.borrow_mut();
        let settings = &reader.current().settings;
        if !Arc::ptr_eq(settings, &self.derived.borrow().settings) {
            let fresh = Rc::new(Derived::new(settings));
            *self.derived.borrow_mut() = fresh;
        }
    }

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
    ) -> Result<crate::tls::accept::Accepted, &'static str> {
        let snapshot = || self.reader.borrow_mut().current().clone();
        self.bound_handshake(accept(stream, port, snapshot), settings).await
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

    /// Serves a client of the mesh until its certificate is revoked.
    async fn while_trusted(
        &self,
        peer: SocketAddr,
        client: Rc<MeshClient>,
        serving: impl Future<Output = ()>,
    ) {
        let source = peer.ip().to_canonical();
        let guard = self.guards.register(Peer { source, client: Some(client) });
        // A list may have come while the handshake went on.
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

    fn count_handshake(&self, accepted: &crate::tls::accept::Accepted) {
        match accepted.resumed {
            true => self.stats.handshakes_resumed.add_one(),
            false => {
                self.stats.handshakes_full.add_one();
                self.count_staple(accepted);
            }
        }
    }

    fn count_staple(&self, accepted: &crate::tls::accept::Accepted) {
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

impl Derived {
    fn new(settings: &Arc<Settings>) -> Self {
        let http1 = http1::Limits {
            head: HeadLimits {
                bytes: settings.client_max_header_bytes,
                fields: settings.client_max_header_count,
            },
            header_timeout: settings.client_header_timeout,
            keep_alive: settings.keep_alive,
            body_timeout: settings.client_body_timeout,
        };
        // The access log is a matter of level info: who asks for warnings only gets warnings only.
        let logged = settings.access_log && settings.log_level >= LogLevel::Info;
        Self {
            hsts: hsts(settings),
            http1,
            access_log: logged.then_some(settings.log_format),
            settings: settings.clone(),
        }
    }

    fn http2(&self) -> http2::Limits {
        http2::Limits {
            streams: self.settings.http2_max_concurrent_streams,
            header_bytes: u32::try_from(self.settings.client_max_header_bytes).unwrap_or(u32::MAX),
        }
    }
}

/// RFC 6797, section 6.1.
fn hsts(settings: &Settings) -> Option<HeaderValue> {
    if !settings.hsts {
        return None;
    }
    let mut value = format!("max-age={}", settings.hsts_max_age);
    if settings.hsts_include_subdomains {
        value.push_str("; includeSubDomains");
    }
    if settings.hsts_preload {
        value.push_str("; preload");
    }
    HeaderValue::from_str(&value).ok()
}

fn pool_limits(settings: &Settings) -> PoolLimits {
    PoolLimits {
        idle_timeout: settings.upstream_keepalive_timeout,
        max_idle_per_key: settings.upstream_keepalive_connections,
        max_idle: settings.upstream_keepalive_connections,
    }
}
