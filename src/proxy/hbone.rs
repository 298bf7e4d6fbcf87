//! The HBONE port: tunnels as the node proxies of an ambient mesh open them, HTTP/2 CONNECT over TLS.
//!
//! `:authority` is the address and port of a workload. Who the client is was verified in the handshake and holds for
//! every tunnel of the connection. Before anything is connected to, the target must be a workload of ours (400) and
//! its policies must admit the client on the port of the application (401); a workload that cannot be reached is 503;
//! the answer 200 says that bytes flow. A tunnel is registered with [`guards`](super::guards) from its first check to
//! its last byte, so a change of policy ends it where it denies it.

mod target;
mod tunnel;

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use tokio::net::TcpStream;
use tokio::task::spawn_local;

use super::client_stream::ClientStream;
use super::guards::{Denial, Guard, Peer};
use super::http2::{self, Activity, Limits, Timing};
use super::record::Record;
use super::worker::Worker;
use crate::tls::mesh::MeshClient;
use target::{Listening, Target, TargetError};
use tunnel::{Cut, Tunnel};

/// Flow control of what clients send, of all tunnels of a connection: sixteen times what one may have in flight, so that
/// one workload that takes nothing cannot hold up the others.
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;
/// What a connection may have waiting in DATA frames of less than 256 bytes, which the h2 crate counts as 256: a
/// tunnel full of keystrokes is no attack.
const SMALL_FRAMES: usize = 16 * 1024 * 1024;

/// One connection of a client.
pub struct Hbone {
    worker: Rc<Worker>,
    peer: SocketAddr,
    /// Where it was accepted.
    local: SocketAddr,
    /// `None` where the client showed no certificate: its tunnels have no identity.
    client: Option<Rc<MeshClient>>,
    activity: Activity,
}

/// A tunnel that is not opened.
struct Refusal {
    status: StatusCode,
    /// For the log.
    reason: &'static str,
    message: String,
}

impl Refusal {
    fn denied(denial: &Denial) -> Self {
        let message = denial.reason.to_client().to_owned();
        Self { status: StatusCode::UNAUTHORIZED, reason: "policy_denied", message }
    }

    fn bad_target(error: &TargetError) -> Self {
        Self { status: StatusCode::BAD_REQUEST, reason: error.name(), message: error.to_string() }
    }

    fn unavailable(message: impl Into<String>) -> Self {
        let (status, reason) = (StatusCode::SERVICE_UNAVAILABLE, "upstream_unavailable");
        Self { status, reason, message: message.into() }
    }
}

impl Hbone {
    pub fn new(
        worker: Rc<Worker>,
        peer: SocketAddr,
        local: SocketAddr,
        client: Option<Rc<MeshClient>>,
    ) -> Self {
        let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
        Self { worker, peer: canonical(peer), local: canonical(local), client, activity: Activity::default() }
    }

    /// Serves the connection until it ends. When the worker goes away the client is told so, and its tunnels go on
    /// for as long as connections may.
    pub async fn serve(self: Rc<Self>, stream: ClientStream, limits: Limits) {
        let settings = self.worker.derived().settings.clone();
        let timing =
            Timing { header_timeout: settings.client_header_timeout, keep_alive: settings.keep_alive };
        let mut server = limits.server(CONNECTION_WINDOW);
        server.data_frame_budget(SMALL_FRAMES);
        let on_stream = |request, respond| {
            let open = OpenTunnel::enter(self.clone());
            spawn_local(async move { open.0.tunnel(request, respond).await });
        };
        let (deadlines, drain) = (&self.worker.deadlines, self.worker.drain.watch());
        http2::drive(stream, &server, timing, &self.activity, deadlines, drain, on_stream).await;
    }

    /// One request, and the tunnel that comes of it.
    async fn tunnel(&self, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
        let mut record = Record::new(&self.worker, &request, self.peer.ip(), true);
        record.tunnel = true;
        if let Some(authority) = request.uri().authority() {
            record.set_host(authority.as_str());
        }
        let guard = self.worker.guards.register(Peer { source: self.peer.ip(), client: self.client.clone() });
        let opened = self.open(&request, &guard, &mut respond).await;
        record.set_admission(&guard);
        let stats = &self.worker.stats.tunnels;
        let backend = match opened {
            Ok(Some(backend)) => backend,
            // The client gave it up.
            Ok(None) => return,
            Err(refusal) => {
                match refusal.status {
                    StatusCode::UNAUTHORIZED => stats.denied.add_one(),
                    StatusCode::SERVICE_UNAVAILABLE => stats.unavailable.add_one(),
                    _ => stats.refused.add_one(),
                }
                record.status = refusal.status;
                record.set_reason(refusal.reason);
                record.sent = refuse(&mut respond, refusal);
                return;
            }
        };
        let Ok(send) = respond.send_response(Response::new(()), false) else { return };
        record.status = StatusCode::OK;
        stats.opened.add_one();
        stats.open.enter();
        self.relay(request.into_body(), send, backend, &guard, &mut record).await;
        stats.open.leave();
    }

    /// Connects to the workload, if the client may. `None` where the client is gone.
    async fn open(
        &self,
        request: &Request<RecvStream>,
        guard: &Guard,
        respond: &mut SendResponse<Bytes>,
    ) -> Result<Option<TcpStream>, Refusal> {
        if request.method() != Method::CONNECT {
            return Err(Refusal::bad_target(&TargetError::Method));
        }
        let settings = self.worker.derived().settings.clone();
        let authority = request.uri().authority().map_or("", |authority| authority.as_str());
        let admitted = self.worker.with_snapshot(|snapshot| {
            let listening = Listening { at: self.local, settings: &settings };
            let Target { address, namespace } = Target::find(authority, &snapshot.workloads, listening)
                .map_err(|error| Refusal::bad_target(&error))?;
            match guard.admit(snapshot, address, &namespace) {
                Ok(_) => Ok(address),
                Err(denial) => {
                    let why = denial.describe();
                    tracing::info!(client = %self.peer, %address, "tunnel denied: {why}");
                    Err(Refusal::denied(&denial))
                }
            }
        })?;
        let connecting = self.worker.deadlines.timeout(settings.proxy_connect_timeout, connect(admitted));
        let mut connecting = pin!(connecting);
        poll_fn(|cx| {
            if guard.poll_denied(cx).is_ready() {
                let (status, reason) = (StatusCode::UNAUTHORIZED, "policy_changed");
                let message = "a policy of the workload denies this client now".to_owned();
                return Poll::Ready(Err(Refusal { status, reason, message }));
            }
            if respond.poll_reset(cx).is_ready() {
                return Poll::Ready(Ok(None));
            }
            connecting.as_mut().poll(cx).map(|connected| match connected {
                Ok(Ok(backend)) => Ok(Some(backend)),
                Ok(Err(error)) => {
                    Err(Refusal::unavailable(format!("the workload cannot be reached: {}", error.kind())))
                }
                Err(_) => Err(Refusal::unavailable("the workload does not answer in time")),
            })
        })
        .await
    }

    async fn relay(
        &self,
        receive: RecvStream,
        send: SendStream<Bytes>,
        backend: TcpStream,
        guard: &Guard,
        record: &mut Record,
    ) {
        let idle = self.worker.derived().settings.hbone_idle_timeout;
        let began = Instant::now();
        let mut tunnel = Tunnel::new(receive, send, backend);
        let mut silence = self.worker.deadlines.deadline(idle);
        let ended = poll_fn(|cx| {
            if guard.poll_denied(cx).is_ready() {
                return Poll::Ready(Err(Cut::Policy));
            }
            let moved = tunnel.poll(cx)?;
            if tunnel.take_moved() {
                silence.reset(idle);
            }
            match moved {
                Poll::Ready(()) => Poll::Ready(Ok(())),
                Poll::Pending => silence.poll_passed(cx).map(|()| Err(Cut::Silence)),
            }
        })
        .await;
        record.upstream = Some(began.elapsed());
        (record.received, record.sent) = (tunnel.received(), tunnel.sent());
        if let Err(cut) = ended {
            record.set_reason(cut.name());
            tunnel.cut(cut);
        }
    }
}

/// Counts a tunnel, or the request for one, as open.
struct OpenTunnel(Rc<Hbone>);

impl OpenTunnel {
    fn enter(connection: Rc<Hbone>) -> Self {
        connection.activity.enter();
        Self(connection)
    }
}

impl Drop for OpenTunnel {
    fn drop(&mut self) {
        self.0.activity.leave();
    }
}

async fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let backend = TcpStream::connect(address).await?;
    // A small frame must not wait for the acknowledgement of the one before it.
    backend.set_nodelay(true)?;
    Ok(backend)
}

/// Answers; gives the length of the body.
fn refuse(respond: &mut SendResponse<Bytes>, Refusal { status, message, .. }: Refusal) -> u64 {
    let mut response = Response::new(());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    let text = Bytes::from(message + "\n");
    let length = text.len() as u64;
    // A client that is gone needs no answer.
    if let Ok(mut body) = respond.send_response(response, false) {
        let _ = body.send_data(text, true);
    }
    length
}
