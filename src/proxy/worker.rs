//! A worker: one thread, one current-thread runtime, its own sockets, its own connections to backends. What it
//! shares with the rest of the gateway is the snapshot pointer and atomic counters; whatever happens to the
//! control plane, it keeps serving the last snapshot.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_local};

use super::derived::Derived;
use super::entrance::{self, Entrance, OpenConnection};
use super::guards::Guards;
use super::limiter::Limiter;
use super::passwords::Passwords;
use super::upstream::Upstream;
use crate::clock;
use crate::net::deadlines::{Deadlines, TICK, Tick};
use crate::net::drain::{Closing, Drain};
use crate::net::handshakes::Handshakes;
use crate::snapshot::shared::{Reader, Shared};
use crate::snapshot::{Snapshot, TlsPort};
use crate::telemetry::access_log::{AccessLog, Entry};
use crate::telemetry::worker_stats::WorkerStats;
use crate::tls::client::{ClientTls, MeshTls};

/// How long accepting pauses when the process is out of file descriptors.
const OUT_OF_FILES_PAUSE: Duration = Duration::from_millis(100);
/// How often idle backend connections are looked over.
const SWEEP: Duration = Duration::from_secs(1);

/// What a worker is made of.
pub struct WorkerParts {
    pub http: Vec<std::net::TcpListener>,
    pub https: Vec<std::net::TcpListener>,
    pub mesh: Vec<std::net::TcpListener>,
    pub hbone: Vec<std::net::TcpListener>,
    pub shared: Shared,
    pub stats: Arc<WorkerStats>,
    pub access_log: AccessLog,
    /// The same for all workers.
    pub limiter: Arc<Limiter>,
    pub upstream_tls: ClientTls,
    /// For backends that are workloads of the mesh.
    pub mesh_tls: MeshTls,
    /// Says when the worker should drain and end, and which of its sockets are closed then.
    pub stop: watch::Receiver<Option<Closing>>,
}

/// One worker, as its connections see it.
pub struct Worker {
    reader: RefCell<Reader>,
    derived: RefCell<Rc<Derived>>,
    access_log: AccessLog,
    pub handshakes: Handshakes,
    swept: Cell<Tick>,
    pub upstream: Upstream,
    pub deadlines: Deadlines,
    pub drain: Drain,
    pub guards: Guards,
    pub limiter: Arc<Limiter>,
    pub passwords: Passwords,
    pub stats: Arc<WorkerStats>,
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
    let WorkerParts { http, https, mesh, hbone, shared, stats, .. } = parts;
    let WorkerParts { access_log, limiter, upstream_tls, mesh_tls, mut stop, .. } = parts;
    let deadlines = Deadlines::new();
    let snapshot = shared.load();
    // Asked when a name has been resolved for a new connection, which is seldom.
    let newest = shared.clone();
    let guarded = move |address| {
        let snapshot = newest.load();
        snapshot.workloads.may_guard(address, &snapshot.settings.mesh_root_namespace)
    };
    let derived = Derived::new(&snapshot.settings);
    let worker = Rc::new(Worker {
        reader: RefCell::new(shared.reader()),
        upstream: Upstream::new(derived.idle_backends, upstream_tls, deadlines.clone())
            .with_mesh(mesh_tls)
            .guarding_names(guarded),
        derived: RefCell::new(Rc::new(derived)),
        access_log,
        handshakes: Handshakes::default(),
        swept: Cell::default(),
        deadlines: deadlines.clone(),
        drain: Drain::default(),
        guards: Guards::default(),
        limiter,
        passwords: Passwords::default(),
        stats,
    });
    drop(snapshot);
    spawn_local(follow_snapshots(worker.clone(), shared.published()));
    let ticking = worker.clone();
    spawn_local(async move { deadlines.run(|| ticking.tick()).await });
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

/// Lets an old snapshot go where nobody asks for the new one. Exchanges under way are checked against it at a tick, for
/// snapshots may come faster than that.
async fn follow_snapshots(worker: Rc<Worker>, mut published: watch::Receiver<()>) {
    while published.changed().await.is_ok() {
        match worker.guards.is_empty() {
            true => worker.refresh(),
            false => worker.deadlines.wake(),
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
    worker.deadlines.wake();
    let open = OpenConnection::enter(&worker.stats);
    spawn_local(entrance::client(worker.clone(), stream, peer, entrance, open));
}

/// The client was gone before its connection was accepted.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

impl Worker {
    /// Housekeeping: log lines go out, an old snapshot is let go, idle backend connections close. Says how soon there will
    /// be more of it though nobody asks for anything.
    fn tick(&self) -> Option<Duration> {
        self.access_log.flush();
        self.refresh();
        let wall_clock = clock::seconds();
        self.with_snapshot(|snapshot| self.guards.recheck(snapshot, wall_clock));
        self.guards.flush(&self.stats.policies);
        let now = self.deadlines.now();
        if now.since(self.swept.get()) >= SWEEP {
            self.swept.set(now);
            self.upstream.sweep();
        }
        self.stats.upstream_idle.set(self.upstream.idle() as u64);
        let sweep = (!self.upstream.is_empty()).then_some(SWEEP);
        sweep.into_iter().chain(self.guards.until_first_end(wall_clock)).min()
    }

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
            self.deadlines.wake();
        }
    }

    /// The current snapshot, for longer than a moment.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.reader.borrow_mut().current().clone()
    }

    fn refresh(&self) {
        let mut reader = self.reader.borrow_mut();
        let settings = &reader.current().settings;
        if !Arc::ptr_eq(settings, &self.derived.borrow().settings) {
            let fresh = Rc::new(Derived::new(settings));
            self.upstream.set_limits(fresh.idle_backends);
            *self.derived.borrow_mut() = fresh;
        }
    }
}
