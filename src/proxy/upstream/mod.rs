//! The way to the backends: picks an endpoint, finds or opens a connection, sends, and tries again where that is
//! safe.
//!
//! One [`Upstream`] for each worker, used by the request pipeline for every request that is forwarded. Nothing
//! here is shared with other workers but the round-robin counter of a cluster. Invariant: a request that a backend
//! may have acted upon is never sent twice unless its method, or the operator, says that is harmless.

pub mod connect;
pub mod error;
pub mod http1;
pub mod http2;
pub mod pool;
pub mod stream;
#[cfg(test)]
mod tests;
mod tunnel;

use std::mem;
use std::net::IpAddr;
use std::sync::Arc;

use http::request::Parts;
use http::uri::Scheme;
use http::{Method, Request, Response, header};

use self::connect::Connector;
use self::error::{Phase, Reason, Retry, UpstreamError};
use self::http1::{Connection, Timing};
use self::http2::{Http2Pool, SendFailure};
use self::pool::{Check, Key, Pool, PoolLimits, Protocol, TlsIdentity};
use super::affinity::Session;
use super::body::Body;
use super::headers::ClientFields;
use crate::names::canonical_host;
use crate::net::deadlines::Deadlines;
use crate::snapshot::clusters::{Cluster, Endpoint};
use crate::snapshot::hosts::{BackendProtocol, RoutePolicy};
use crate::tls::client::{ClientTls, MeshTls};
use crate::tls::hbone_client::Via;
use crate::tls::own_identity::OwnIdentity;
use crate::tls::spiffe::SpiffeId;

/// Whether a client may be served by an endpoint, and how the endpoint is reached.
pub type Admit<'a> = dyn Fn(&Endpoint) -> Result<Way, UpstreamError> + 'a;

/// How an endpoint is reached.
#[derive(Clone, Debug, Default)]
pub struct Way {
    /// The tunnel, if any.
    pub via: Option<Via>,
    /// Who has to be there, where that is known and asked for.
    pub workload: Option<SpiffeId>,
}

/// Where a request goes.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    pub cluster: &'a Cluster,
    pub policy: &'a RoutePolicy,
    /// What it belongs to, where sessions stay with one endpoint.
    pub session: Option<&'a Session>,
}

/// The head of a request as it goes to a backend.
#[derive(Clone, Copy)]
pub struct Head<'a> {
    pub parts: &'a Parts,
    pub about: &'a ClientFields,
}

/// A request is sent at most so many times, whatever the settings say.
const MAX_TRIES: usize = 16;

/// How often a request is sent, as the settings say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// At most so many times; 0 means once to every endpoint.
    pub tries: u32,
    /// Again although the method does not say that it is harmless.
    pub non_idempotent: bool,
}

impl Retries {
    /// Where every endpoint may be tried, a single one has a second chance: the first connection to it may have been
    /// stale.
    fn limit(self, cluster: &Cluster) -> usize {
        match self.tries {
            0 => cluster.endpoints.len().clamp(2, MAX_TRIES),
            tries => usize::try_from(tries).map_or(MAX_TRIES, |tries| tries.min(MAX_TRIES)),
        }
    }

    fn allow(self, error: &UpstreamError, method: &Method) -> bool {
        match error.retry {
            Retry::Safe => true,
            Retry::IfIdempotent => self.non_idempotent || method.is_idempotent(),
            Retry::Never => false,
        }
    }
}

/// One worker's connections to all backends.
pub struct Upstream {
    deadlines: Deadlines,
    connector: Connector,
    pool: Pool,
    http2: Http2Pool,
    tls: ClientTls,
    mesh: MeshTls,
}

impl Upstream {
    /// `tls` is how backends with HTTPS and GRPCS are spoken to.
    pub fn new(limits: PoolLimits, tls: ClientTls, deadlines: Deadlines) -> Self {
        Self {
            connector: Connector::new(deadlines.clone()),
            pool: Pool::new(limits, deadlines.clone()),
            http2: Http2Pool::new(limits.idle_timeout, deadlines.clone()),
            tls,
            // Without an identity these handshakes fail.
            mesh: MeshTls::new(&OwnIdentity::default()),
            deadlines,
        }
    }

    /// `mesh` is how workloads of the mesh are spoken to.
    #[must_use]
    pub fn with_mesh(self, mesh: MeshTls) -> Self {
        Self { mesh, ..self }
    }

    /// Keeps the names of ExternalName Services from leading to addresses that transport policy may be about.
    #[must_use]
    pub fn guarding_names(mut self, guarded: impl Fn(IpAddr) -> bool + 'static) -> Self {
        self.connector.guard_names(Box::new(guarded));
        self
    }

    /// Keeps as many idle connections as `limits` say from now on; those too many go with the next [`Self::sweep`].
    pub fn set_limits(&self, limits: PoolLimits) {
        self.pool.set_limits(limits);
        self.http2.set_idle_timeout(limits.idle_timeout);
    }

    /// Forwards `request`, with `about` the client, to an endpoint of `target` and gives its response as soon as the
    /// head is there. `admit` says whether the client may be served by an endpoint: it is asked for each one that is
    /// tried, before anything is sent, and its error is the answer.
    ///
    /// Hop-by-hop fields must be gone already, but for `Upgrade` where an upgrade is wanted: then a 101 comes
    /// with [`Body::Upgraded`]. Backends with HTTP/2 never see an `Upgrade`, and no backend a CONNECT.
    pub async fn forward(
        &self,
        target: Target<'_>,
        retries: Retries,
        admit: &Admit<'_>,
        about: &ClientFields,
        request: Request<Body>,
    ) -> Result<Response<Body>, UpstreamError> {
        let (parts, mut body) = request.into_parts();
        if parts.method == Method::CONNECT {
            return Err(Reason::Method.into());
        }
        let head = Head { parts: &parts, about };
        let Target { cluster, policy, session } = target;
        let mut tried = Tried::default();
        loop {
            let Some(endpoint) = tried.next(cluster, session) else {
                return Err(Reason::NoEndpoint(cluster.unavailable.unwrap_or("no endpoint")).into());
            };
            let way = admit(endpoint)?;
            let key = self.key(endpoint, way, policy, &parts);
            let error = match self.attempt(&key, policy, head, &mut body, tried.count > 1).await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            if !retries.allow(&error, &parts.method) || !tried.may_go_on(cluster, retries, &error) {
                return Err(error);
            }
            tracing::debug!(%endpoint, %error, "trying again");
        }
    }

    /// Closes what has been idle for too long. To be called every second or so.
    pub fn sweep(&self) {
        self.pool.sweep();
        self.connector.tunnels.sweep();
        self.http2.sweep();
    }

    /// Whether there is any connection that could become too old.
    pub fn is_empty(&self) -> bool {
        self.pool.idle() == 0 && self.connector.tunnels.is_empty() && self.http2.is_empty()
    }

    /// Idle HTTP/1.1 connections.
    pub fn idle(&self) -> usize {
        self.pool.idle()
    }

    /// Sends once. Where the error allows a retry, `body` is whole again.
    async fn attempt(
        &self,
        key: &Key,
        policy: &RoutePolicy,
        head: Head<'_>,
        body: &mut Body,
        fresh: bool,
    ) -> Result<Response<Body>, UpstreamError> {
        let sent = match key.protocol {
            Protocol::Http1 => self.send_http1(key, policy, head, body, fresh).await,
            // Boxed, as is connecting, to keep the future of the common case small.
            Protocol::Http2 => Box::pin(self.send_http2(key, policy, head, body)).await,
        };
        match sent {
            Ok(response) => Ok(response),
            Err(SendFailure { error, unsent: Some(whole) }) => {
                *body = whole;
                Err(error)
            }
            Err(SendFailure { error, unsent: None }) => Err(error.retry(Retry::Never)),
        }
    }

    async fn send_http1(
        &self,
        key: &Key,
        policy: &RoutePolicy,
        head: Head<'_>,
        body: &mut Body,
        fresh: bool,
    ) -> Result<Response<Body>, SendFailure> {
        let stack = self.pool.stack(key);
        // A stale connection rarely comes alone: what is tried again goes over a new one.
        let idle = if fresh { None } else { stack.take(check(&head.parts.method, body)) };
        let idle = idle.filter(|idle| self.connector.may_use(&key.endpoint, || idle.peer()));
        let connection = match idle {
            Some(connection) => connection,
            None => match Box::pin(self.connect(key, policy)).await {
                Ok(connection) => connection,
                Err(error) => return Err(SendFailure { error, unsent: Some(mem::take(body)) }),
            },
        };
        let replay = body.replay();
        let sent = mem::take(body);
        let response = http1::send(connection, stack, head, sent, timing(policy), &self.deadlines).await;
        response.map_err(|error| SendFailure { error, unsent: replay })
    }

    async fn send_http2(
        &self,
        key: &Key,
        policy: &RoutePolicy,
        head: Head<'_>,
        body: &mut Body,
    ) -> Result<Response<Body>, SendFailure> {
        let lease =
            self.deadlines.timeout(policy.connect_timeout, self.http2.lease(key, &self.connector)).await;
        let lease = match lease.unwrap_or_else(|_| Err(connect_timeout())) {
            Ok(lease) => lease,
            Err(error) => return Err(SendFailure { error, unsent: Some(mem::take(body)) }),
        };
        let scheme = if key.tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
        let replay = body.replay();
        let response = http2::send(lease, head, scheme, mem::take(body), timing(policy)).await;
        response.map_err(|failure| SendFailure { unsent: failure.unsent.or(replay), ..failure })
    }

    async fn connect(&self, key: &Key, policy: &RoutePolicy) -> Result<Box<Connection>, UpstreamError> {
        let stream = self.deadlines.timeout(policy.connect_timeout, self.connector.connect(key)).await;
        stream.unwrap_or_else(|_| Err(connect_timeout())).map(|stream| Box::new(Connection::new(stream)))
    }

    fn key(&self, endpoint: &Endpoint, way: Way, policy: &RoutePolicy, parts: &Parts) -> Key {
        let (protocol, secured) = match policy.protocol {
            BackendProtocol::Http1 => (Protocol::Http1, false),
            BackendProtocol::Https => (Protocol::Http1, true),
            BackendProtocol::H2c => (Protocol::Http2, false),
            BackendProtocol::Grpcs => (Protocol::Http2, true),
        };
        let tls = || match policy.backend_mtls {
            true => self.mesh.to(way.workload.as_ref()),
            false => self.tls.clone(),
        };
        let tls = secured.then(|| TlsIdentity { tls: tls(), server_name: server_name(parts) });
        // Who wants TLS of its own gets it directly.
        let via = way.via.filter(|_| tls.is_none());
        Key { endpoint: endpoint.clone(), tls, protocol, via }
    }
}

/// The endpoints that a request was sent to.
#[derive(Default)]
struct Tried<'a> {
    endpoints: [Option<&'a Arc<Endpoint>>; MAX_TRIES],
    count: usize,
    /// The last one could not be connected to.
    last_is_down: bool,
}

impl<'a> Tried<'a> {
    /// The one that the session prefers or the next in turn; or another that was not tried before, if there is one.
    fn next(&mut self, cluster: &'a Cluster, session: Option<&Session>) -> Option<&'a Arc<Endpoint>> {
        let next = match session {
            None => self.next_in_turn(cluster)?,
            Some(session) => self.next_of(session, cluster)?,
        };
        if let Some(place) = self.endpoints.get_mut(self.count) {
            *place = Some(next);
        }
        self.count += 1;
        Some(next)
    }

    fn next_in_turn(&self, cluster: &'a Cluster) -> Option<&'a Arc<Endpoint>> {
        let turn = cluster.pick()?;
        Some(if self.contains(turn) { self.untried(cluster).unwrap_or(turn) } else { turn })
    }

    /// A session does not leave its endpoint for the sake of a stale connection.
    fn next_of(&self, session: &Session, cluster: &'a Cluster) -> Option<&'a Arc<Endpoint>> {
        if let (1, [Some(first), ..], false) = (self.count, &self.endpoints, self.last_is_down) {
            return Some(first);
        }
        let is_tried =
            |at| self.count > 0 && cluster.endpoints.get(at).is_some_and(|endpoint| self.contains(endpoint));
        cluster.endpoints.get(session.choose(cluster, is_tried)?)
    }

    /// Whoever could not be connected to a moment ago is not tried again at once; a stale connection says nothing
    /// about its endpoint.
    fn may_go_on(&mut self, cluster: &Cluster, retries: Retries, error: &UpstreamError) -> bool {
        self.last_is_down = matches!(error.reason.phase(), Phase::Connect | Phase::Tls);
        self.count < retries.limit(cluster) && (!self.last_is_down || self.untried(cluster).is_some())
    }

    fn untried<'b>(&self, cluster: &'b Cluster) -> Option<&'b Arc<Endpoint>> {
        cluster.endpoints.iter().find(|endpoint| !self.contains(endpoint))
    }

    fn contains(&self, endpoint: &Arc<Endpoint>) -> bool {
        self.endpoints.iter().flatten().any(|tried| *tried == endpoint)
    }
}

/// A request that cannot be sent again deserves the price of a system call.
fn check(method: &Method, body: &Body) -> Check {
    if method.is_idempotent() && body.replay().is_some() { Check::Cheap } else { Check::Thorough }
}

/// The name for SNI and verification: the host of the request.
fn server_name(parts: &Parts) -> Box<str> {
    let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = host.or_else(|| parts.uri.authority().map(|authority| authority.as_str())).unwrap_or("");
    canonical_host(host).map_or_else(|_| host.into(), |name| name.into())
}

fn timing(policy: &RoutePolicy) -> Timing {
    Timing { send: policy.send_timeout, read: policy.read_timeout }
}

fn connect_timeout() -> UpstreamError {
    UpstreamError::new(Reason::ConnectTimeout).retry(Retry::Safe)
}
