//! What is kept of a request until its response is over: then it is counted and logged, however it ended.

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::USER_AGENT;
use http::{HeaderValue, Method, Request, StatusCode, Uri, Version};

use super::cross_origin::CrossOrigin;
use super::guards::{Admission, Guard};
use super::limiter::Slot;
use super::worker::Worker;
use crate::snapshot::hosts::Route;
use crate::telemetry::access_log::Entry;
use crate::telemetry::route_stats::Observation;
use crate::tls::spiffe::SpiffeId;

/// One request. Counts and logs it when dropped.
pub struct Record {
    worker: Rc<Worker>,
    started: Instant,
    method: Method,
    pub status: StatusCode,
    pub route: Option<Arc<Route>>,
    /// What the response says to pages of other origins, where the route has rules for that.
    pub cross_origin: Option<CrossOrigin>,
    pub upstream: Option<Duration>,
    /// Of the body of the request: what the client said, or what came.
    pub received: u64,
    /// What came so far, where the client did not say.
    pub counted: Option<Rc<Cell<u64>>>,
    pub sent: u64,
    /// Ends the exchange when policy does.
    pub guard: Option<Guard>,
    /// The place of the request among those of its client, where their number is limited.
    pub slot: Option<Slot>,
    /// A tunnel is logged like a request, and counted elsewhere: it is no request of any route.
    pub tunnel: bool,
    log: Option<Box<Logged>>,
}

/// What only the access log wants.
struct Logged {
    client: IpAddr,
    tls: bool,
    version: Version,
    host: String,
    target: Uri,
    user_agent: Option<HeaderValue>,
    request_id: Option<HeaderValue>,
    reason: &'static str,
    admission: Admission,
}

impl Record {
    /// Begins with the head of a request.
    pub fn new<B>(worker: &Rc<Worker>, request: &Request<B>, client: IpAddr, tls: bool) -> Self {
        let log = worker.is_access_logged().then(|| {
            Box::new(Logged {
                client,
                tls,
                version: request.version(),
                host: String::new(),
                target: request.uri().clone(),
                user_agent: request.headers().get(USER_AGENT).cloned(),
                request_id: None,
                reason: "",
                admission: Admission::default(),
            })
        });
        worker.stats.requests.add_one();
        worker.stats.requests_in_flight.enter();
        Self {
            worker: worker.clone(),
            started: Instant::now(),
            method: request.method().clone(),
            // What a client that leaves before there is a response is counted as.
            status: StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST),
            route: None,
            cross_origin: None,
            upstream: None,
            received: 0,
            counted: None,
            sent: 0,
            guard: None,
            slot: None,
            tunnel: false,
            log,
        }
    }

    /// For what came in place of a request: its head could not be read.
    pub fn unread(worker: &Rc<Worker>, version: Version, client: IpAddr, tls: bool) -> Self {
        let mut nothing = Request::new(());
        *nothing.version_mut() = version;
        // No method that a client could have sent by itself is made up.
        *nothing.method_mut() = Method::from_bytes(b"-").unwrap_or_default();
        *nothing.uri_mut() = Uri::from_static("*");
        Self::new(worker, &nothing, client, tls)
    }

    /// When its head had arrived.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// The host, in canonical form.
    pub fn set_host(&mut self, host: &str) {
        if let Some(log) = &mut self.log {
            host.clone_into(&mut log.host);
        }
    }

    /// The client behind a trusted peer.
    pub fn set_client(&mut self, client: IpAddr) {
        if let Some(log) = &mut self.log {
            log.client = client;
        }
    }

    pub fn set_request_id(&mut self, id: &HeaderValue) {
        if let Some(log) = &mut self.log {
            log.request_id = Some(id.clone());
        }
    }

    /// What policy had to say.
    pub fn set_admission(&mut self, guard: &Guard) {
        if let Some(log) = &mut self.log {
            log.admission = guard.admission();
        }
    }

    /// Whether no response to this request has a body.
    pub fn is_without_body(&self) -> bool {
        self.method == Method::HEAD
            || matches!(self.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
    }

    /// The response ended before it was whole.
    pub fn set_broken(&mut self, reason: &'static str) {
        self.worker.stats.responses_broken.add_one();
        self.set_reason(reason);
    }

    /// Why the answer is one of our own.
    pub fn set_reason(&mut self, reason: &'static str) {
        if let Some(log) = &mut self.log {
            log.reason = reason;
        }
    }
}

/// 128 random bits in hex. Unique, not secret.
pub fn new_request_id() -> HeaderValue {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut number = fastrand::u128(..);
    let mut text = [0; 32];
    for digit in &mut text {
        *digit = HEX.get((number & 15) as usize).copied().unwrap_or(b'0');
        number >>= 4;
    }
    HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static("-"))
}

fn principal(id: &Option<SpiffeId>) -> &str {
    id.as_ref().map_or("", SpiffeId::principal)
}

impl Drop for Record {
    fn drop(&mut self) {
        self.worker.stats.requests_in_flight.leave();
        let duration = self.started.elapsed();
        let stats = self.route.as_ref().map_or(&self.worker.stats.unrouted, |route| &route.stats);
        if !self.tunnel {
            stats.observe(&Observation {
                method: &self.method,
                status: self.status,
                duration,
                upstream: self.upstream,
                received: self.counted.as_ref().map_or(self.received, |counted| counted.get()),
                sent: self.sent,
            });
        }
        if let Some(log) = &self.log {
            let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
            // Answers of our own have one too, so that lines can be told apart.
            let request_id = log.request_id.clone().unwrap_or_else(new_request_id);
            let ingress = self.route.as_ref().map(|route| route.ingress.to_string()).unwrap_or_default();
            let upstream = log.admission.endpoint.map(|endpoint| endpoint.to_string()).unwrap_or_default();
            let path = log.target.path_and_query().map_or("", |path| path.as_str());
            let policy = log.admission.policy.as_ref().map(ToString::to_string).unwrap_or_default();
            self.worker.log(&Entry {
                client: log.client,
                method: &self.method,
                host: &log.host,
                path,
                protocol: log.version,
                tls: log.tls,
                status: self.status,
                bytes: self.sent,
                duration,
                ingress: &ingress,
                upstream: &upstream,
                request_id: &text(&request_id),
                reason: log.reason,
                source_principal: principal(&log.admission.source),
                destination_principal: principal(&log.admission.destination),
                policy: &policy,
                user_agent: &log.user_agent.as_ref().map(text).unwrap_or_default(),
            });
        }
    }
}
