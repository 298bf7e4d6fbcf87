//! What the demo's gateway stands in front of: HTTP servers that say what they were asked.

use std::convert::Infallible;
use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

/// An HTTP/1.1 server on a free port of the loopback address, which answers every request with `handler` until
/// the runtime ends.
pub async fn start<F>(
    handler: impl Fn(Request<Incoming>) -> F + Clone + 'static,
) -> std::io::Result<SocketAddr>
where
    F: Future<Output = Response<Full<Bytes>>> + 'static,
{
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    tokio::task::spawn_local(async move {
        // An error is that of one client or passes, such as a lack of descriptors.
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            let handler = handler.clone();
            let service = service_fn(move |request| {
                let answer = handler(request);
                async move { Ok::<_, Infallible>(answer.await) }
            });
            tokio::task::spawn_local(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    Ok(address)
}

/// A server called `name` that answers with the request as it came in.
pub async fn start_echo(name: &str) -> std::io::Result<SocketAddr> {
    let name: Arc<str> = name.into();
    start(move |request| echo(name.clone(), request)).await
}

/// Longer bodies are refused.
const LARGEST_BODY: usize = 1 << 20;

async fn echo(name: Arc<str>, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let Ok(body) = Limited::new(body, LARGEST_BODY).collect().await else {
        let mut refusal = Response::new(Full::from("the demo backend takes bodies of at most 1 MiB\n"));
        *refusal.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
        return refusal;
    };
    let body = body.to_bytes();
    let mut text = format!("served by  {name}\nrequest    {} {}\n", head.method, head.uri);
    for (field, value) in &head.headers {
        let _ = writeln!(text, "           {field}: {}", String::from_utf8_lossy(value.as_bytes()));
    }
    if !body.is_empty() {
        let _ = writeln!(text, "body       {}", String::from_utf8_lossy(&body));
    }
    let mut response = Response::new(Full::from(text));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
