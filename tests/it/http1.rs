//! HTTP/1.1 with clients, through the real binary: what passes, in which form, and how connections end.

use std::io::Write;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use portcullis::testing::backend::{After, Backend};
use portcullis::testing::eventually;
use portcullis::testing::message::Request;
use portcullis::testing::wire::Wire;

use crate::gateway::Gateway;

fn answering(answer: &str) -> Backend {
    Backend::answering(answer, After::KeepAlive)
}

#[test]
fn a_connection_serves_many_requests_and_so_does_one_to_the_backend() {
    let backend = Backend::echo();
    let gateway = Gateway::before(&backend);
    let mut client = gateway.client();
    for n in 0..10 {
        assert_eq!(client.get("a.example", &format!("/{n}")).text(), format!("GET /{n}"));
    }
    assert_eq!(backend.connections(), 1);
}

#[test]
fn http_1_0() {
    let backend = Backend::on_request(|_, wire| {
        let _ = wire.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
        After::KeepAlive
    });
    let gateway = Gateway::before(&backend);
    // No chunks for 1.0: the end of the connection is the end of the body.
    let mut client = gateway.client();
    let response = client.ask("GET / HTTP/1.0\r\nHost: a.example\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!((response.text().as_str(), response.field("transfer-encoding")), ("hello", None));
    assert_eq!(response.field("connection"), Some("close"));

    let backend = Backend::echo();
    let gateway = Gateway::before(&backend);
    let mut client = gateway.client();
    let response = client.ask("GET /a HTTP/1.0\r\nHost: a.example\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(response.field("connection"), Some("keep-alive"));
    let response = client.ask("GET /b HTTP/1.0\r\nHost: a.example\r\n\r\n");
    assert_eq!((response.text().as_str(), response.field("connection")), ("GET /b", Some("close")));
    client.assert_closed();
    assert_eq!(backend.requests()[0].version, "HTTP/1.1", "the gateway speaks for itself");
    // Without Host there is only what answers for every host.
    assert_eq!(gateway.client().ask("GET / HTTP/1.0\r\n\r\n").status, 404);
}

#[test]
fn responses_without_a_body() {
    let backend = Backend::on_request(|request, wire| {
        let answer = match request.target.as_str() {
            "/204" => "HTTP/1.1 204 No Content\r\n\r\n",
            "/304" => "HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\nContent-Length: 1000\r\n\r\n",
            "/205" => "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n",
            _ => "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\nX-Backend: here\r\n\r\n",
        };
        let _ = wire.send(answer);
        After::KeepAlive
    });
    let gateway = Gateway::before(&backend);
    let mut client = gateway.client();
    let head = client.ask("HEAD /head HTTP/1.1\r\nHost: a.example\r\n\r\n");
    assert_eq!(
        (head.status, head.field("content-length"), head.field("x-backend")),
        (200, Some("1000"), Some("here"))
    );
    let empty = client.get("a.example", "/204");
    assert_eq!(
        (empty.status, empty.field("content-length"), empty.field("transfer-encoding")),
        (204, None, None)
    );
    assert_eq!(client.get("a.example", "/304").field("etag"), Some("\"x\""));
    assert_eq!(client.get("a.example", "/205").status, 205);
    // All over one connection: nothing of a body was left in between.
    assert_eq!(client.ask("HEAD /head HTTP/1.1\r\nHost: a.example\r\n\r\n").status, 200);
    assert_eq!(backend.connections(), 1);
}

#[test]
fn trailers_pass_both_ways_and_the_dangerous_ones_do_not() {
    let backend = answering(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 2\r\n\
         Content-Length: 7\r\nTransfer-Encoding: chunked\r\nSet-Cookie: a=b\r\n\r\n",
    );
    let gateway = Gateway::before(&backend);
    let mut client = gateway.client();
    let request = "POST / HTTP/1.1\r\nHost: a.example\r\nTE: trailers\r\nConnection: TE\r\nTransfer-Encoding: chunked\r\n\r\n\
                   3\r\nabc\r\n0\r\nX-Sum: 1\r\nContent-Length: 9\r\nHost: b.example\r\nTransfer-Encoding: chunked\r\n\
                   Authorization: x\r\nX-Real-IP: 10.0.0.1\r\nX-Forwarded-For: 10.0.0.1\r\nX.Real.IP: 10.0.0.1\r\n\
                   X-Scheme: https\r\nX-Original-Forwarded-For: 10.0.0.1\r\n\r\n";
    let response = client.ask(request);
    assert_eq!((response.text().as_str(), response.trailers.get("x-sum")), ("hello", Some("2")));
    for name in ["content-length", "transfer-encoding", "set-cookie"] {
        assert_eq!(response.trailers.get(name), None, "{name}");
    }
    let seen = backend.only_request();
    assert_eq!((&*seen.body, seen.trailers.get("x-sum")), (&b"abc"[..], Some("1")));
    assert_eq!(seen.trailers.0.len(), 1, "{:?}", seen.trailers);
    assert_eq!(seen.field("te"), Some("trailers"));
    assert_eq!(seen.field("x-real-ip"), Some("127.0.0.1"));
    // Nobody needs to ask for trailers alone.
    let request =
        "GET / HTTP/1.1\r\nHost: a.example\r\nTE: deflate\r\nTE: trailers, x\r\nConnection: TE\r\n\r\n";
    assert_eq!(client.ask(request).trailers.get("x-sum"), Some("2"));
    // A client that does not ask for trailers gets none.
    let response = client.get("a.example", "/");
    assert_eq!((response.text().as_str(), response.trailers.0.len()), ("hello", 0));
}

#[test]
fn a_client_that_waits_for_100_continue() {
    let backend = Backend::echo();
    let gateway = Gateway::before(&backend);
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a.example\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(client.response().status, 100);
    client.send("hello");
    assert_eq!(client.response().text(), "hello");
    // A final answer instead: the body never comes, and the connection is at its end.
    client
        .send("POST / HTTP/1.1\r\nHost: nobody.example\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    let response = client.response();
    assert_eq!((response.status, response.field("connection")), (404, Some("close")));
    client.assert_closed();
}

#[test]
fn a_backend_that_answers_before_the_body() {
    let backend = Backend::on_head(|_, wire| {
        let _ = wire.send("HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno");
        After::Close
    });
    let gateway = Gateway::before(&backend);
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 500000\r\n\r\nsome");
    let response = client.response();
    assert_eq!((response.status, response.text().as_str()), (401, "no"));
}

#[test]
fn interim_responses_of_the_backend() {
    let backend = answering(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n\
         HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    );
    let gateway = Gateway::before(&backend);
    let mut client = gateway.client();
    for _ in 0..3 {
        let responses: Vec<_> = std::iter::once(client.get("a.example", "/")).collect();
        let last = responses.last().unwrap();
        assert_eq!((last.status, last.text().as_str()), (200, "ok"));
    }
}

/// Upgrades a connection and sends back what it is sent, in capitals, to the end.
fn shout(request: &mut Request, wire: &mut Wire) -> After {
    assert_eq!(request.field("upgrade"), Some("websocket"));
    let _ = wire.send(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: x\r\n\r\nWELCOME ",
    );
    loop {
        let piece = std::mem::take(&mut wire.input).to_ascii_uppercase();
        if !piece.is_empty() {
            let _ = wire.send(piece);
        }
        if wire.fill().unwrap_or(0) == 0 {
            break;
        }
    }
    let _ = wire.send("GOODBYE");
    After::Close
}

const WEBSOCKET: &str = "GET /chat HTTP/1.1\r\nHost: a.example\r\nConnection: keep-alive, Upgrade\r\n\
                         Upgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n";

#[test]
fn a_websocket_through_tls_with_each_side_closing_by_itself() {
    let backend = Backend::on_request(shout);
    let gateway = Gateway::before(&backend);
    let mut client = gateway.tls_client("a.example");
    let response = client.ask(WEBSOCKET);
    assert_eq!((response.status, response.field("upgrade")), (101, Some("websocket")));
    assert_eq!(response.field("sec-websocket-accept"), Some("x"));
    assert_eq!(response.field("connection").map(str::to_ascii_lowercase).as_deref(), Some("upgrade"));
    assert_eq!(client.wire.take(8), b"WELCOME ");
    client.send("hello");
    assert_eq!(client.wire.take(5), b"HELLO");
    let large = vec![b'x'; 3_000_000];
    let mut sender = client;
    let back = thread::scope(|scope| {
        // Both directions at once, larger than any buffer on the way.
        let mut tcp = sender.wire.tcp().try_clone().unwrap();
        let _ = tcp.flush();
        scope.spawn(|| {
            for piece in large.chunks(50_000) {
                sender.send(piece);
                assert_eq!(sender.wire.take(piece.len()).len(), piece.len());
            }
        });
        large.len()
    });
    assert_eq!(back, large.len());
    sender.wire.finish();
    assert_eq!(sender.wire.take_all(), b"GOODBYE");
}

/// What a client sends before the 101 is for the other protocol and comes after it.
#[test]
fn bytes_sent_along_with_an_upgrade() {
    let backend = Backend::on_request(shout);
    let gateway = Gateway::before(&backend);
    let mut client = gateway.client();
    client.send(format!("{WEBSOCKET}early"));
    assert_eq!(client.response().status, 101);
    assert_eq!(client.wire.take(13), b"WELCOME EARLY");
}

#[test]
fn a_tunnel_that_is_silent_for_as_long_as_its_route_says() {
    let backend = Backend::on_request(shout);
    let gateway = Gateway::in_front_of(backend.address(), &[("proxy-read-timeout", "1")], &[]);
    let mut client = gateway.client();
    assert_eq!(client.ask(WEBSOCKET).status, 101);
    eventually("the end of the tunnel", || backend.open_connections() == 0);
}

#[test]
fn upgrades_that_a_backend_refuses_or_makes_up() {
    let refused = answering("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
    let gateway = Gateway::before(&refused);
    let mut client = gateway.client();
    assert_eq!(client.ask(WEBSOCKET).text(), "no");
    assert_eq!(client.ask(WEBSOCKET).text(), "no", "the connection goes on");

    let unasked = answering("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n");
    let gateway = Gateway::before(&unasked);
    let response = gateway.client().get("a.example", "/");
    assert_eq!(response.status, 502);
    assert!(response.text().contains("unexpected 101"), "{}", response.text());
}

#[test]
fn an_upload_streams_and_the_backend_holds_it_back() {
    let (taken, begun) = mpsc::channel::<()>();
    let (go_on, gate) = mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let backend = Backend::on_head(move |request, wire| {
        let _ = taken.send(());
        let _ = gate.lock().unwrap().recv();
        request.read_body(wire);
        let length = request.body.len();
        request.body.clear();
        let _ = wire.send(format!("HTTP/1.1 200 OK\r\nX-Length: {length}\r\nContent-Length: 0\r\n\r\n"));
        After::KeepAlive
    });
    let gateway = Gateway::in_front_of(backend.address(), &[("proxy-body-size", "0")], &[]);
    let before = gateway.resident();
    const SIZE: usize = 64 * 1024 * 1024;
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n");
    begun.recv_timeout(Duration::from_secs(20)).expect("the head goes ahead of the body");
    let piece = vec![b'x'; 64 * 1024];
    let mut sender = client.wire.tcp().try_clone().unwrap();
    let upload = thread::spawn(move || {
        for _ in 0..SIZE / piece.len() {
            write!(sender, "{:x}\r\n", piece.len()).unwrap();
            sender.write_all(&piece).unwrap();
            sender.write_all(b"\r\n").unwrap();
        }
        sender.write_all(b"0\r\n\r\n").unwrap();
    });
    thread::sleep(Duration::from_millis(300));
    assert!(!upload.is_finished(), "64 MiB are held back while the backend reads nothing");
    let held = gateway.resident().saturating_sub(before);
    assert!(held < 8 * 1024, "{held} KiB more than before");
    go_on.send(()).unwrap();
    assert_eq!(client.response().field("x-length"), Some(&*(SIZE + 1).to_string()));
    upload.join().unwrap();
    let held = gateway.resident().saturating_sub(before);
    assert!(held < 8 * 1024, "{held} KiB more than before");
}

#[test]
fn an_upload_goes_on_while_its_client_takes_nothing_of_the_response() {
    // More than all socket buffers on the way together.
    const SIZE: usize = 48 * 1024 * 1024;
    let backend = Backend::on_head(|request, wire| {
        let mut out = wire.tcp().try_clone().unwrap();
        let response = thread::spawn(move || {
            let piece = vec![b'x'; 64 * 1024];
            write!(out, "HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n").unwrap();
            (0..SIZE / piece.len()).for_each(|_| out.write_all(&piece).unwrap());
        });
        request.read_body(wire);
        assert_eq!(request.body.len(), SIZE);
        request.body.clear();
        response.join().unwrap();
        After::KeepAlive
    });
    let gateway = Gateway::in_front_of(backend.address(), &[("proxy-body-size", "0")], &[]);
    let mut client = gateway.client();
    client.send(format!("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: {SIZE}\r\n\r\n"));
    client.send(vec![b'y'; SIZE]);
    assert_eq!(client.response().body.len(), SIZE);
}

#[test]
fn a_download_is_held_back_by_its_client() {
    const SIZE: usize = 64 * 1024 * 1024;
    let (done, sent) = mpsc::channel::<()>();
    let backend = Backend::on_request(move |_, wire| {
        let piece = vec![b'x'; 64 * 1024];
        let _ = wire.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n"));
        for _ in 0..SIZE / piece.len() {
            let _ = wire.send(&piece);
        }
        let _ = done.send(());
        After::KeepAlive
    });
    let gateway = Gateway::before(&backend);
    let before = gateway.resident();
    let mut client = gateway.tls_client("a.example");
    client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    assert!(sent.recv_timeout(Duration::from_millis(300)).is_err(), "64 MiB are held back");
    let held = gateway.resident().saturating_sub(before);
    assert!(held < 8 * 1024, "{held} KiB more than before");
    assert_eq!(client.response().body.len(), SIZE);
}

#[test]
fn a_client_that_leaves_takes_its_request_with_it() {
    let backend = Backend::on_request(|_, wire| {
        // Never answers; sees the end of the connection.
        let _ = wire.fill();
        After::Close
    });
    let gateway = Gateway::before(&backend);
    for mut client in [gateway.client(), gateway.tls_client("a.example")] {
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
        eventually("the request", || backend.open_connections() == 1);
        drop(client);
        eventually("the end of the request", || backend.open_connections() == 0);
    }
}

#[test]
fn a_client_that_leaves_during_a_response_is_noticed() {
    let backend = Backend::on_request(|_, wire| {
        let _ = wire
            .send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
        let _ = wire.send("5\r\nhello\r\n");
        // Has no more to say; sees the end of the connection.
        let _ = wire.fill();
        After::Close
    });
    let gateway = Gateway::with(&backend, &["log-format: json"]);
    for mut client in [gateway.client(), gateway.tls_client("a.example")] {
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
        while !client.wire.input.ends_with(b"hello\r\n") {
            assert!(client.wire.fill().unwrap() > 0);
        }
        drop(client);
        eventually("the end of the request", || backend.open_connections() == 0);
    }
    eventually("both in the log", || gateway.log().matches(r#""reason":"client_closed""#).count() == 2);
    assert_eq!(gateway.metric("portcullis_responses_broken_total"), 2.0);
}

/// Where the end of the connection is the end of the body, a body that breaks off must not end like that.
#[test]
fn a_cut_off_response_does_not_look_whole_to_http_1_0() {
    let backend = Backend::answering(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        After::Close,
    );
    let gateway = Gateway::with(&backend, &["log-format: json"]);
    let mut client = gateway.client();
    client.send("GET / HTTP/1.0\r\nHost: a.example\r\n\r\n");
    let mut tcp = client.wire.tcp();
    let end = std::io::Read::read_to_end(&mut tcp, &mut Vec::new());
    assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    let reason = r#""reason":"upstream_body_truncated""#;
    eventually("the reason in the log", || gateway.log().contains(reason));
    assert_eq!(gateway.metric("portcullis_responses_broken_total"), 1.0);
    // Whole ones are not counted, with a body or without.
    let backend = Backend::echo();
    let gateway = Gateway::with(&backend, &["log-format: json"]);
    for request in ["GET / HTTP/1.1", "HEAD / HTTP/1.1", "HEAD /nowhere HTTP/1.1", "POST / HTTP/1.0"] {
        let host = if request.contains("nowhere") { "nobody.example" } else { "a.example" };
        gateway.client().ask(format!("{request}\r\nHost: {host}\r\n\r\n"));
    }
    eventually("all in the log", || gateway.log().matches(r#""path":"/"#).count() >= 4);
    assert_eq!(gateway.metric("portcullis_responses_broken_total"), 0.0, "{}", gateway.log());
}

#[test]
fn what_is_no_request_is_logged_and_counted() {
    let backend = Backend::echo();
    let gateway = Gateway::with(&backend, &["log-format: json"]);
    for (request, status, reason) in [
        ("GET / HTTP/1.1\r\nHost : a.example\r\n\r\n", 400, "malformed_head"),
        ("GET / HTTP/1.1\r\n\r\n", 400, "bad_host"),
        ("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: -1\r\n\r\n", 400, "bad_framing"),
        ("GET / HTTP/1.1\r\nHost: a.example\r\nExpect: x\r\n\r\n", 417, "bad_expectation"),
        ("GET / HTTP/3.0\r\nHost: a.example\r\n\r\n", 505, "bad_version"),
        (&format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(40_000)), 414, "target_too_long"),
        (&format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(70_000)), 431, "head_too_large"),
    ] {
        assert_eq!(gateway.client().ask(request).status, status, "{reason}");
        let line = format!(r#""status":{status},"#);
        let reason = format!(r#""reason":"{reason}""#);
        let is_logged =
            || gateway.log().lines().any(|logged| logged.contains(&line) && logged.contains(&reason));
        eventually(&reason, is_logged);
    }
    assert_eq!(gateway.metric("portcullis_responses_broken_total"), 0.0);
    let metrics = gateway.admin("/metrics");
    let counted = metrics.lines().find(|line| {
        let is_refusal = line.contains(r#"status="400""#) && line.contains(r#"method="OTHER""#);
        line.starts_with("nginx_ingress_controller_requests{") && is_refusal
    });
    let counted = counted.unwrap_or_else(|| panic!("{metrics}"));
    assert!(counted.contains(r#"host="_unknown""#) && counted.ends_with(" 3"), "{counted}");
}

#[test]
fn bodies_larger_than_allowed() {
    let backend = Backend::echo();
    let gateway = Gateway::in_front_of(backend.address(), &[("proxy-body-size", "10k")], &[]);
    let body = "x".repeat(10 * 1024);
    let mut client = gateway.client();
    let post = |body: &str| {
        format!("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    };
    assert_eq!(client.ask(post(&body)).status, 200);
    // Announced: refused before a byte of it is read, and told to a client that sends it nonetheless.
    let large = "x".repeat(3_000_000);
    let response = client.ask(post(&large));
    assert_eq!((response.status, response.field("connection")), (413, Some("close")));
    // Not announced: cut off where it becomes too large.
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send(format!("{:x}\r\n{body}\r\n", body.len()));
    client.send("1\r\nx\r\n0\r\n\r\n");
    assert_eq!(client.response().status, 413);
    assert_eq!(backend.lines(), ["POST /"], "only the one that fits was whole");
}

#[test]
fn bodies_are_counted_however_they_come() {
    let backend = Backend::echo();
    for limit in ["10k", "0"] {
        let gateway = Gateway::in_front_of(backend.address(), &[("proxy-body-size", limit)], &[]);
        let mut client = gateway.client();
        let head = "POST / HTTP/1.1\r\nHost: a.example\r\n";
        assert_eq!(client.ask(format!("{head}Content-Length: 3\r\n\r\nabc")).status, 200);
        let chunks = "4\r\ndefg\r\n3\r\nhij\r\n0\r\n\r\n";
        assert_eq!(client.ask(format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunks}")).status, 200);
        let counted = || gateway.metric("nginx_ingress_controller_request_size_sum");
        eventually("the bytes of both", || counted() == 10.0);
    }
}

#[test]
fn a_connection_goes_on_after_an_answer_of_the_gateway() {
    let backend = Backend::echo();
    let gateway = Gateway::before(&backend);
    let mut client = gateway.client();
    assert_eq!(client.get("nobody.example", "/").status, 404);
    assert_eq!(client.get("a.example", "/").status, 200);
    let body = "x".repeat(2000);
    let post = format!("POST / HTTP/1.1\r\nHost: nobody.example\r\nContent-Length: 2000\r\n\r\n{body}");
    assert_eq!(client.ask(post).status, 404);
    assert_eq!(client.get("a.example", "/").status, 200);
}
