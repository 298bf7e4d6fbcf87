//! The admin port of `ca serve`: `/metrics` in the Prometheus text format and `/healthz`, to GET and HEAD.
//!
//! Numbers only, no names of accounts and nothing secret. Connections are bounded in number and time.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::prometheus_text;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::net::limited::LimitedListener;

/// Connections at once; more wait in the kernel.
const CONNECTIONS: usize = 16;
/// A connection is kept no longer.
const LIFETIME: Duration = Duration::from_secs(120);
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Answers for as long as it is not dropped.
pub async fn serve(listener: TcpListener, registry: Registry) {
    let registry = Arc::new(registry);
    let listener = LimitedListener::new(listener, CONNECTIONS, "admin");
    loop {
        let (stream, place) = listener.accept().await;
        let registry = Arc::clone(&registry);
        tokio::spawn(async move {
            let _place = place;
            let answer = service_fn(move |request| {
                let answer = answer(&request, &registry);
                async move { Ok::<_, Infallible>(answer) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .serve_connection(TokioIo::new(stream), answer);
            // Whatever goes wrong, the client has gone or will ask again.
            let _ = timeout(LIFETIME, connection).await;
        });
    }
}

fn answer(request: &Request<Incoming>, registry: &Registry) -> Response<Full<Bytes>> {
    let (status, body) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/healthz") => (StatusCode::OK, "ok\n".to_owned()),
        (&Method::GET | &Method::HEAD, "/metrics") => {
            let mut text = String::new();
            // Writing to a string cannot fail.
            let _ = prometheus_text::encode(&mut text, registry);
            (StatusCode::OK, text)
        }
        (&Method::GET | &Method::HEAD, _) => {
            (StatusCode::NOT_FOUND, "there are /metrics and /healthz\n".to_owned())
        }
        _ => (StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let text = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, text);
    response
}
