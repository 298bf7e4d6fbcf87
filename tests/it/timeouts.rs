//! Slow and silent clients and backends: every wait has an end, and the end has a reason.

use std::thread;
use std::time::Duration;

use portcullis::testing::backend::{After, Backend};
use portcullis::testing::client::Client;
use portcullis::testing::eventually;
use portcullis::testing::frames::{self, DATA, END_HEADERS, END_STREAM, HEADERS, Outcome, WINDOW_UPDATE};

use crate::gateway::Gateway;

#[test]
fn a_head_that_comes_too_slowly() {
    let backend = Backend::echo();
    let gateway = Gateway::with(&backend, &["client-header-timeout: 500ms"]);
    for mut client in [gateway.client(), gateway.tls_client("a.example")] {
        client.send("GET / HTTP/1.1\r\nHost: a.exa");
        client.assert_closed();
    }
    // A byte now and then does not help: the time is for the whole head.
    let mut client = gateway.client();
    let mut writer = client.wire.tcp().try_clone().unwrap();
    let drip = thread::spawn(move || {
        use std::io::Write;
        for byte in b"GET / HTTP/1.1\r\nX: ".iter().chain(std::iter::repeat_n(&b'x', 1000)) {
            if writer.write_all(&[*byte]).is_err() {
                return true;
            }
            thread::sleep(Duration::from_millis(50));
        }
        false
    });
    client.assert_closed();
    assert!(drip.join().unwrap(), "cut off before it was through");
    // Neither does saying nothing at all.
    gateway.client().assert_closed();
}

#[test]
fn a_tls_handshake_that_does_not_get_anywhere() {
    let backend = Backend::echo();
    let gateway = Gateway::with(&backend, &["tls-handshake-timeout: 500ms"]);
    let mut silent = Client::plain(gateway.https);
    silent.assert_closed();
    let mut half = Client::plain(gateway.https);
    half.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03");
    assert!(half.wire.take_all().len() < 100);
    assert_eq!(gateway.tls_client("a.example").get("a.example", "/").status, 200);
}

#[test]
fn an_idle_worker_sleeps() {
    let backend = Backend::echo();
    let settings = ["keep-alive: 500ms", "client-header-timeout: 500ms", "upstream-keepalive-timeout: 1s"];
    let gateway = Gateway::with(&backend, &settings);
    let mut client = gateway.tls_client("a.example");
    assert_eq!(client.get("a.example", "/").status, 200);
    client.assert_closed();
    let woken_within_three_seconds = || {
        let before = gateway.worker_sleeps();
        thread::sleep(Duration::from_secs(3));
        gateway.worker_sleeps() - before
    };
    // The connection to the backend is kept for a while; then nothing is left. A clock that goes on wakes it thirty times.
    eventually("a worker that is left alone", || woken_within_three_seconds() < 5);
    // The clock that stood still is right where it counts: the limit for a head is kept.
    let mut silent = gateway.client();
    silent.assert_closed();
    assert_eq!(gateway.tls_client("a.example").get("a.example", "/").status, 200);
}

#[test]
fn an_idle_connection() {
    let backend = Backend::echo();
    let gateway = Gateway::with(&backend, &["keep-alive: 500ms"]);
    for mut client in [gateway.client(), gateway.tls_client("a.example")] {
        assert_eq!(client.get("a.example", "/").status, 200);
        client.assert_closed();
    }
    let gateway = Gateway::with(&backend, &["keep-alive: 0s"]);
    let mut client = gateway.client();
    assert_eq!(client.get("a.example", "/").field("connection"), Some("close"));
    client.assert_closed();
}

#[test]
fn a_body_that_stops() {
    let backend = Backend::echo();
    let gateway = Gateway::with(&backend, &["client-body-timeout: 500ms"]);
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 10\r\n\r\nhello");
    let response = client.response();
    assert_eq!((response.status, response.field("connection")), (408, Some("close")));
    client.assert_closed();
    eventually("the backend being let go", || backend.open_connections() == 0);
}

/// A watch or a subscription: the client asks once and listens, with its request still open.
#[test]
fn a_client_that_listens_need_not_speak() {
    let backend = Backend::on_head(|_, wire| {
        let mut out = wire.tcp().try_clone().unwrap();
        thread::spawn(move || {
            use std::io::Write;
            let _ = out.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            for _ in 0..30 {
                let _ = out.write_all(b"4\r\ntick\r\n");
                thread::sleep(Duration::from_millis(100));
            }
            let _ = out.write_all(b"0\r\n\r\n");
        });
        while wire.fill().is_ok_and(|read| read > 0) {}
        After::Close
    });
    let settings = ["client-body-timeout: 500ms"];
    let gateway = Gateway::in_front_of(backend.address(), &[("proxy-read-timeout", "1")], &settings);

    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n");
    let response = client.response();
    assert_eq!((response.complete, response.body.len()), (true, 120), "over HTTP/1");
    drop(client);

    let mut client = gateway.frames();
    let mut fields = frames::get("a.example", "/");
    fields[0] = (":method", "POST");
    client.headers(1, &fields, 0);
    client.send(DATA, 0, 1, "x");
    let mut taken = 0;
    loop {
        let frame = client.find(|frame| frame.stream == 1 && frame.kind != WINDOW_UPDATE);
        let frame = frame.expect("the end of the response");
        assert!(matches!(frame.kind, HEADERS | DATA), "{frame:?}");
        taken += if frame.kind == DATA { frame.payload.len() } else { 0 };
        if frame.flags & END_STREAM != 0 {
            break;
        }
    }
    assert_eq!(taken, 120, "over HTTP/2");
}

/// The head of a request over HTTP/2, which others on the connection wait behind.
#[test]
fn a_header_block_that_comes_too_slowly() {
    let backend = Backend::echo();
    let gateway = Gateway::with(&backend, &["client-header-timeout: 500ms"]);
    let block = frames::block(&frames::get("a.example", "/"));
    // More of it comes all the time, but no end.
    let mut client = gateway.frames();
    let whole = frames::frame(HEADERS, END_HEADERS, 1, &[&block[..], &[0x82; 1000]].concat());
    let (first, rest) = whole.split_at(block.len());
    client.wire.send(first).unwrap();
    let closed = rest.iter().take(400).any(|byte| {
        thread::sleep(Duration::from_millis(50));
        client.wire.send([*byte]).is_err()
    });
    assert!(closed, "inside a frame");
    // A frame is whole, and the one that shall end the block does not come.
    let mut client = gateway.frames();
    client.get(1, "a.example", "/");
    assert_eq!(client.outcome(1), Outcome::Status(200));
    client.send(HEADERS, 0, 3, block);
    while client.wire.fill().expect("the end, not silence") > 0 {}
}

#[test]
fn a_client_that_does_not_take_its_response() {
    let backend = Backend::on_request(|_, wire| {
        let _ = wire.send("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n");
        while wire.send(vec![b'x'; 100_000]).is_ok() {}
        After::Close
    });
    let gateway = Gateway::with(&backend, &["client-body-timeout: 500ms"]);
    let mut client = gateway.client();
    client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    eventually("the request", || backend.open_connections() == 1);
    eventually("the end of the response", || backend.open_connections() == 0);
    assert!(!client.response().complete);
}

#[test]
fn backends_that_are_silent() {
    let backend = Backend::on_request(|request, wire| {
        if request.target == "/half" {
            let _ = wire.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
        }
        let _ = wire.fill();
        After::Close
    });
    let gateway = Gateway::in_front_of(backend.address(), &[("proxy-read-timeout", "1")], &[]);
    let mut client = gateway.client();
    let response = client.get("a.example", "/");
    assert_eq!(response.status, 504);
    assert!(response.text().contains("upstream_timeout"), "{}", response.text());
    // Once it has begun, a response can only be cut off.
    let response = client.get("a.example", "/half");
    assert_eq!((response.status, response.complete, &*response.body), (200, false, &b"hello"[..]));
    let mut grpc = gateway.client();
    let response = grpc.ask(
        "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Type: application/grpc\r\nContent-Length: 0\r\n\r\n",
    );
    assert_eq!((response.status, response.field("grpc-status")), (200, Some("4")));
}

#[test]
fn clients_that_waste_time_are_in_nobodys_way() {
    let backend = Backend::echo();
    let gateway = Gateway::before(&backend);
    let slow: Vec<Client> = (0..200)
        .map(|n| {
            let mut client = if n % 2 == 0 { gateway.client() } else { Client::plain(gateway.https) };
            client.send("GET / HT");
            client
        })
        .collect();
    for _ in 0..20 {
        assert_eq!(gateway.tls_client("a.example").get("a.example", "/").status, 200);
    }
    drop(slow);
}
