//! SIGTERM: what is under way ends well, what is idle is told to go, nothing new is taken.

use std::net::TcpStream;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

use portcullis::testing::backend::{After, Backend};
use portcullis::testing::frames::{self, DATA, END_STREAM, Frame, Frames, HEADERS, WINDOW_UPDATE};
use portcullis::testing::http2::{get, receive};
use portcullis::testing::{eventually, eventually_async};

use crate::gateway::Gateway;

/// A backend that answers when it is told to, once for each message.
fn gated() -> (Backend, mpsc::Sender<()>) {
    let (open, gate) = mpsc::channel();
    let gate = Mutex::new(gate);
    let backend = Backend::on_request(move |_, wire| {
        let _ = gate.lock().unwrap().recv();
        let _ = wire.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone");
        After::KeepAlive
    });
    (backend, open)
}

/// The last stream that a GOAWAY says is served.
fn last_stream(goaway: &Frame) -> u32 {
    u32::from_be_bytes(goaway.payload[..4].try_into().unwrap())
}

#[test]
fn requests_in_flight_finish_and_the_process_ends_well() {
    let (backend, open) = gated();
    let mut gateway = Gateway::before(&backend);
    let mut busy = gateway.client();
    let mut idle = gateway.client();
    open.send(()).unwrap();
    idle.get("a.example", "/");
    busy.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    eventually("the request", || backend.requests().len() == 2);
    gateway.terminate();
    idle.assert_closed();
    eventually("no new connections", || TcpStream::connect(gateway.http).is_err());
    open.send(()).unwrap();
    let response = busy.response();
    assert_eq!((response.text().as_str(), response.field("connection")), ("done", Some("close")));
    busy.assert_closed();
    assert_eq!(gateway.wait().code(), Some(0));
}

#[tokio::test]
async fn http2_is_told_and_its_streams_finish() {
    let (backend, open) = gated();
    let mut gateway = Gateway::before(&backend);
    let mut client = gateway.http2("a.example").await;
    let mut answers = Vec::new();
    for n in 0..10 {
        answers.push(client.begin(get("a.example", &format!("/{n}")), true).await.unwrap().0);
    }
    eventually_async("the requests", || backend.requests().len() == 10).await;
    gateway.terminate();
    for _ in 0..10 {
        open.send(()).unwrap();
    }
    for answer in answers {
        assert_eq!(receive(answer).await.unwrap().text(), "done");
    }
    client.driver.await.unwrap().unwrap();
    assert_eq!(gateway.wait().code(), Some(0));
}

#[test]
fn goaway_comes_in_two_steps() {
    let (backend, open) = gated();
    let mut gateway = Gateway::before(&backend);
    let mut client = gateway.frames();
    client.get(1, "a.example", "/");
    eventually("the request", || backend.requests().len() == 1);
    gateway.terminate();
    let first = client.find(|frame| frame.kind == frames::GOAWAY).unwrap();
    assert_eq!((last_stream(&first), first.error_code()), (0x7fff_ffff, frames::NO_ERROR));
    // One that was on its way when the first was sent is still served.
    client.get(3, "a.example", "/late");
    open.send(()).unwrap();
    open.send(()).unwrap();
    let rest: Vec<_> = std::iter::from_fn(|| client.read()).collect();
    for stream in [1, 3] {
        assert!(rest.iter().any(|frame| frame.kind == HEADERS && frame.stream == stream), "{rest:?}");
    }
    let second = rest.iter().find(|frame| frame.kind == frames::GOAWAY).unwrap();
    assert_eq!((last_stream(second), second.error_code()), (3, frames::NO_ERROR));
    assert_eq!(gateway.wait().code(), Some(0));
}

/// What a client still sends must not make the kernel reset a connection that has been closed, and take with it what is
/// under way.
#[test]
fn clients_that_are_slow_to_read_get_their_responses_whole() {
    const LENGTH: usize = 400_000;
    let (open, gate) = mpsc::channel();
    let gate = Mutex::new(gate);
    let backend = Backend::on_request(move |_, wire| {
        let _: Result<(), _> = gate.lock().unwrap().recv();
        let _ = wire.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n"));
        let _ = wire.send([b'x'; LENGTH]);
        After::KeepAlive
    });
    let mut gateway = Gateway::before(&backend);
    let mut http2 = Frames::connect(gateway.https, "a.example", &[(4, 1 << 20)]);
    http2.send(WINDOW_UPDATE, 0, 0, (1u32 << 20).to_be_bytes());
    http2.get(1, "a.example", "/http2");
    let mut http1 = gateway.client();
    http1.send("GET /http1 HTTP/1.1\r\nHost: a.example\r\n\r\n");
    eventually("the requests", || backend.requests().len() == 2);
    gateway.terminate();
    http2.find(|frame| frame.kind == frames::GOAWAY && last_stream(frame) == 1).unwrap();
    open.send(()).unwrap();
    open.send(()).unwrap();
    eventually("both responses on their way", || {
        ["/http1 ", "/http2 "].iter().all(|path| gateway.log().contains(path))
    });
    for _ in 0..10 {
        assert!(http2.send(WINDOW_UPDATE, 0, 0, 1u32.to_be_bytes()));
        http1.send("GET /next HTTP/1.1\r\nHost: a.example\r\n\r\n");
        thread::sleep(Duration::from_millis(10));
    }
    let frames: Vec<_> = std::iter::from_fn(|| http2.read()).filter(|frame| frame.kind == DATA).collect();
    assert_eq!(frames.iter().map(|frame| frame.payload.len()).sum::<usize>(), LENGTH);
    assert_eq!(frames.last().unwrap().flags, END_STREAM);
    let response = http1.response();
    assert_eq!((response.complete, response.body.len()), (true, LENGTH));
    drop((http1, http2));
    assert_eq!(gateway.wait().code(), Some(0));
}

#[test]
fn an_impatient_operator_and_a_deadline() {
    let (backend, _open) = gated();
    let mut gateway = Gateway::with(&backend, &["worker-shutdown-timeout: 500ms"]);
    let mut busy = gateway.client();
    busy.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    eventually("the request", || backend.requests().len() == 1);
    gateway.terminate();
    assert_eq!(gateway.wait().code(), Some(0), "ends at the deadline although a request is open");
    assert!(
        gateway.log().contains("GET http://a.example/ HTTP/1.1"),
        "a request that was given up is logged"
    );
}
