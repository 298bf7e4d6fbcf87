//! SIGTERM: what is under way ends well, what is idle is told to go, nothing new is taken.

use std::net::TcpStream;
use std::sync::{Mutex, mpsc};

use portcullis::testing::backend::{After, Backend};
use portcullis::testing::frames::{self, HEADERS};
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
    // The connection ends; whether a last write of the client still found it open is chance.
    let _ = client.driver.await.unwrap();
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
    let last_stream = |frame: &frames::Frame| u32::from_be_bytes(frame.payload[..4].try_into().unwrap());
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

#[test]
fn an_impatient_operator_and_a_deadline() {
    let (backend, _open) = gated();
    let mut gateway = Gateway::with(&backend, &["worker-shutdown-timeout: 500ms"]);
    let mut busy = gateway.client();
    busy.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    eventually("the request", || backend.requests().len() == 1);
    gateway.terminate();
    assert_eq!(gateway.wait().code(), Some(0), "ends at the deadline although a request is open");
}
