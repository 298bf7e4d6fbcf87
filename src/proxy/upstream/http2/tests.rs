mod streams;

use std::cell::Cell;
use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;

use futures_util::future::join_all;
use http::{HeaderMap, Method, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Barrier;
use tokio::task::spawn_local;

use super::super::tests::{backend, cluster, collect, gateway, policy, read_head, request, upstream};
use super::connection::MAX_STREAMS;
use super::*;
use crate::snapshot::hosts::BackendProtocol;
use crate::tls::client::tests::{Server, server, shop};

/// Runs hyper's tasks on the test's own thread.
#[derive(Clone, Copy)]
struct LocalExecutor;

impl<F: Future<Output = ()> + 'static> Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        spawn_local(future);
    }
}

/// A backend that answers with `answer`, and how many connections it got.
async fn serving<F, B>(
    answer: impl Fn(Request<Incoming>) -> F + Clone + 'static,
) -> (SocketAddr, Rc<Cell<usize>>)
where
    F: Future<Output = Response<B>> + 'static,
    B: http_body::Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + 'static,
{
    let count = Rc::new(Cell::new(0));
    let seen = count.clone();
    let address = backend(move |number, stream| {
        seen.set(number);
        let answer = answer.clone();
        async move { serve(stream, answer).await }
    });
    (address.await, count)
}

async fn serve<F, B>(
    stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + 'static,
    answer: impl Fn(Request<Incoming>) -> F + 'static,
) where
    F: Future<Output = Response<B>> + 'static,
    B: http_body::Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + 'static,
{
    let service = service_fn(move |request| {
        let response = answer(request);
        async move { Ok::<_, Infallible>(response.await) }
    });
    let _ = hyper::server::conn::http2::Builder::new(LocalExecutor)
        .max_concurrent_streams(1000)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// What a gRPC server does: the body back, then a status in trailers.
async fn grpc(
    request: Request<Incoming>,
) -> Response<impl http_body::Body<Data = Bytes, Error = hyper::Error>> {
    let about = format!("{} {} {:?}", request.method(), request.uri(), request.version());
    let te = request.headers().get("te").cloned();
    let trailers =
        HeaderMap::from_iter([(header::HeaderName::from_static("grpc-status"), "0".parse().unwrap())]);
    let body = request.into_body().with_trailers(async move { Some(Ok(trailers)) });
    let mut response = Response::new(body);
    response.headers_mut().insert("about", about.parse().unwrap());
    te.into_iter().for_each(|te| _ = response.headers_mut().insert("te-seen", te));
    response
}

fn post(body: &'static str) -> Request<Body> {
    let mut post = request(Method::POST, body);
    post.headers_mut().insert("te", "trailers".parse().unwrap());
    post.headers_mut().insert("connection", "keep-alive".parse().unwrap());
    post
}

#[tokio::test(flavor = "local")]
async fn requests_share_a_connection_and_trailers_pass() {
    let (address, connections) = serving(grpc).await;
    let (upstream, cluster, policy) = (upstream(), cluster(&[address]), policy(BackendProtocol::H2c));
    let answers = join_all((0..20).map(|_| upstream.forward_plainly(&cluster, &policy, post("hello")))).await;
    for answer in answers {
        let answer = answer.unwrap();
        assert_eq!(answer.headers()["about"], "POST http://shop.example/a?b=c HTTP/2.0");
        assert_eq!(answer.headers()["te-seen"], "trailers");
        let (body, trailers) = collect(answer).await.unwrap();
        assert_eq!((&body[..], &trailers.unwrap()["grpc-status"]), (&b"hello"[..], &"0".parse().unwrap()));
    }
    assert_eq!(connections.get(), 1);
}

#[tokio::test(flavor = "local")]
async fn a_full_connection_is_joined_by_another() {
    let all_here = Rc::new(Barrier::new(MAX_STREAMS + 1));
    let (address, connections) = serving(move |_| {
        let all_here = all_here.clone();
        async move {
            all_here.wait().await;
            Response::new(Full::<Bytes>::default())
        }
    })
    .await;
    let (upstream, cluster, policy) = (upstream(), cluster(&[address]), policy(BackendProtocol::H2c));
    let requests = (0..MAX_STREAMS + 1).map(|_| upstream.forward_plainly(&cluster, &policy, post("")));
    assert!(join_all(requests).await.iter().all(Result::is_ok));
    assert_eq!(connections.get(), 2);
    let hosts = upstream.http2.hosts.borrow();
    let connections = hosts.values().flat_map(|host| host.connections.borrow().clone());
    let now = upstream.deadlines.now();
    assert!(
        connections.into_iter().all(|connection| connection.idle(now).is_some()),
        "every place was given back"
    );
}

#[tokio::test(flavor = "local")]
async fn grpc_over_tls_is_agreed_on_by_alpn() {
    for (alpn, reason) in [(&b"h2"[..], None), (b"http/1.1", Some(Reason::TlsProtocol))] {
        let Server { address, mut accepted, .. } = server(shop(), &[alpn]).await;
        spawn_local(async move {
            while let Some(stream) = accepted.recv().await {
                spawn_local(serve(stream, grpc));
            }
        });
        let policy = policy(BackendProtocol::Grpcs);
        match upstream().forward_plainly(&cluster(&[address]), &policy, post("x")).await {
            Ok(answer) => {
                assert_eq!(answer.headers()["about"], "POST https://shop.example/a?b=c HTTP/2.0");
                assert_eq!((collect(answer).await.unwrap().0, reason), ("x".into(), None));
            }
            Err(error) => assert_eq!(Some(error.reason), reason),
        }
    }
}

#[tokio::test(flavor = "local")]
async fn a_refused_stream_is_sent_again_a_broken_one_is_not() {
    for (refusal, outcome) in
        [(h2::Reason::REFUSED_STREAM, None), (h2::Reason::INTERNAL_ERROR, Some(Reason::Http2))]
    {
        let seen = Rc::new(Cell::new(0));
        let count = seen.clone();
        let address = backend(move |_, stream| {
            let count = count.clone();
            async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((_, mut respond))) = connection.accept().await {
                    count.set(count.get() + 1);
                    match count.get() {
                        1 => respond.send_reset(refusal),
                        _ => _ = respond.send_response(Response::new(()), true).unwrap(),
                    }
                }
            }
        });
        let policy = policy(BackendProtocol::H2c);
        let answer = upstream().forward_plainly(&cluster(&[address.await]), &policy, post("only once")).await;
        assert_eq!(answer.err().map(|error| error.reason), outcome);
        assert_eq!(seen.get(), if outcome.is_some() { 1 } else { 2 });
    }
}

#[tokio::test(flavor = "local")]
async fn a_closed_connection_is_replaced() {
    let closed = Rc::new(tokio::sync::Notify::new());
    let close = closed.clone();
    let address = backend(move |_, stream| {
        let close = close.clone();
        async move {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            let (_, mut respond) = connection.accept().await.unwrap().unwrap();
            respond.send_response(Response::new(()), true).unwrap();
            connection.graceful_shutdown();
            while connection.accept().await.is_some() {}
            close.notify_one();
        }
    });
    let (upstream, cluster, policy) = (upstream(), cluster(&[address.await]), policy(BackendProtocol::H2c));
    for _ in 0..3 {
        upstream.forward_plainly(&cluster, &policy, post("")).await.unwrap();
        closed.notified().await;
    }
}

#[tokio::test(flavor = "local")]
async fn a_backend_that_speaks_something_else() {
    let address = backend(|_, mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    let policy = policy(BackendProtocol::H2c);
    let error =
        upstream().forward_plainly(&cluster(&[address.await]), &policy, post("")).await.err().unwrap();
    assert_eq!((error.reason, error.reason.status()), (Reason::Http2, StatusCode::BAD_GATEWAY));
}

/// Lets `minutes` pass after whatever is under way has settled.
async fn wait(deadlines: &Deadlines, minutes: u64) {
    for _ in 0..minutes * 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        deadlines.advance(300);
    }
}

#[tokio::test(flavor = "local")]
async fn the_clock_stands_while_the_client_sends_and_runs_after() {
    let (address, _) = serving(|mut request: Request<Incoming>| async move {
        while let Some(Ok(_)) = request.body_mut().frame().await {}
        std::future::pending::<Response<Full<Bytes>>>().await
    })
    .await;
    let deadlines = Deadlines::new();
    let mut client =
        TcpStream::connect(gateway(address, BackendProtocol::H2c, deadlines.clone()).await).await.unwrap();
    let head = "POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    wait(&deadlines, 10).await;
    let mut early = [0];
    let nothing = client.try_read(&mut early);
    assert!(nothing.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock));
    client.write_all(b"0\r\n\r\n").await.unwrap();
    wait(&deadlines, 3).await;
    assert!(read_head(&mut client).await.unwrap().starts_with("HTTP/1.1 504"));
}

#[tokio::test(flavor = "local")]
async fn both_directions_stream_at_once() {
    let (address, _) =
        serving(|request: Request<Incoming>| async { Response::new(request.into_body()) }).await;
    let gateway = gateway(address, BackendProtocol::H2c, Deadlines::new()).await;
    let mut client = TcpStream::connect(gateway).await.unwrap();
    client.write_all(b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
    read_head(&mut client).await.unwrap();
    for _ in 0..5 {
        client.write_all(b"4\r\nping\r\n").await.unwrap();
        let mut echo = [0; 9];
        client.read_exact(&mut echo).await.unwrap();
        assert_eq!(&echo, b"4\r\nping\r\n");
    }
}
