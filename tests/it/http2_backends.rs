//! HTTP/2 backends that answer early, that stop reading and that take little at a time, through the real binary:
//! whatever becomes of one request is no other's business.

use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::{Builder, SendResponse};
use http::{Request, Response};
use portcullis::testing::backend::Backend;
use portcullis::testing::grpc::{Grpc, message_of};
use portcullis::testing::http2::{Http2, post, receive};
use portcullis::testing::{PATIENCE, eventually, eventually_async};
use tokio::sync::Notify;

use crate::gateway::{Gateway, Setup};
use crate::manifests::Ingress;

const GRPC: (&str, &str) = ("backend-protocol", "GRPC");

/// A backend with prior knowledge that serves each stream by `answer`, and how many connections it got.
fn backend<F: Future<Output = ()> + Send + 'static>(
    settings: &Builder,
    answer: impl Fn(Request<RecvStream>, SendResponse<Bytes>) -> F + Clone + Send + 'static,
) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let (count, settings) = (connections.clone(), settings.clone());
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((tcp, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let (settings, answer) = (settings.clone(), answer.clone());
                tokio::spawn(async move {
                    let mut connection = settings.handshake(tcp).await.unwrap();
                    while let Some(Ok((request, respond))) = connection.accept().await {
                        tokio::spawn(answer(request, respond));
                    }
                });
            }
        });
    });
    (address, connections)
}

/// A whole answer.
fn answer(respond: &mut SendResponse<Bytes>, text: &'static str) {
    let mut stream = respond.send_response(Response::new(()), false).unwrap();
    stream.send_data(text.into(), true).unwrap();
}

#[test]
fn an_upload_that_was_answered_early_takes_nothing_of_the_next_request() {
    let received = Arc::new(Mutex::new(Vec::new()));
    let go = Arc::new(Notify::new());
    let (log, begin) = (received.clone(), go.clone());
    // It answers when there is no room for more of the request, and makes room long after.
    let (early, _) = backend(&Builder::new(), move |request, mut respond| {
        let (log, begin) = (log.clone(), begin.clone());
        async move {
            let (mut body, mut taken) = (request.into_body(), 0);
            while taken < 65_535 {
                taken += body.data().await.unwrap().unwrap().len();
            }
            answer(&mut respond, "early");
            begin.notified().await;
            let _ = body.flow_control().release_capacity(taken);
            while let Some(Ok(data)) = body.data().await {
                log.lock().unwrap().extend_from_slice(&data);
            }
            log.lock().unwrap().push(b'.');
        }
    });
    let echo = Backend::echo();
    let gateway = Setup::new()
        .service("early", &[early])
        .service("echo", &[echo.address()])
        .ingress(
            &Ingress::new("early", "early.example").path("Prefix", "/", "early").annotation(GRPC.0, GRPC.1),
        )
        .ingress(&Ingress::new("echo", "echo.example").path("Prefix", "/", "echo"))
        .start();
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: early.example\r\nContent-Length: 204000\r\n\r\n");
    client.send([b'1'; 200_000]);
    assert_eq!(client.response().text(), "early");
    client.send([b'1'; 4000]);
    client.send("POST / HTTP/1.1\r\nHost: echo.example\r\nContent-Length: 20\r\n\r\nsecret-of-");
    eventually("the second request", || echo.requests().len() == 1);
    go.notify_one();
    eventually("the end of the first", || received.lock().unwrap().ends_with(b"."));
    client.send("request-2!");
    assert_eq!(client.response().text(), "secret-of-request-2!");
    assert!(!received.lock().unwrap().contains(&b's'));
}

#[test]
fn uploads_that_get_nowhere_end_and_leave_no_stream_behind() {
    let resets = Arc::new(AtomicUsize::new(0));
    let count = resets.clone();
    let settings = Builder::new().max_concurrent_streams(3).clone();
    let (address, connections) = backend(&settings, move |request, mut respond| {
        let count = count.clone();
        async move {
            if request.method() == http::Method::GET {
                return answer(&mut respond, "ok");
            }
            // The answer begins, and nothing of the request is read.
            let mut stream = respond.send_response(Response::new(()), false).unwrap();
            stream.send_data("part".into(), false).unwrap();
            let ended = poll_fn(|cx| stream.poll_reset(cx)).await;
            count.fetch_add(
                usize::from(ended.is_ok_and(|reason| reason == h2::Reason::CANCEL)),
                Ordering::Relaxed,
            );
            drop(request);
        }
    });
    let gateway = Gateway::in_front_of(address, &[GRPC, ("proxy-send-timeout", "1")], &[]);
    for round in 1..=2 {
        let uploads = [(); 3].map(|()| {
            let mut client = gateway.client();
            client.send("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1000000\r\n\r\n");
            client.send([b'x'; 200_000]);
            client
        });
        for mut client in uploads {
            let response = client.response();
            assert_eq!((response.status, response.complete, response.text().as_str()), (200, false, "part"));
        }
        eventually("the end of the streams", || resets.load(Ordering::Relaxed) == 3 * round);
        assert_eq!(gateway.client().get("a.example", "/").text(), "ok");
    }
    assert_eq!(connections.load(Ordering::Relaxed), 1);
}

/// A client of HTTP/2 that gives up its request gives up the one to the backend.
#[tokio::test]
async fn a_stream_that_the_client_resets_is_reset_towards_the_backend() {
    let ended = Arc::new(Notify::new());
    let end = ended.clone();
    let (address, _) = backend(&Builder::new(), move |request, mut respond| {
        let end = end.clone();
        async move {
            let mut stream = respond.send_response(Response::new(()), false).unwrap();
            if poll_fn(|cx| stream.poll_reset(cx)).await.is_ok_and(|reason| reason == h2::Reason::CANCEL) {
                end.notify_one();
            }
            drop(request);
        }
    });
    let gateway = Gateway::in_front_of(address, &[GRPC], &[]);
    let mut client = gateway.http2("a.example").await;
    let (response, mut stream) = client.begin(post("a.example", "/"), false).await.unwrap();
    // More than the backend has room for.
    stream.send_data(vec![b'x'; 200_000].into(), false).unwrap();
    let response = response.await.unwrap();
    stream.send_reset(h2::Reason::CANCEL);
    drop(response);
    tokio::time::timeout(PATIENCE, ended.notified()).await.unwrap();
}

#[tokio::test]
async fn clients_that_read_slowly_are_in_nobodys_way() {
    let backend = Grpc::plain();
    let gateway = Gateway::in_front_of(backend.address(), &[GRPC], &[]);
    let many = || post("a.example", "/echo.Echo/Many");
    let mut slow = Http2::with_window(gateway.https, "a.example", 1024).await;
    let mut unread = Vec::new();
    for _ in 0..20 {
        let (response, mut stream) = slow.begin(many(), false).await.unwrap();
        stream.send_data(message_of(b"20000"), true).unwrap();
        unread.push(response);
    }
    eventually_async("all of them at the backend", || backend.requests().len() == 20).await;
    let mut client = gateway.http2("a.example").await;
    let answer = client.ask(many(), message_of(b"1000"), None).await.unwrap();
    assert!(answer.body.ends_with(b"message 999"));
    // Nothing was lost of what they have not read.
    let answer = receive(unread.swap_remove(0)).await.unwrap();
    assert!(answer.body.ends_with(b"message 19999"));
}

#[test]
fn a_backend_that_takes_one_stream_gets_more_connections() {
    let (address, connections) =
        backend(Builder::new().max_concurrent_streams(1), |request, mut respond| async move {
            match request.uri().path() {
                "/hang" => std::future::pending().await,
                _ => answer(&mut respond, "ok"),
            }
        });
    let gateway = Gateway::in_front_of(address, &[GRPC], &[]);
    assert_eq!(gateway.client().get("a.example", "/").text(), "ok");
    let mut hanging = gateway.client();
    hanging.send("GET /hang HTTP/1.1\r\nHost: a.example\r\n\r\n");
    eventually("an answer beside it", || {
        assert_eq!(gateway.client().get("a.example", "/").text(), "ok");
        connections.load(Ordering::Relaxed) == 2
    });
}

/// The last frame of a response may be an empty one, which many servers send.
#[tokio::test]
async fn a_response_whose_last_frame_is_empty_ends_well() {
    let (address, _) = backend(&Builder::new(), |request, mut respond| async move {
        let mut stream = respond.send_response(Response::new(()), false).unwrap();
        if request.uri().path() == "/some" {
            stream.send_data("some".into(), false).unwrap();
        }
        stream.send_data(Bytes::new(), true).unwrap();
    });
    let gateway = Gateway::in_front_of(address, &[GRPC], &[]);
    let mut client = gateway.http2("a.example").await;
    for (path, body) in [("/none", ""), ("/some", "some")] {
        assert_eq!(client.get("a.example", path).await.unwrap().body, body.as_bytes(), "{path}");
        assert_eq!(gateway.client().get("a.example", path).text(), body, "{path}");
    }
}
