//! The listener of the admission webhook: HTTP/1.1, which is what API servers speak to webhooks. Its certificate is
//! replaced as a whole when it is renewed.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::net::limited::LimitedListener;
use crate::tls::services::ServiceTls;

/// Connections at once; more wait in the kernel. API servers keep a few open.
const CONNECTIONS: usize = 64;
/// For a handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// For a request head to arrive, and between two requests.
const HEADER_TIMEOUT: Duration = Duration::from_secs(90);
/// Bytes of a request head.
const HEAD: usize = 16 * 1024;

/// Answers on `listener` until `stop` becomes true. Connections close after the answer that they are at.
pub async fn serve<F>(
    listener: TcpListener,
    tls: watch::Receiver<ServiceTls>,
    answer: impl Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    mut stop: watch::Receiver<bool>,
) where
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let listener = LimitedListener::new(listener, CONNECTIONS, "webhook");
    loop {
        let (stream, place) = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        let (tls, answer, stop) = (tls.borrow().clone(), answer.clone(), stop.clone());
        tokio::spawn(async move {
            let _place = place;
            connection(stream, tls, answer, stop).await;
        });
    }
}

async fn connection<F>(
    stream: TcpStream,
    tls: ServiceTls,
    answer: impl Fn(Request<Incoming>) -> F,
    mut stop: watch::Receiver<bool>,
) where
    F: Future<Output = Response<Full<Bytes>>>,
{
    // Whatever goes wrong, the client has gone or is being told.
    let Ok(Ok(stream)) = timeout(HANDSHAKE, tls.accept(stream)).await else { return };
    let service = hyper::service::service_fn(|request| {
        let answer = answer(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(HEAD)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stop.wait_for(|stop| *stop) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}
