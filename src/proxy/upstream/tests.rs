use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;

use super::*;
use crate::snapshot::clusters::ClusterKey;
use crate::snapshot::hosts::HttpsRedirect;
use crate::store::objects::{ObjectName, ServicePortRef};

/// Starts a backend that handles each connection, given with its number, by `handle`.
pub async fn backend<F: Future<Output = ()> + 'static>(
    handle: impl Fn(usize, TcpStream) -> F + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    spawn_local(async move {
        for number in 1.. {
            let (stream, _) = listener.accept().await.unwrap();
            spawn_local(handle(number, stream));
        }
    });
    address
}

/// A backend that answers every request head with the same bytes, and how many connections it got.
pub async fn replying(response: impl Into<Vec<u8>>) -> (SocketAddr, Rc<Cell<usize>>) {
    let response: Rc<[u8]> = response.into().into();
    let count = Rc::new(Cell::new(0));
    let seen = count.clone();
    let address = backend(move |number, mut stream| {
        seen.set(number);
        let response = response.clone();
        async move {
            while read_head(&mut stream).await.is_some() {
                stream.write_all(&response).await.unwrap();
            }
        }
    });
    (address.await, count)
}

/// A request or response head with its blank line; `None` at the end of the connection.
pub async fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8(head).unwrap())
}

/// An address that nobody listens on.
pub async fn refusing() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

pub fn upstream() -> Upstream {
    Upstream::new(PoolLimits::default(), ClientTls::unverified(), Deadlines::new())
}

pub fn cluster(addresses: &[SocketAddr]) -> Cluster {
    let service = ObjectName { namespace: "shop".into(), name: "web".into() };
    let key = Arc::new(ClusterKey { service, port: ServicePortRef::Number(80) });
    let endpoints: Vec<_> = addresses.iter().map(|&address| Arc::new(Endpoint::Address(address))).collect();
    Cluster::new(key, endpoints, None)
}

pub fn policy(protocol: BackendProtocol) -> RoutePolicy {
    RoutePolicy {
        redirect: HttpsRedirect::Never,
        protocol,
        max_body: None,
        connect_timeout: Duration::from_secs(5),
        read_timeout: Duration::from_secs(60),
        send_timeout: Duration::from_secs(60),
    }
}

pub fn request(method: Method, body: impl Into<Bytes>) -> Request<Body> {
    let request = Request::builder().method(method).uri("/a?b=c").header("host", "shop.example");
    request.body(Body::from(body.into())).unwrap()
}

pub async fn get(upstream: &Upstream, cluster: &Cluster) -> Result<Response<Body>, UpstreamError> {
    upstream.forward(cluster, &policy(BackendProtocol::Http1), request(Method::GET, "")).await
}

pub async fn collect(
    response: Response<Body>,
) -> Result<(Bytes, Option<HeaderMap>), crate::proxy::body::BodyError> {
    let collected = response.into_body().collect().await?;
    let trailers = collected.trailers().cloned();
    Ok((collected.to_bytes(), trailers))
}

/// A server that forwards everything to `address`, so that bodies come from real clients.
async fn gateway(address: SocketAddr) -> SocketAddr {
    let (upstream, cluster) = (Rc::new(upstream()), Rc::new(cluster(&[address])));
    backend(move |_, stream| {
        let (upstream, cluster) = (upstream.clone(), cluster.clone());
        let service = service_fn(move |request: Request<hyper::body::Incoming>| {
            let (upstream, cluster) = (upstream.clone(), cluster.clone());
            async move {
                let policy = policy(BackendProtocol::Http1);
                match upstream.forward(&cluster, &policy, request.map(Body::from)).await {
                    Ok(response) => Ok::<_, std::convert::Infallible>(response),
                    Err(error) => {
                        let mut response = Response::new(Body::from(Bytes::from(error.to_string())));
                        *response.status_mut() = error.reason.status();
                        Ok(response)
                    }
                }
            }
        });
        async move {
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        }
    })
    .await
}

/// Bytes in which a lost, doubled or moved piece shows.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n.wrapping_mul(31) ^ (n >> 9)) as u8).collect()
}

#[tokio::test(flavor = "local")]
async fn a_connection_is_used_again_as_soon_as_the_last_byte_is_there() {
    let (address, connections) = replying(&b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"[..]).await;
    let (upstream, cluster) = (upstream(), cluster(&[address]));
    let first = get(&upstream, &cluster).await.unwrap();
    assert_eq!(upstream.idle(), 1, "before the body is even looked at");
    let second = get(&upstream, &cluster).await.unwrap();
    assert_eq!(collect(first).await.unwrap().0, "ok");
    assert_eq!(collect(second).await.unwrap().0, "ok");
    assert_eq!(connections.get(), 1);
}

#[tokio::test(flavor = "local")]
async fn framing_of_responses() {
    // The response, the body or the reason, and whether the connection may be used again.
    let cases: &[(&str, Result<&str, &str>, bool)] = &[
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", Ok("ok"), true),
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nok", Ok("ok"), true),
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", Ok(""), true),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", Ok("ok"), true),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n1;x=y\r\no\r\n01\r\nk\r\n0\r\n\r\n",
            Ok("ok"),
            true,
        ),
        ("HTTP/1.1 204 No Content\r\n\r\n", Ok(""), true),
        ("HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n", Ok(""), true),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            Ok(""),
            true,
        ),
        ("HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nok", Ok("ok"), true),
        ("HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", Ok("ok"), false),
        ("HTTP/1.1 200 OK\r\nconnection: Close\r\ncontent-length: 2\r\n\r\nok", Ok("ok"), false),
        (
            "HTTP/1.1 200 OK\r\nconnection: x\r\nconnection: keep-alive, close\r\ncontent-length: 0\r\n\r\n",
            Ok(""),
            false,
        ),
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n", Ok("ok"), false),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nmore", Ok("ok"), false),
        ("HTTP/1.1 204 No Content\r\ncontent-length: 2\r\n\r\n", Ok(""), false),
        ("HTTP/1.1 204 No Content\r\n\r\nbody", Ok(""), false),
        ("HTTP/1.1 304 Not Modified\r\n\r\nbody", Ok(""), false),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok",
            Err("upstream_invalid_response: two different content-lengths"),
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 2, 2\r\n\r\nok",
            Err("upstream_invalid_response: bad content-length"),
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: +2\r\n\r\nok",
            Err("upstream_invalid_response: bad content-length"),
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\nok",
            Err("upstream_invalid_response: bad content-length"),
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            Err("upstream_invalid_response: both content-length and transfer-encoding"),
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            Err("upstream_invalid_response: unknown transfer-encoding"),
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            Err("upstream_invalid_response: unknown transfer-encoding"),
            false,
        ),
        (
            "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            Err("upstream_invalid_response: transfer-encoding in HTTP/1.0"),
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
            Err("upstream_invalid_response: bad chunk size"),
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\nok\r\n0\r\n\r\n",
            Err("upstream_invalid_response: chunk size line without CR"),
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nok\r\n0\r\n\r\n",
            Err("upstream_invalid_response: chunk longer than its size"),
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length : 2\r\n\r\nok",
            Err("upstream_invalid_response: malformed response head"),
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\nx: 1\r\n folded: 2\r\n\r\n",
            Err("upstream_invalid_response: malformed response head"),
            false,
        ),
        (
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
            Err("upstream_invalid_response: unexpected 101"),
            false,
        ),
        ("HTTP/2.0 200 OK\r\n\r\n", Err("upstream_invalid_response: malformed response head"), false),
        ("<html>zero point nine</html>", Err("upstream_invalid_response: malformed response head"), false),
    ];
    for (response, expected, reusable) in cases {
        let (address, _) = replying(*response).await;
        let (upstream, cluster) = (upstream(), cluster(&[address]));
        let body = match get(&upstream, &cluster).await {
            Ok(response) => collect(response).await.map(|(body, _)| body).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        assert_eq!(
            body.as_deref(),
            expected.map(str::as_bytes).map_err(str::to_owned).as_deref(),
            "{response}"
        );
        assert_eq!(upstream.idle(), usize::from(*reusable), "{response}");
    }
}

#[tokio::test(flavor = "local")]
async fn too_much_of_a_head() {
    let cookies = "set-cookie: ".to_owned() + &"c".repeat(4096) + "\r\n";
    let head = |fields: &str| format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n{fields}\r\n");
    let interim = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(17);
    for (response, expected) in [
        (head(&cookies.repeat(40)), None),
        (head(&cookies.repeat(80)), Some(Reason::ResponseHeadTooLarge)),
        (head(&"x: y\r\n".repeat(255)), None),
        (head(&"x: y\r\n".repeat(10_000)), Some(Reason::ResponseHeadTooLarge)),
        (interim + &head(""), Some(Reason::InvalidResponse("too many interim responses"))),
    ] {
        let address = backend(move |_, mut stream| {
            let response = response.clone();
            async move {
                read_head(&mut stream).await;
                // The other side hangs up early where it has seen enough.
                let _ = stream.write_all(response.as_bytes()).await;
            }
        });
        let answer = get(&upstream(), &cluster(&[address.await])).await;
        assert_eq!(answer.err().map(|error| error.reason), expected);
    }
}

#[tokio::test(flavor = "local")]
async fn head_has_no_body_whatever_its_length_says() {
    let (address, connections) = replying(&b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n"[..]).await;
    let (upstream, cluster) = (upstream(), cluster(&[address]));
    for _ in 0..2 {
        let head = request(Method::HEAD, "");
        let response = upstream.forward(&cluster, &policy(BackendProtocol::Http1), head).await.unwrap();
        assert_eq!(response.headers()["content-length"], "1000");
        assert_eq!(collect(response).await.unwrap().0, "");
    }
    assert_eq!(connections.get(), 1);
}

#[tokio::test(flavor = "local")]
async fn a_truncated_body_is_an_error() {
    for (response, reason) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nok", Some(Reason::BodyTruncated)),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nok", Some(Reason::BodyTruncated)),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n", Some(Reason::BodyTruncated)),
        ("HTTP/1.1 200 OK\r\n\r\nok", None),
    ] {
        let address = backend(move |_, mut stream| async move {
            read_head(&mut stream).await;
            stream.write_all(response.as_bytes()).await.unwrap();
        });
        let upstream = upstream();
        let answer = collect(get(&upstream, &cluster(&[address.await])).await.unwrap()).await;
        match (answer, reason) {
            (Ok((body, _)), None) => assert_eq!(body, "ok"),
            (Err(crate::proxy::body::BodyError::Upstream(error)), Some(reason)) => {
                assert_eq!(error.reason, reason)
            }
            (answer, _) => panic!("{response}: {answer:?}"),
        }
        assert_eq!(upstream.idle(), 0);
    }
}

/// Answers the first request of a connection, reads a second one and closes without a word.
async fn closes_on_second() -> (SocketAddr, Rc<Cell<usize>>) {
    let heads = Rc::new(Cell::new(0));
    let seen = heads.clone();
    let address = backend(move |_, mut stream| {
        let seen = seen.clone();
        async move {
            read_head(&mut stream).await;
            seen.set(seen.get() + 1);
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            if read_head(&mut stream).await.is_some() {
                seen.set(seen.get() + 1);
            }
        }
    });
    (address.await, heads)
}

#[tokio::test(flavor = "local")]
async fn a_stale_connection_is_retried_for_idempotent_methods_only() {
    for (method, outcome, heads_seen) in
        [(Method::GET, None, 3), (Method::PUT, None, 3), (Method::POST, Some(Reason::Closed), 2)]
    {
        let (address, heads) = closes_on_second().await;
        let (upstream, cluster) = (upstream(), cluster(&[address]));
        get(&upstream, &cluster).await.unwrap();
        let policy = policy(BackendProtocol::Http1);
        let answer = upstream.forward(&cluster, &policy, request(method.clone(), "")).await;
        assert_eq!(answer.err().map(|error| error.reason), outcome, "{method}");
        assert_eq!(heads.get(), heads_seen, "{method}");
    }
}

#[tokio::test(flavor = "local")]
async fn a_connection_found_closed_costs_no_request_at_all() {
    let closed = Rc::new(tokio::sync::Notify::new());
    let close = closed.clone();
    let address = backend(move |_, mut stream| {
        let close = close.clone();
        async move {
            read_head(&mut stream).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            drop(stream);
            close.notify_one();
        }
    });
    let (upstream, cluster) = (upstream(), cluster(&[address.await]));
    for _ in 0..5 {
        let post = request(Method::POST, "once only");
        upstream.forward(&cluster, &policy(BackendProtocol::Http1), post).await.unwrap();
        closed.notified().await;
    }
    upstream.sweep();
    assert_eq!(upstream.idle(), 0);
}

#[tokio::test(flavor = "local")]
async fn an_answer_nobody_asked_for_poisons_an_idle_connection() {
    let sent = Rc::new(tokio::sync::Notify::new());
    let send = sent.clone();
    let address = backend(move |number, mut stream| {
        let send = send.clone();
        async move {
            read_head(&mut stream).await;
            let good = format!("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{number}");
            stream.write_all(good.as_bytes()).await.unwrap();
            if number == 1 {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison").await.unwrap();
                send.notify_one();
            }
            read_head(&mut stream).await;
        }
    });
    let (upstream, cluster) = (upstream(), cluster(&[address.await]));
    assert_eq!(collect(get(&upstream, &cluster).await.unwrap()).await.unwrap().0, "1");
    sent.notified().await;
    assert_eq!(collect(get(&upstream, &cluster).await.unwrap()).await.unwrap().0, "2");
}

#[tokio::test(flavor = "local")]
async fn a_refusing_endpoint_is_passed_over() {
    let (address, _) = replying(&b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"[..]).await;
    let (upstream, cluster) = (upstream(), cluster(&[refusing().await, address, refusing().await]));
    for _ in 0..6 {
        let post = request(Method::POST, "body");
        upstream.forward(&cluster, &policy(BackendProtocol::Http1), post).await.unwrap();
    }
}

#[tokio::test(flavor = "local")]
async fn no_endpoint_answers() {
    let error = get(&upstream(), &cluster(&[refusing().await, refusing().await])).await.err().unwrap();
    assert_eq!(
        (error.reason.status(), error.to_string()),
        (StatusCode::BAD_GATEWAY, "upstream_connect_refused".into())
    );
    let empty = Cluster::new(cluster(&[]).key, [], Some("the Service has no ready endpoint"));
    let error = get(&upstream(), &empty).await.err().unwrap();
    assert_eq!(error.reason.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(error.to_string(), "upstream_no_endpoint: the Service has no ready endpoint");
}

#[tokio::test(flavor = "local")]
async fn a_reset_before_any_response_byte_moves_to_the_next_endpoint() {
    let dying = backend(|_, stream| async move { drop(stream) }).await;
    let (address, _) = replying(&b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"[..]).await;
    let (upstream, cluster) = (upstream(), cluster(&[dying, address]));
    for _ in 0..4 {
        get(&upstream, &cluster).await.unwrap();
    }
}

#[tokio::test(flavor = "local")]
async fn an_upgrade_hands_over_the_connection_and_what_came_with_it() {
    let heads = Rc::new(RefCell::new(String::new()));
    let seen = heads.clone();
    let address = backend(move |_, mut stream| {
        let seen = seen.clone();
        async move {
            *seen.borrow_mut() = read_head(&mut stream).await.unwrap();
            let answer =
                b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\nhello";
            stream.write_all(answer).await.unwrap();
            let (mut read, mut write) = stream.split();
            tokio::io::copy(&mut read, &mut write).await.unwrap();
        }
    });
    let upstream = upstream();
    let mut asking = request(Method::GET, "");
    asking.headers_mut().insert("upgrade", "websocket".parse().unwrap());
    let policy = policy(BackendProtocol::Http1);
    let response = upstream.forward(&cluster(&[address.await]), &policy, asking).await.unwrap();
    assert!(heads.borrow().contains("connection: upgrade\r\n"));
    assert_eq!(response.headers()["upgrade"], "websocket");
    let Body::Upgraded(mut stream) = response.into_body() else { panic!("no upgrade") };
    let mut greeting = [0; 5];
    stream.read_exact(&mut greeting).await.unwrap();
    assert_eq!(&greeting, b"hello");
    stream.write_all(b"and back").await.unwrap();
    let mut echo = [0; 8];
    stream.read_exact(&mut echo).await.unwrap();
    assert_eq!((&echo, upstream.idle()), (b"and back", 0));
}

#[tokio::test(flavor = "local")]
async fn trailers_of_responses_pass_without_the_forbidden() {
    let (address, _) = replying(
        &b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\
        grpc-status: 0\r\ncontent-length: 7\r\nx-forwarded-for: evil\r\nset-cookie: a\r\n\r\n"[..],
    )
    .await;
    let upstream = upstream();
    let (body, trailers) = collect(get(&upstream, &cluster(&[address])).await.unwrap()).await.unwrap();
    let expected: HeaderMap = [("grpc-status".parse().unwrap(), "0".parse().unwrap())].into_iter().collect();
    assert_eq!((&body[..], trailers, upstream.idle()), (&b"ok"[..], Some(expected), 1));
}

#[tokio::test(flavor = "local")]
async fn big_bodies_arrive_byte_by_byte_the_same_and_wait_for_the_reader() {
    let data = pattern(12 * 1024 * 1024);
    for chunked in [false, true] {
        let written = Rc::new(Cell::new(0));
        let (progress, source) = (written.clone(), data.clone());
        let address = backend(move |_, mut stream| {
            let (progress, data) = (progress.clone(), source.clone());
            async move {
                read_head(&mut stream).await;
                let framing = match chunked {
                    true => "transfer-encoding: chunked".to_owned(),
                    false => format!("content-length: {}", data.len()),
                };
                stream.write_all(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n").as_bytes()).await.unwrap();
                for piece in data.chunks(70_000) {
                    if chunked {
                        stream.write_all(format!("{:X}\r\n", piece.len()).as_bytes()).await.unwrap();
                    }
                    stream.write_all(piece).await.unwrap();
                    if chunked {
                        stream.write_all(b"\r\n").await.unwrap();
                    }
                    progress.set(progress.get() + piece.len());
                }
                if chunked {
                    stream.write_all(b"0\r\n\r\n").await.unwrap();
                }
                read_head(&mut stream).await;
            }
        });
        let upstream = upstream();
        let response = get(&upstream, &cluster(&[address.await])).await.unwrap();
        // Give the backend every chance to write on: only the sockets' buffers may fill.
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        assert!(written.get() < data.len(), "nobody reads, yet everything was taken");
        let (body, _) = collect(response).await.unwrap();
        assert!(body == data, "chunked: {chunked}");
        assert_eq!(upstream.idle(), 1);
    }
}

#[tokio::test(flavor = "local")]
async fn uploads_stream_and_trailers_follow() {
    let address = backend(|_, mut stream| async move {
        let head = read_head(&mut stream).await.unwrap();
        assert!(head.contains("\r\ntransfer-encoding: chunked\r\n"), "{head}");
        assert!(!head.contains("content-length") && !head.contains("expect"), "{head}");
        let mut rest = Vec::new();
        while !rest.ends_with(b"\r\n\r\n") || !rest.windows(5).any(|window| window == b"\r\n0\r\n") {
            stream.read_buf(&mut rest).await.unwrap();
        }
        let trailers =
            String::from_utf8_lossy(rest.rsplit(|&byte| byte == b'0').next().unwrap()).into_owned();
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{trailers}", trailers.len());
        stream.write_all(answer.as_bytes()).await.unwrap();
    });
    let mut client = TcpStream::connect(gateway(address.await).await).await.unwrap();
    let head = "POST /up HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\nexpect: 100-continue\r\n\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    assert!(read_head(&mut client).await.unwrap().starts_with("HTTP/1.1 100"));
    client.write_all(b"3\r\nabc\r\n").await.unwrap();
    client.write_all(b"2\r\nde\r\n0\r\nx-sum: five\r\ncookie: no\r\n\r\n").await.unwrap();
    assert!(read_head(&mut client).await.unwrap().starts_with("HTTP/1.1 200"));
    let mut answer = [0; 17];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"\r\nx-sum: five\r\n\r\n");
}

#[tokio::test(flavor = "local")]
async fn a_big_upload_is_exact() {
    let data = pattern(5_000_000);
    let expected = data.clone();
    let address = backend(move |_, mut stream| {
        let expected = expected.clone();
        async move {
            let head = read_head(&mut stream).await.unwrap();
            assert_eq!(head.matches("content-length").count(), 1);
            let mut body = vec![0; expected.len()];
            stream.read_exact(&mut body).await.unwrap();
            let same = if body == expected { "same" } else { "diff" };
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n{same}");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let mut client = TcpStream::connect(gateway(address.await).await).await.unwrap();
    let head = format!("PUT / HTTP/1.1\r\nhost: h\r\ncontent-length: {}\r\n\r\n", data.len());
    client.write_all(head.as_bytes()).await.unwrap();
    client.write_all(&data).await.unwrap();
    read_head(&mut client).await.unwrap();
    let mut answer = [0; 4];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"same");
}

#[tokio::test(flavor = "local")]
async fn an_early_response_is_heard_during_the_upload() {
    let address = backend(|_, mut stream| async move {
        read_head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig").await.unwrap();
        read_head(&mut stream).await;
    });
    let mut client = TcpStream::connect(gateway(address.await).await).await.unwrap();
    client.write_all(b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 1000000\r\n\r\nbegin").await.unwrap();
    assert!(read_head(&mut client).await.unwrap().starts_with("HTTP/1.1 413"));
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"big");
}

#[tokio::test(flavor = "local")]
async fn a_response_streams_while_the_upload_goes_on() {
    let address = backend(|_, mut stream| async move {
        read_head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n").await.unwrap();
        for _ in 0..4 {
            let byte = stream.read_u8().await.unwrap();
            stream.write_u8(byte.to_ascii_uppercase()).await.unwrap();
        }
    });
    let mut client = TcpStream::connect(gateway(address.await).await).await.unwrap();
    client.write_all(b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 4\r\n\r\n").await.unwrap();
    read_head(&mut client).await.unwrap();
    for byte in b"echo" {
        client.write_u8(*byte).await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), byte.to_ascii_uppercase());
    }
}

#[tokio::test(flavor = "local")]
async fn a_silent_backend_times_out() {
    for (response, at_head) in [("", true), ("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nok", false)] {
        let (address, _) = replying(response).await;
        let deadlines = Deadlines::new();
        let upstream = Upstream::new(PoolLimits::default(), ClientTls::unverified(), deadlines.clone());
        // A minute in a moment, but only once nothing else happens any more.
        spawn_local(async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            deadlines.advance(610);
            tokio::time::sleep(Duration::from_millis(100)).await;
            deadlines.advance(610);
        });
        let error = match get(&upstream, &cluster(&[address])).await {
            Err(error) => error,
            Ok(response) => match collect(response).await {
                Err(crate::proxy::body::BodyError::Upstream(error)) if !at_head => error,
                other => panic!("{other:?}"),
            },
        };
        assert_eq!((error.reason, error.reason.status()), (Reason::ReadTimeout, StatusCode::GATEWAY_TIMEOUT));
    }
}

#[tokio::test(flavor = "local")]
async fn the_pool_keeps_to_its_limits() {
    let (address, _) = replying(&b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc"[..]).await;
    let limits = PoolLimits { max_idle_per_key: 2, ..PoolLimits::default() };
    let deadlines = Deadlines::new();
    let upstream = Upstream::new(limits, ClientTls::unverified(), deadlines.clone());
    let cluster = cluster(&[address]);
    futures_util::future::join_all((0..5).map(|_| get(&upstream, &cluster))).await;
    assert_eq!(upstream.idle(), 2);
    deadlines.advance(620);
    upstream.sweep();
    assert_eq!(upstream.idle(), 0);
}

#[tokio::test(flavor = "local")]
async fn names_are_resolved() {
    let (address, _) = replying(&b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"[..]).await;
    let named = |host: &str| {
        let endpoint = Endpoint::Name { host: host.into(), port: address.port() };
        Cluster::new(cluster(&[]).key, [Arc::new(endpoint)], None)
    };
    get(&upstream(), &named("127.0.0.1")).await.unwrap();
    let error = get(&upstream(), &named("no-such-name.invalid")).await.err().unwrap();
    assert_eq!(error.reason, Reason::NameNotFound);
}
