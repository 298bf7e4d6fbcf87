//! What happens to a request, in order:
//!
//! 1. **read**: method (405), number of fields (431), the client's network (403), host and path (400) are made canonical or
//!    refused.
//! 2. **connection**: the host must be one this TLS connection may speak for (421).
//! 3. **route**: host and path choose a route in the current snapshot (404), after the client has shown the certificate that
//!    the host asks for (400, 403).
//! 4. **redirect**: preflights of other origins are answered, requests that the route sends elsewhere go there, plain HTTP
//!    to HTTPS. In the clear, the host must ask for no certificate (403).
//! 5. **request**: the route must be for this client (403), and the client within its limits (503) and with its password
//!    (401); the route must be open (503), may have a canary that takes the request, its backend must be known (503), the
//!    session is told by its cookie, size is bounded (413), header fields are made fit for the backend, and path and Host
//!    become what the route says (400, 414).
//! 6. **forward**: an endpoint that the policies there admit the client to (403) answers, or the failure is told
//!    (502, 503, 504).
//! 7. **response**: fields of the backend's connection go, ours are set, about other origins too, with the cookie of a
//!    new session; the record ends with the body.
//!
//! Phases 1 to 5 never wait, but for a password that is slow to check, and hold no snapshot afterwards: only the route and
//! its backend.

mod access;
mod client_auth;
mod redirects;
mod refusal;
mod rewrite;
mod target;

use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use http::header::{CONTENT_LENGTH, HOST, SERVER, SET_COOKIE, STRICT_TRANSPORT_SECURITY};
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};

use super::affinity::Session;
use super::answers;
use super::body::{Body, Limited, Recorded};
use super::canary;
use super::client_cert_header;
use super::client_stream::ClientStream;
use super::cross_origin::CrossOrigin;
use super::derived::Derived;
use super::guards::{Denial, Guard, Peer};
use super::headers::{self, Claimed, ClientFields, Connection};
use super::http1::HeadError;
use super::record::{Record, new_request_id};
use super::service::{Limits, Service};
use super::upstream::error::{Reason, UpstreamError};
use super::upstream::http1::Upgraded;
use super::upstream::{Target, Way};
use super::worker::Worker;
use crate::names::canonical_host;
use crate::net::relay::relay;
use crate::snapshot::Snapshot;
use crate::snapshot::clusters::{Cluster, ClusterKey, Endpoint};
use crate::snapshot::hosts::{Action, Host, Route};
use crate::snapshot::passwords::BasicAuth;
use crate::tls::accept::ServedIdentity;
use crate::tls::hbone_client::Via;
use redirects::Question;
use refusal::Refusal;
use rewrite::rewrite;
use target::{authority, authority_text, canonicalise_path};

/// A connection from a client, and what its requests are judged by.
pub struct Client {
    worker: Rc<Worker>,
    peer: SocketAddr,
    connection: Connection,
    /// What each request tells the backend about `connection`.
    fields: ClientFields,
    tls: Option<ServedIdentity>,
}

/// Where a request goes.
struct Destination {
    route: Arc<Route>,
    cluster: Arc<Cluster>,
    /// Who must say a password before.
    auth: Option<Arc<BasicAuth>>,
    /// In place of those of the connection, where the peer speaks for another.
    fields: Option<ClientFields>,
    /// What the backend is told about the client's certificate, where the host asks for one.
    shown: Option<client_auth::Shown>,
    /// Where sessions of the route stay with one endpoint.
    session: Option<Box<Session>>,
}

impl Destination {
    /// The cookie of the session, where the client has to be told.
    fn cookie(&self) -> Option<HeaderValue> {
        let cookie = &self.route.policy.affinity.as_ref()?.cookie;
        self.session.as_ref()?.cookie(&self.cluster, cookie, &self.route.path)
    }
}

impl Client {
    /// `port` is what clients are told they connected to.
    pub fn new(worker: Rc<Worker>, peer: SocketAddr, port: u16, tls: Option<ServedIdentity>) -> Self {
        let address = peer.ip().to_canonical();
        let connection = Connection {
            peer: HeaderValue::from_str(&address.to_string()).unwrap_or(HeaderValue::from_static("unknown")),
            port: HeaderValue::from(port),
            https: tls.is_some(),
        };
        let peer = SocketAddr::new(address, peer.port());
        Self { worker, peer, fields: connection.fields(), connection, tls }
    }

    /// Says that the client came over TLS although it ended before us.
    pub fn set_secure(&mut self, secure: bool) {
        self.connection.https |= secure;
        self.fields = self.connection.fields();
    }

    async fn answer(&self, mut request: Request<Body>, record: &mut Record) -> Response<Body> {
        let settings = self.worker.derived();
        let grpc = answers::is_grpc(request.headers());
        let destination = match self.let_in(&mut request, &settings, record, grpc).await {
            Ok(destination) => destination,
            Err(refusal) => {
                record.set_reason(refusal.reason);
                return refusal.into_response(grpc);
            }
        };
        let sent = Instant::now();
        let guard = self.worker.guards.register(self.guarded());
        let forwarded = {
            let admit = |endpoint: &Endpoint| self.admit(&guard, &destination, endpoint);
            let (cluster, policy) = (&destination.cluster, &destination.route.policy);
            let target = Target { cluster, policy, session: destination.session.as_deref() };
            let about = destination.fields.as_ref().unwrap_or(&self.fields);
            let retries = settings.retries;
            let forward = self.worker.upstream.forward(target, retries, &admit, about, request);
            let mut forward = pin!(forward);
            poll_fn(|cx| match guard.poll_denied(cx) {
                Poll::Ready(()) => Poll::Ready(Err(Reason::PolicyChanged.into())),
                Poll::Pending => forward.as_mut().poll(cx),
            })
            .await
        };
        record.upstream = Some(sent.elapsed());
        record.set_admission(&guard);
        match forwarded {
            Ok(mut response) => {
                match response.body_mut() {
                    Body::Upgraded(tunnel) => {
                        tunnel.guard = Some(guard);
                        tunnel.slot = record.slot.take();
                    }
                    _ => record.guard = Some(guard),
                }
                let status = response.status();
                let headers = response.headers_mut();
                headers::strip_response(headers, status);
                if !settings.settings.server_tokens {
                    headers.remove(SERVER);
                }
                if let Some(cookie) = destination.cookie() {
                    headers.append(SET_COOKIE, cookie);
                }
                response
            }
            Err(error) => self.failed(&error, record, grpc),
        }
    }

    fn guarded(&self) -> Peer {
        let client = self.tls.as_ref().and_then(|tls| tls.client.as_ref());
        Peer { source: self.peer.ip(), client: client.cloned() }
    }

    /// Whether policy lets this client to `endpoint`. The target of an ExternalName is judged as an address without a
    /// pod is, by the policies of its Service's namespace; should its name lead to a pod, connecting is refused.
    /// A workload that takes tunnels is reached through one.
    fn admit(
        &self,
        guard: &Guard,
        destination: &Destination,
        endpoint: &Endpoint,
    ) -> Result<Way, UpstreamError> {
        let address = match endpoint {
            Endpoint::Address(address) => *address,
            Endpoint::Name { port, .. } => SocketAddr::from((Ipv4Addr::UNSPECIFIED, *port)),
        };
        let namespace = &destination.cluster.key.service.namespace;
        let backend_mtls = destination.route.policy.backend_mtls;
        let decided = self.worker.with_snapshot(|snapshot| {
            guard.admit(snapshot, address, namespace)?;
            let workload = backend_mtls.then(|| snapshot.workloads.only_at(address.ip())).flatten();
            Ok(Way { via: via(snapshot, address), workload: workload.cloned() })
        });
        decided.map_err(|denial: Denial| {
            tracing::debug!(client = %self.peer, %endpoint, ?denial, "denied by policy");
            Reason::Denied(denial.reason).into()
        })
    }

    /// Phases 1 to 5.
    async fn let_in(
        &self,
        request: &mut Request<Body>,
        settings: &Derived,
        record: &mut Record,
        grpc: bool,
    ) -> Result<Destination, Box<Refusal>> {
        let destination = self.prepare(request, settings, record)?;
        if let Some(auth) = &destination.auth {
            self.authenticate(auth, request.headers(), grpc).await?;
        }
        Ok(destination)
    }

    /// The same, without passwords.
    fn prepare(
        &self,
        request: &mut Request<Body>,
        settings: &Derived,
        record: &mut Record,
    ) -> Result<Destination, Box<Refusal>> {
        if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
            return Err(Refusal::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                "CONNECT and TRACE are not served",
            ));
        }
        if request.headers().len() > settings.settings.client_max_header_count {
            return Err(Refusal::new(
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "too_many_fields",
                "the request has too many header fields",
            ));
        }
        let claimed = self.claims(request, settings);
        if let Some(id) = claimed.as_ref().and_then(|claimed| claimed.request_id.as_ref()) {
            record.set_request_id(id);
        }
        let client = claimed.as_ref().and_then(|claimed| claimed.client).unwrap_or(self.peer.ip());
        if settings.blocked.contains(client) {
            return Err(access::denied());
        }
        let authority = authority(request)?;
        let host = match &authority {
            Some(authority) => Some(canonical_host(authority_text(authority)).map_err(|error| {
                Refusal::bad_request(format!("the host of the request is malformed: {error}"))
            })?),
            None => None,
        };
        let host = host.as_deref();
        record.set_host(host.unwrap_or_default());
        canonicalise_path(request)?;

        let mut destination = self.worker.with_snapshot(|snapshot| {
            let found = host.map_or(snapshot.hosts.any.as_ref(), |host| snapshot.hosts.find(host));
            if let Some(identity) = &self.tls {
                may_speak_for(identity, snapshot, host, found)?;
            }
            let route = found.and_then(|host| host.routes.find(request.uri().path()));
            record.route = route.cloned();
            let question = Question {
                request,
                host,
                authority: authority.as_ref(),
                https: self.connection.https,
                claimed: claimed.as_ref(),
            };
            let auth = found.and_then(|host| host.client_auth.as_deref());
            let mut shown = match (auth, &self.tls) {
                (Some(auth), Some(tls)) => Some(client_auth::admit(auth, tls, &question)?),
                _ => None,
            };
            let Some((host_rules, route)) = found.zip(route) else { return Err(Refusal::no_route()) };
            let rules = route.policy.cors.as_ref().filter(|_| !matches!(route.action, Action::Refuse(_)));
            if let Some(cors) = rules {
                let cross_origin = CrossOrigin::new(cors, request.headers());
                if let Some(response) = cross_origin.preflight(request) {
                    return Err(Refusal::ready(response, "preflight"));
                }
                record.cross_origin = Some(cross_origin);
            }
            if let Some(redirect) = question.to_https(host_rules, route, settings) {
                return Err(redirect);
            }
            if let (Some(auth), None) = (auth, &self.tls) {
                shown = Some(client_auth::admit_in_clear(auth, route)?);
            }
            if let Action::Redirect(redirect) = &route.action {
                return Err(question.follow(redirect));
            }
            let entry = self.enter(route, client, &settings.settings, record.started())?;
            record.slot = entry.slot;
            let headers = request.headers();
            let taken = match &route.canary {
                Some(canary) => canary::choose(route, canary, headers, &snapshot.clusters),
                None => route,
            };
            if !Arc::ptr_eq(taken, route) {
                record.route = Some(taken.clone());
            }
            match &taken.action {
                Action::NotFound | Action::Redirect(_) => Err(Refusal::no_route()),
                Action::Refuse(annotation) => Err(Refusal::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "unsupported_protection",
                    format!("this route is closed, for the gateway cannot do what an annotation asks for: {annotation}"),
                )),
                Action::Forward(key) => match backend(snapshot, taken, key) {
                    Some(cluster) => {
                        let session = taken.policy.affinity.as_ref().map(|affinity| {
                            let is_split = route.canary.as_ref().is_some_and(|canary| canary.rules.sticky);
                            Box::new(Session::new(headers, affinity, question.is_https(), is_split))
                        });
                        let (route, cluster) = (taken.clone(), cluster.clone());
                        Ok(Destination { route, cluster, auth: entry.auth, fields: None, shown, session })
                    }
                    None => Err(Refusal::new(
                        StatusCode::SERVICE_UNAVAILABLE,
                        "no_backend",
                        "the backend is not known yet",
                    )),
                },
            }
        })?;
        let policy = &destination.route.policy;
        bound_body(request, policy.max_body, record)?;
        request.body_mut().allow_pause_answered(policy.read_timeout);
        destination.fields = self.set_headers(request, authority, settings, claimed, record);
        if let Some(shown) = destination.shown.take() {
            shown.insert_into(request.headers_mut());
        }
        if let Some(change) = &destination.route.rewrite {
            rewrite(request, change)?;
        }
        Ok(destination)
    }

    /// What the peer says about the client it stands for, where it is believed.
    fn claims(&self, request: &Request<Body>, settings: &Derived) -> Option<Claimed> {
        let settings = &settings.settings;
        let trusted = &settings.proxy_real_ip_cidr;
        if !settings.use_forwarded_headers || !headers::is_trusted(self.peer.ip(), trusted) {
            return None;
        }
        Some(headers::claims(request.headers(), trusted))
    }

    /// Phase 5: the header as the backend gets it, with the fields about the client where the connection's own do
    /// not fit.
    fn set_headers(
        &self,
        request: &mut Request<Body>,
        authority: Option<HeaderValue>,
        settings: &Derived,
        claimed: Option<Claimed>,
        record: &mut Record,
    ) -> Option<ClientFields> {
        let version = request.version();
        let fields = request.headers_mut();
        let upgrade = headers::strip_request(fields, settings.settings.enable_underscores_in_headers);
        headers::join_cookies(fields);
        if let (Some(protocol), Version::HTTP_11) = (upgrade, version) {
            fields.insert(http::header::UPGRADE, protocol);
        }
        let request_id = claimed.as_ref().and_then(|c| c.request_id.clone()).unwrap_or_else(new_request_id);
        record.set_request_id(&request_id);
        fields.insert(headers::X_REQUEST_ID, request_id);
        let (mode, cidrs) =
            (settings.settings.forward_client_cert, &settings.settings.forward_client_cert_cidr);
        let trusted = headers::is_trusted(self.peer.ip(), cidrs);
        let client = self.tls.as_ref().and_then(|tls| tls.client.as_ref());
        let ours = |snapshot: &Snapshot| snapshot.hbone.as_ref()?.identity.clone();
        let by = client.and_then(|_| self.worker.with_snapshot(ours));
        client_cert_header::set(fields, mode, client.map(|client| &**client), by.as_ref(), trusted);
        let claimed_host = claimed.as_ref().and_then(|claimed| claimed.host.clone());
        if let Some(host) = claimed_host.or_else(|| authority.clone()) {
            fields.insert(headers::X_FORWARDED_HOST, host);
        }
        if let Some(authority) = authority {
            fields.insert(HOST, authority);
        }
        let claimed = claimed?;
        if let Some(client) = claimed.client {
            record.set_client(client);
        }
        Some(claimed.fields(&self.connection, settings.settings.compute_full_forwarded_for))
    }

    fn failed(&self, error: &UpstreamError, record: &mut Record, grpc: bool) -> Response<Body> {
        let reason = error.reason.name();
        record.set_reason(reason);
        tracing::debug!(client = %self.peer, %error, "request failed");
        answers::failure(error.status(), &error.to_string(), grpc)
    }
}

impl Service for Client {
    async fn call(&self, request: Request<Body>) -> Response<Body> {
        let mut record = Record::new(&self.worker, &request, self.peer.ip(), self.tls.is_some());
        let mut response = self.answer(request, &mut record).await;
        if let Some(cross_origin) = record.cross_origin.take() {
            cross_origin.mark(response.headers_mut());
        }
        if self.tls.is_some()
            && let Some(hsts) = &self.worker.derived().hsts
        {
            response.headers_mut().insert(STRICT_TRANSPORT_SECURITY, hsts.clone());
        }
        record.status = response.status();
        response.map(|body| Recorded::wrap(body, record))
    }

    fn refuse(&self, error: HeadError, version: Version) -> Response<Body> {
        let response = answers::plain(error.status(), &error.to_string());
        let mut record = Record::unread(&self.worker, version, self.peer.ip(), self.tls.is_some());
        record.set_reason(error.name());
        record.status = response.status();
        response.map(|body| Recorded::wrap(body, record))
    }

    fn limits(&self) -> Limits {
        self.worker.derived().limits
    }

    fn panicked(&self) {
        self.worker.stats.panics.add_one();
    }

    async fn upgraded(&self, client: ClientStream, read_ahead: bytes::BytesMut, mut backend: Upgraded) {
        let guard = backend.guard.take();
        let _slot = backend.slot.take();
        let idle = backend.idle;
        let (backend, first) = backend.into_parts();
        let tunnel = relay((client, &read_ahead), (backend, &first), &self.worker.deadlines, idle);
        let mut tunnel = pin!(tunnel);
        poll_fn(|cx| match &guard {
            Some(guard) if guard.poll_denied(cx).is_ready() => Poll::Ready(()),
            // How a tunnel ends is for its two ends to know.
            _ => tunnel.as_mut().poll(cx).map(drop),
        })
        .await;
    }
}

/// The backend with this key, or the one that answers in its place while it has no endpoint.
fn backend<'s>(snapshot: &'s Snapshot, route: &Route, key: &ClusterKey) -> Option<&'s Arc<Cluster>> {
    let own = snapshot.clusters.get(key);
    if own.is_some_and(|own| !own.endpoints.is_empty()) {
        return own;
    }
    let fallback = route.fallback.as_ref().and_then(|fallback| snapshot.clusters.get(fallback));
    fallback.filter(|fallback| !fallback.endpoints.is_empty()).or(own)
}

/// The tunnel to the workload at `address`, where it takes tunnels and the gateway has an identity to show.
fn via(snapshot: &Snapshot, address: SocketAddr) -> Option<Via> {
    let client = snapshot.hbone_client.as_ref()?;
    let peer = snapshot.workloads.tunnel_to(address.ip())?;
    Some(Via { client: client.clone(), peer: peer.clone() })
}

/// Whether a request for `host`, whose rules are `found`, may come over a connection made for `identity`: the certificate
/// served must be good for it, and all that is asked of its clients now must have been asked of this one. Where other
/// authorities have come since for the host that the connection was made for, the client is judged by those.
fn may_speak_for(
    identity: &ServedIdentity,
    snapshot: &Snapshot,
    host: Option<&str>,
    found: Option<&Arc<Host>>,
) -> Result<(), Box<Refusal>> {
    let sni = identity.sni.as_ref().map(|name| name.as_str());
    let covered = match host {
        Some(host) if sni == Some(host) => true,
        Some(host) => {
            let any = sni.is_none() && identity.default && snapshot.settings.default_certificate_any_host;
            any || identity.certificate.pair.names.iter().any(|name| name.matches(host))
        }
        None => true,
    };
    let asked = snapshot.tls_policy(identity.port, found).is_some_and(|policy| {
        let renewed = || policy.authorities().and(identity.policy.authorities()).is_some() && sni == host;
        identity.policy.admits(policy) || renewed()
    });
    if covered && asked {
        return Ok(());
    }
    Err(misdirected())
}

fn misdirected() -> Box<Refusal> {
    Refusal::new(
        StatusCode::MISDIRECTED_REQUEST,
        "misdirected",
        "this connection was not made for the host of the request",
    )
}

/// Refuses a body that says it is too large, and cuts one off that turns out to be. One that says nothing is counted.
fn bound_body(
    request: &mut Request<Body>,
    limit: Option<u64>,
    record: &mut Record,
) -> Result<(), Box<Refusal>> {
    use http_body::Body as _;
    let declared = request.body().size_hint().exact().or_else(|| {
        let length = request.headers().get(CONTENT_LENGTH)?;
        length.to_str().ok()?.parse().ok()
    });
    record.received = declared.unwrap_or_default();
    match declared {
        Some(length) if limit.is_some_and(|limit| length > limit) => Err(Refusal::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "body_too_large",
            "the request body is larger than allowed here",
        )),
        Some(_) => Ok(()),
        None => {
            let (body, counted) = Limited::wrap(std::mem::take(request.body_mut()), limit);
            *request.body_mut() = body;
            record.counted = Some(counted);
            Ok(())
        }
    }
}
