//! HTTP/1.1 on the admin port: who is answered, what, and how long it may take.

use std::convert::Infallible;
use std::future::pending;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderName, HeaderValue,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::page::PAGE;
use super::{AdminState, api, metrics};
use crate::clock::now;
use crate::names::canonical_host;
use crate::net::limited::LimitedListener;

/// Connections at once; more wait in the kernel.
const CONNECTIONS: usize = 64;
/// A connection is kept this long, then closed after the answer it is at…
const LIFETIME: Duration = Duration::from_secs(120);
/// …for which its client has so much more time.
const GRACE: Duration = Duration::from_secs(60);
/// For a request head to arrive, and between two requests.
const HEADER_TIMEOUT: Duration = Duration::from_secs(12);
/// Bytes of a request head.
const HEAD: usize = 16 * 1024;

type Answer = Response<Full<Bytes>>;

/// Answers on `listener` until the task is dropped.
pub async fn serve(listener: TcpListener, state: Arc<AdminState>) {
    let listener = LimitedListener::new(listener, CONNECTIONS, "admin");
    let admin = Arc::new(Admin { state, renders: Semaphore::new(1) });
    loop {
        let (stream, place) = listener.accept().await;
        let admin = admin.clone();
        tokio::spawn(async move {
            let _place = place;
            admin.connection(stream).await;
        });
    }
}

struct Admin {
    state: Arc<AdminState>,
    /// Answers that walk the snapshot are made one at a time: however many are asked for, one core at most is
    /// taken from the workers.
    renders: Semaphore,
}

impl Admin {
    async fn connection(self: Arc<Self>, stream: TcpStream) {
        let mut view = self.state.view.clone();
        let draining = async move {
            // Who connects later wants to know just that, and is answered.
            if view.borrow().draining || view.wait_for(|view| view.draining).await.is_err() {
                pending().await
            }
        };
        let service = service_fn(move |request| {
            let admin = self.clone();
            async move { Ok::<_, Infallible>(admin.answer(&request).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .max_buf_size(HEAD)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        // Whatever goes wrong, the client has gone or is being told.
        tokio::select! {
            _ = connection.as_mut() => return,
            () = sleep(LIFETIME) => connection.as_mut().graceful_shutdown(),
            // What is asked next is for the worker generation that comes after this one.
            () = draining => connection.as_mut().graceful_shutdown(),
        }
        let _ = timeout(GRACE, connection).await;
    }

    /// hyper leaves the body out where the method is HEAD.
    async fn answer(&self, request: &Request<Incoming>) -> Answer {
        let names = self.state.shared.load().settings.admin_hosts.clone();
        let mut answer = match check_host(request.version(), request.headers(), request.uri().host(), &names)
        {
            Err(refusal) => text(StatusCode::MISDIRECTED_REQUEST, refusal),
            Ok(()) => match *request.method() {
                Method::GET | Method::HEAD => self.resource(request.uri().path()).await,
                _ => {
                    let mut answer =
                        text(StatusCode::METHOD_NOT_ALLOWED, "the admin port only answers GET and HEAD");
                    answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
                    answer
                }
            },
        };
        secure(answer.headers_mut());
        answer
    }

    async fn resource(&self, path: &str) -> Answer {
        const JSON: &str = "application/json";
        match path {
            "/healthz" => healthz(self.state.view().draining),
            "/readyz" => match self.state.view().unready() {
                None => text(StatusCode::OK, "ready"),
                Some(reason) => text(StatusCode::SERVICE_UNAVAILABLE, reason),
            },
            "/" => page(),
            "/metrics" => self.render(metrics::CONTENT_TYPE, |state| metrics::render(state, now())).await,
            "/api/v1/status" => self.render(JSON, |state| api::status(state, now())).await,
            "/api/v1/certificates" => self.render(JSON, api::certificates).await,
            "/api/v1/hosts" => self.render(JSON, api::hosts).await,
            "/api/v1/policies" => self.render(JSON, api::policies).await,
            "/api/v1/diagnostics" => self.render(JSON, api::diagnostics).await,
            _ => text(StatusCode::NOT_FOUND, NOT_FOUND),
        }
    }

    /// Makes a long answer on a thread of its own, so that the control runtime goes on meanwhile.
    async fn render(
        &self,
        content_type: &'static str,
        make: impl FnOnce(&AdminState) -> String + Send + 'static,
    ) -> Answer {
        let _turn = self.renders.acquire().await;
        let state = self.state.clone();
        match tokio::task::spawn_blocking(move || make(&state)).await {
            Ok(body) => response(StatusCode::OK, content_type, body),
            Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "the answer could not be made"),
        }
    }
}

const NOT_FOUND: &str = "not found; there are /, /healthz, /readyz, /metrics, /api/v1/status, \
    /api/v1/certificates, /api/v1/hosts, /api/v1/policies and /api/v1/diagnostics";

fn healthz(draining: bool) -> Answer {
    match draining {
        false => text(StatusCode::OK, "ok"),
        true => text(StatusCode::INTERNAL_SERVER_ERROR, "draining"),
    }
}

fn page() -> Answer {
    let mut answer = response(StatusCode::OK, "text/html; charset=utf-8", PAGE.html.clone());
    answer.headers_mut().insert(CONTENT_SECURITY_POLICY, PAGE.policy.clone());
    answer
}

fn text(status: StatusCode, body: impl Into<String>) -> Answer {
    response(status, "text/plain; charset=utf-8", body.into() + "\n")
}

fn response(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

/// Headers that keep a browser from doing with an answer what no page but our own should do.
fn secure(headers: &mut HeaderMap) {
    const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
    for (name, value) in [
        (CACHE_CONTROL, "no-store"),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (RESOURCE_POLICY, "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if !headers.contains_key(CONTENT_SECURITY_POLICY) {
        let nothing = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
        headers.insert(CONTENT_SECURITY_POLICY, nothing);
    }
}

/// Refuses names that this port was not told: a page of a stranger whose DNS name now leads to this address
/// must not read what is here (DNS rebinding). Addresses and `localhost` lead nowhere else.
fn check_host(
    version: Version,
    headers: &HeaderMap,
    authority: Option<&str>,
    names: &[String],
) -> Result<(), String> {
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err("more than one Host header".into());
    }
    let host = match host {
        Some(host) => Some(host.to_str().map_err(|_| "the Host header is no host name")?),
        // HTTP/1.0 has none; browsers speak HTTP/1.1.
        None if version == Version::HTTP_10 => None,
        None => return Err("no Host header".into()),
    };
    [host, authority].into_iter().flatten().try_for_each(|host| check_name(host, names))
}

fn check_name(host: &str, names: &[String]) -> Result<(), String> {
    let host = canonical_host(host).map_err(|error| format!("the Host header is no host name: {error}"))?;
    let is_ours = |name: &String| canonical_host(name).is_ok_and(|name| name == host);
    match host == "localhost" || is_address(&host) || names.iter().any(is_ours) {
        true => Ok(()),
        false => Err(format!(
            "the admin port does not answer to {host}; add it to the setting admin-hosts, or use an address"
        )),
    }
}

fn is_address(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(version: Version, hosts: &[&'static str], authority: Option<&str>) -> Result<(), String> {
        let mut headers = HeaderMap::new();
        hosts.iter().for_each(|host| {
            headers.append(HOST, HeaderValue::from_static(host));
        });
        check_host(version, &headers, authority, &["Admin.example.com".into()])
    }

    #[test]
    fn only_names_that_lead_here_are_answered() {
        for host in [
            "127.0.0.1:10254",
            "10.1.2.3",
            "[::1]:10254",
            "localhost:10254",
            "LOCALHOST",
            "admin.example.com:80",
            "admin.example.com.",
        ] {
            assert_eq!(check(Version::HTTP_11, &[host], None), Ok(()), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "x.admin.example.com",
            "",
            "a b",
            "admin.example.com:x",
        ] {
            assert!(check(Version::HTTP_11, &[host], None).is_err(), "{host}");
        }
    }

    #[test]
    fn no_second_host_gets_by() {
        assert!(check(Version::HTTP_11, &["localhost", "evil.example"], None).is_err());
        assert!(check(Version::HTTP_11, &["localhost"], Some("evil.example")).is_err());
        assert!(check(Version::HTTP_11, &[], None).is_err());
        assert!(check(Version::HTTP_10, &[], None).is_ok());
        assert!(check(Version::HTTP_10, &["evil.example"], None).is_err());
    }
}
