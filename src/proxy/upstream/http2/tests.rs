use std::cell::Cell;
use std::convert::Infallible;
use std::error::Error;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::task::Poll;

use futures_util::future::join_all;
use h2::server::SendResponse;
use http::{HeaderMap, Method, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Barrier, Notify, mpsc};
use tokio::task::spawn_local;

use super::super::tests::{backend, cluster, collect, gateway, policy, read_head, request, upstream};
use super::super::{PoolLimits, Upstream};
use super::connection::{MAX_STREAMS, STREAM_WINDOW};
use super::*;
use crate::snapshot::hosts::{BackendProtocol, RoutePolicy};
use crate::testing::eventually_async;
use crate::testing::grpc::send as send_all;
use crate::tls::client::ClientTls;
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

/// Serves each stream of an HTTP/2 connection by `handle`.
async fn each_stream<F: Future<Output = ()> + 'static>(
    stream: TcpStream,
    settings: h2::server::Builder,
    handle: impl Fn(Request<h2::RecvStream>, SendResponse<Bytes>) -> F,
) {
    let mut connection = settings.handshake(stream).await.unwrap();
    while let Some(Ok((request, respond))) = connection.accept().await {
        spawn_local(handle(request, respond));
    }
}

/// Begins an answer, reads nothing of the request, and tells how the client ended it.
async fn begin_and_wait(
    request: Request<h2::RecvStream>,
    mut respond: SendResponse<Bytes>,
    ends: mpsc::UnboundedSender<Option<h2::Reason>>,
) {
    let mut answer = respond.send_response(Response::new(()), false).unwrap();
    answer.send_data("part".into(), false).unwrap();
    let reason = poll_fn(|cx| answer.poll_reset(cx)).await;
    drop(request);
    let _ = ends.send(reason.ok());
}

#[tokio::test(flavor = "local")]
async fn a_response_given_up_resets_its_stream_and_frees_its_place() {
    let (ends, mut ended) = mpsc::unbounded_channel();
    let connections = Rc::new(Cell::new(0));
    let count = connections.clone();
    let address = backend(move |number, stream| {
        count.set(number);
        let ends = ends.clone();
        let settings = h2::server::Builder::new().max_concurrent_streams(3).clone();
        each_stream(stream, settings, move |request, respond| begin_and_wait(request, respond, ends.clone()))
    });
    let (upstream, cluster, policy) = (upstream(), cluster(&[address.await]), policy(BackendProtocol::H2c));
    // More than the backend has room for, so that the upload waits.
    let upload = || request(Method::POST, vec![b'x'; 1_000_000]);
    for _ in 0..10 {
        let mut body = upstream.forward_plainly(&cluster, &policy, upload()).await.unwrap().into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "part");
        drop(body);
        assert_eq!(ended.recv().await, Some(Some(h2::Reason::CANCEL)));
    }
    assert_eq!(connections.get(), 1);
}

#[tokio::test(flavor = "local")]
async fn a_request_given_up_before_its_answer_resets_its_stream() {
    let (ends, mut ended) = mpsc::unbounded_channel();
    let address = backend(move |_, stream| {
        let ends = ends.clone();
        each_stream(stream, h2::server::Builder::new(), move |request, mut respond| {
            let ends = ends.clone();
            async move {
                let _ = ends.send(None);
                let reason = poll_fn(|cx| respond.poll_reset(cx)).await;
                drop(request);
                let _ = ends.send(reason.ok());
            }
        })
    });
    let (upstream, cluster, policy) = (upstream(), cluster(&[address.await]), policy(BackendProtocol::H2c));
    let upload = request(Method::POST, vec![b'x'; 1_000_000]);
    tokio::select! {
        _ = upstream.forward_plainly(&cluster, &policy, upload) => panic!("nobody answers"),
        seen = ended.recv() => assert_eq!(seen, Some(None)),
    }
    assert_eq!(ended.recv().await, Some(Some(h2::Reason::CANCEL)));
}

#[tokio::test(flavor = "local")]
async fn an_answer_before_the_end_of_the_request_ends_the_upload() {
    let (ends, mut ended) = mpsc::unbounded_channel();
    let address = backend(move |_, stream| {
        let ends = ends.clone();
        each_stream(stream, h2::server::Builder::new(), move |request, mut respond| {
            let ends = ends.clone();
            async move {
                let mut answer = respond.send_response(Response::new(()), false).unwrap();
                answer.send_data("early".into(), true).unwrap();
                let mut body = request.into_body();
                let mut received = 0;
                let error = loop {
                    match body.data().await {
                        Some(Ok(data)) => received += data.len(),
                        Some(Err(error)) => break error.reason(),
                        None => break None,
                    }
                };
                let _ = ends.send((received, error));
            }
        })
    });
    let gateway = gateway(address.await, BackendProtocol::H2c, Deadlines::new()).await;
    let mut client = TcpStream::connect(gateway).await.unwrap();
    client.write_all(b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 70000\r\n\r\n").await.unwrap();
    client.write_all(&[b'1'; 66_000]).await.unwrap();
    read_head(&mut client).await.unwrap();
    let (received, error) = ended.recv().await.unwrap();
    assert!(received <= 66_000 && error == Some(h2::Reason::CANCEL), "{received} {error:?}");
}

#[tokio::test(flavor = "local")]
async fn a_client_that_breaks_off_is_no_end_of_the_request() {
    let (ends, mut ended) = mpsc::unbounded_channel();
    let address = backend(move |_, stream| {
        let ends = ends.clone();
        each_stream(stream, h2::server::Builder::new(), move |request, respond| {
            let ends = ends.clone();
            async move {
                let mut body = request.into_body();
                assert_eq!(body.data().await.unwrap().unwrap(), "abc");
                let _ = ends.send(None);
                let _ = ends.send(body.data().await.and_then(|data| data.err()?.reason()));
                drop(respond);
            }
        })
    });
    let gateway = gateway(address.await, BackendProtocol::H2c, Deadlines::new()).await;
    let mut client = TcpStream::connect(gateway).await.unwrap();
    client
        .write_all(b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n")
        .await
        .unwrap();
    assert_eq!(ended.recv().await, Some(None));
    drop(client);
    assert_eq!(ended.recv().await, Some(Some(h2::Reason::CANCEL)));
}

#[tokio::test(flavor = "local")]
async fn clients_that_take_nothing_stop_nobody() {
    let sent = Rc::new(Cell::new(0));
    let progress = sent.clone();
    let connections = Rc::new(Cell::new(0));
    let count = connections.clone();
    let address = backend(move |number, stream| {
        count.set(number);
        let progress = progress.clone();
        each_stream(stream, h2::server::Builder::new(), move |request, mut respond| {
            let progress = progress.clone();
            async move {
                let mut answer = respond.send_response(Response::new(()), false).unwrap();
                if request.method() == Method::POST {
                    return answer.send_data("answer".into(), true).unwrap();
                }
                while send_all(&mut answer, vec![b'x'; 16 * 1024].into()).await.is_ok() {
                    progress.set(progress.get() + 16 * 1024);
                }
            }
        })
    });
    let (upstream, cluster, policy) = (upstream(), cluster(&[address.await]), policy(BackendProtocol::H2c));
    let mut unread = Vec::new();
    for _ in 1..MAX_STREAMS {
        let get = request(Method::GET, "");
        unread.push(upstream.forward_plainly(&cluster, &policy, get).await.unwrap());
    }
    let all = unread.len() * STREAM_WINDOW as usize;
    eventually_async("every window is full", || sent.get() == all).await;
    let answer = upstream.forward_plainly(&cluster, &policy, request(Method::POST, "x")).await.unwrap();
    assert_eq!(collect(answer).await.unwrap().0, "answer");
    assert_eq!(connections.get(), 1);
}

#[tokio::test(flavor = "local")]
async fn small_pieces_are_gathered_while_the_client_takes_nothing() {
    let address = backend(move |_, stream| {
        each_stream(stream, h2::server::Builder::new(), |_, mut respond| async move {
            let mut answer = respond.send_response(Response::new(()), false).unwrap();
            for _ in 0..1000 {
                send_all(&mut answer, "0123456789".into()).await.unwrap();
            }
            answer.send_trailers(HeaderMap::new()).unwrap();
        })
    });
    let (upstream, cluster, policy) = (upstream(), cluster(&[address.await]), policy(BackendProtocol::H2c));
    let answer = upstream.forward_plainly(&cluster, &policy, request(Method::GET, "")).await.unwrap();
    let Body::Http2(mut body) = answer.into_body() else { panic!("no body") };
    poll_fn(|cx| {
        body.drive_upload(cx);
        match body.gathered.len() {
            10_000 => Poll::Ready(()),
            _ => Poll::Pending,
        }
    })
    .await;
    let whole = poll_fn(|cx| body.poll_frame(cx)).await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(whole, "0123456789".repeat(1000));
}

#[tokio::test(flavor = "local")]
async fn a_backend_gets_no_more_streams_than_it_takes() {
    let all_here = Rc::new(Barrier::new(5));
    let connections = Rc::new(Cell::new(0));
    let count = connections.clone();
    let address = backend(move |number, stream| {
        count.set(number);
        let all_here = all_here.clone();
        let settings = h2::server::Builder::new().max_concurrent_streams(2).clone();
        each_stream(stream, settings, move |_, mut respond| {
            let all_here = all_here.clone();
            async move {
                all_here.wait().await;
                respond.send_response(Response::new(()), true).unwrap();
            }
        })
    });
    let (upstream, cluster, policy) = (upstream(), cluster(&[address.await]), policy(BackendProtocol::H2c));
    let requests = (0..5).map(|_| upstream.forward_plainly(&cluster, &policy, post("")));
    assert!(join_all(requests).await.iter().all(Result::is_ok));
    assert_eq!(connections.get(), 3);
}

#[tokio::test(flavor = "local")]
async fn trailers_of_responses_pass_without_the_forbidden() {
    let address = backend(|_, stream| {
        each_stream(stream, h2::server::Builder::new(), |_, mut respond| async move {
            let mut answer = respond.send_response(Response::new(()), false).unwrap();
            let field = |name: &str, value: &str| {
                (header::HeaderName::try_from(name).unwrap(), value.parse::<header::HeaderValue>().unwrap())
            };
            let trailers =
                [field("grpc-status", "0"), field("set-cookie", "a"), field("x-forwarded-for", "evil")];
            answer.send_trailers(HeaderMap::from_iter(trailers)).unwrap();
        })
    });
    let policy = policy(BackendProtocol::H2c);
    let answer = upstream().forward_plainly(&cluster(&[address.await]), &policy, post("")).await.unwrap();
    let trailers = collect(answer).await.unwrap().1.unwrap();
    assert_eq!((trailers.len(), &trailers["grpc-status"]), (1, &"0".parse().unwrap()));
}

const NO_SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];

/// Reads frames until one that opens a stream.
async fn until_headers(stream: &mut TcpStream) {
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await.unwrap();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        stream.read_exact(&mut vec![0; length as usize]).await.unwrap();
        if head[3] == 1 {
            return;
        }
    }
}

#[tokio::test(flavor = "local")]
async fn what_a_backend_that_goes_away_has_not_looked_at_is_sent_again() {
    let address = backend(|number, mut stream| async move {
        if number > 1 {
            return serve(stream, grpc).await;
        }
        stream.write_all(&NO_SETTINGS).await.unwrap();
        until_headers(&mut stream).await;
        // GOAWAY, and the last stream that was looked at is number 0.
        stream.write_all(&[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    let policy = policy(BackendProtocol::H2c);
    let answer =
        upstream().forward_plainly(&cluster(&[address.await]), &policy, post("again")).await.unwrap();
    assert_eq!(collect(answer).await.unwrap().0, "again");
}

#[tokio::test(flavor = "local")]
async fn interim_responses_are_passed_over_but_not_without_end() {
    for (interim, outcome) in [(3, None), (100, Some(Reason::InvalidResponse("too many interim responses")))]
    {
        let address = backend(move |_, stream| {
            each_stream(stream, h2::server::Builder::new(), move |_, mut respond| async move {
                for _ in 0..interim {
                    let hints = Response::builder().status(103).body(()).unwrap();
                    respond.send_informational(hints).unwrap();
                }
                let _ = respond.send_response(Response::new(()), true);
            })
        });
        let policy = policy(BackendProtocol::H2c);
        let answer = upstream().forward_plainly(&cluster(&[address.await]), &policy, post("")).await;
        assert_eq!(answer.err().map(|error| error.reason), outcome);
    }
}

#[tokio::test(flavor = "local")]
async fn a_backend_that_is_silent_is_asked_whether_it_is_there() {
    let deadlines = Deadlines::new();
    let upstream = Upstream::new(PoolLimits::default(), ClientTls::unverified(), deadlines.clone());
    let patient = RoutePolicy { read_timeout: Duration::from_secs(36_000), ..policy(BackendProtocol::H2c) };
    // It takes the request and answers nothing any more, not even a ping.
    let gone = backend(|_, mut stream| async move {
        stream.write_all(&NO_SETTINGS).await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    let gone = cluster(&[gone.await]);
    let asked = upstream.forward_plainly(&gone, &patient, post(""));
    let (answer, ()) = tokio::join!(asked, wait(&deadlines, 3));
    assert_eq!(answer.err().map(|error| error.reason), Some(Reason::Http2));
    // It only takes its time.
    let go = Rc::new(Notify::new());
    let ready = go.clone();
    let slow = backend(move |_, stream| {
        let ready = ready.clone();
        each_stream(stream, h2::server::Builder::new(), move |_, mut respond| {
            let ready = ready.clone();
            async move {
                ready.notified().await;
                respond.send_response(Response::new(()), true).unwrap();
            }
        })
    });
    let slow = cluster(&[slow.await]);
    let asked = upstream.forward_plainly(&slow, &patient, post(""));
    let waited = async {
        wait(&deadlines, 10).await;
        go.notify_one();
    };
    assert!(tokio::join!(asked, waited).0.is_ok());
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
