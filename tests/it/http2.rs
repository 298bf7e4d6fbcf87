//! HTTP/2 with clients, through the real binary: what passes, what is refused, and floods that end.

use std::io::Write as _;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request};
use portcullis::testing::backend::{After, Backend};
use portcullis::testing::frames::Outcome;
use portcullis::testing::frames::{self, ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, Frame, HEADERS};
use portcullis::testing::frames::{PING, PRIORITY, RST_STREAM, SETTINGS, WINDOW_UPDATE};
use portcullis::testing::http2::{Http2, get, post, receive};
use portcullis::testing::{eventually, eventually_async};

use crate::gateway::Gateway;

#[tokio::test]
async fn requests_and_responses_with_bodies_and_trailers() {
    let backend = Backend::on_request(|request, wire| {
        let body = String::from_utf8_lossy(&request.body).into_owned();
        let answer = format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n\r\n\
             {:x}\r\n{body}\r\n0\r\nX-Sum: 2\r\n\r\n",
            body.len()
        );
        let _ = wire.send(answer);
        After::KeepAlive
    });
    let gateway = Gateway::before(&backend);
    let mut client = gateway.http2("a.example").await;
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", HeaderValue::from_static("1"));
    trailers.insert("content-length", HeaderValue::from_static("7"));
    trailers.insert("x-real-ip", HeaderValue::from_static("10.0.0.1"));
    let response = client.ask(post("a.example", "/a?b=c"), "hello", Some(trailers)).await.unwrap();
    assert_eq!((response.status, response.text().as_str()), (200, "hello"));
    assert_eq!(response.trailers.get("x-sum"), Some("2"));
    for name in ["connection", "x-hop", "keep-alive", "transfer-encoding"] {
        assert_eq!(response.field(name), None, "{name}");
    }
    let seen = backend.only_request();
    assert_eq!((seen.method.as_str(), seen.target.as_str(), &*seen.body), ("POST", "/a?b=c", &b"hello"[..]));
    assert_eq!(seen.field("host"), Some("a.example"));
    assert_eq!(seen.trailers.get("x-sum"), Some("1"));
    assert_eq!(seen.trailers.0.len(), 1, "{:?}", seen.trailers);
    assert_eq!(seen.field("x-forwarded-proto"), Some("https"));
}

#[tokio::test]
async fn many_streams_on_one_connection() {
    let backend = Backend::echo();
    let gateway = Gateway::before(&backend);
    let mut client = gateway.http2("a.example").await;
    let mut answers = Vec::new();
    for n in 0..100 {
        answers.push(client.begin(get("a.example", &format!("/{n}")), true).await.unwrap().0);
    }
    for (n, answer) in answers.into_iter().enumerate() {
        assert_eq!(receive(answer).await.unwrap().text(), format!("GET /{n}"));
    }
}

#[tokio::test]
async fn large_bodies_both_ways() {
    let backend = Backend::echo();
    let gateway = Gateway::in_front_of(backend.address(), &[("proxy-body-size", "0")], &[]);
    let mut client = gateway.http2("a.example").await;
    let body = Bytes::from(vec![b'x'; 8 * 1024 * 1024]);
    let response = client.ask(post("a.example", "/"), body.clone(), None).await.unwrap();
    assert_eq!(response.body.len(), body.len());
}

#[tokio::test]
async fn cookie_crumbs_are_one_cookie() {
    let backend = Backend::echo();
    let gateway = Gateway::before(&backend);
    let mut client = gateway.http2("a.example").await;
    let request = Request::get("https://a.example/").header("cookie", "a=1").header("cookie", "b=2");
    client.ask(request.body(()).unwrap(), "", None).await.unwrap();
    let seen = backend.only_request();
    assert_eq!(seen.fields.all("cookie").collect::<Vec<_>>(), ["a=1; b=2"]);
}

#[test]
fn requests_that_are_malformed() {
    let backend = Backend::echo();
    let gateway = Gateway::before(&backend);
    let plain = frames::get("a.example", "/");
    let with = |name: &'static str, value: &'static str| [&plain[..], &[(name, value)]].concat();
    let replaced = |name: &str, value: &'static str| -> Vec<(&'static str, &'static str)> {
        plain
            .iter()
            .map(|(known, old)| if *known == name { (*known, value) } else { (*known, *old) })
            .collect()
    };
    let without = |name: &str| plain.iter().filter(|(known, _)| *known != name).copied().collect::<Vec<_>>();
    let mut late = without(":path");
    late.extend([("accept", "*/*"), (":path", "/")]);
    for fields in [
        with("transfer-encoding", "chunked"),
        with("connection", "close"),
        with("connection", "x-forwarded-for"),
        with("keep-alive", "timeout=5"),
        with("proxy-connection", "close"),
        with("upgrade", "websocket"),
        with("te", "gzip"),
        with("x", "a\r\nb: c"),
        with("x", "a\nb"),
        with("x", "a\0b"),
        with("x:y", "z"),
        with("x y", "z"),
        with("X-Upper", "z"),
        with("", "z"),
        with(":path", "/other"),
        with(":unknown", "x"),
        with(":protocol", "websocket"),
        with("host", "b.example"),
        with("content-length", "5"),
        replaced(":path", ""),
        replaced(":path", "/x HTTP/1.1\r\nFoo: y"),
        replaced(":path", "x"),
        replaced(":path", "*"),
        replaced(":method", "GET / HTTP/1.1"),
        replaced(":method", ""),
        replaced(":authority", "a.example\r\nx: y"),
        replaced(":authority", "a.example/x"),
        replaced(":authority", "user@a.example"),
        replaced(":authority", ""),
        replaced(":scheme", "\r\n"),
        without(":path"),
        without(":method"),
        without(":scheme"),
        without(":authority"),
        late,
    ] {
        let mut client = gateway.frames();
        client.headers(1, &fields, END_STREAM);
        let outcome = client.outcome(1);
        let refused = matches!(
            outcome,
            Outcome::Status(400)
                | Outcome::Reset(frames::PROTOCOL_ERROR)
                | Outcome::GoAway(_)
                | Outcome::Closed
        );
        assert!(refused, "{fields:?}: {outcome:?}");
    }
    assert!(backend.requests().is_empty(), "{:?}", backend.lines());
}

#[test]
fn a_body_that_is_not_as_long_as_it_says() {
    let backend = Backend::echo();
    let gateway = Gateway::before(&backend);
    for (length, data) in [("5", "hel"), ("5", "hello w"), ("0", "x"), ("5, 5", "hello"), ("+5", "hello")] {
        let mut client = gateway.frames();
        let mut fields = frames::get("a.example", "/").to_vec();
        fields[0] = (":method", "POST");
        fields.push(("content-length", length));
        client.headers(1, &fields, 0);
        client.send(DATA, END_STREAM, 1, data);
        let outcome = client.outcome(1);
        assert!(
            matches!(outcome, Outcome::Status(400) | Outcome::Reset(_) | Outcome::GoAway(_)),
            "{length} {data}: {outcome:?}"
        );
    }
    assert!(backend.lines().is_empty(), "{:?}", backend.requests());
}

#[test]
fn connect_and_trace() {
    let backend = Backend::echo();
    let gateway = Gateway::before(&backend);
    let mut client = gateway.frames();
    client.headers(1, &[(":method", "CONNECT"), (":authority", "a.example:443")], 0);
    assert_eq!(client.outcome(1), Outcome::Status(405));
    let mut fields = frames::get("a.example", "/");
    fields[0] = (":method", "TRACE");
    client.headers(3, &fields, END_STREAM);
    assert_eq!(client.outcome(3), Outcome::Status(405));
    assert!(backend.requests().is_empty());
}

#[test]
fn too_many_or_too_large_fields() {
    let backend = Backend::echo();
    let gateway = Gateway::before(&backend);
    let mut client = gateway.frames();
    let many: Vec<_> = (0..101).map(|n| (format!("x-{n}"), "y")).collect();
    let mut fields = frames::get("a.example", "/").to_vec();
    fields.extend(many.iter().map(|(name, value)| (name.as_str(), *value)));
    client.headers(1, &fields, END_STREAM);
    assert_eq!(client.outcome(1), Outcome::Status(431));
    // Crumbs of a cookie count each.
    let mut fields = frames::get("a.example", "/").to_vec();
    fields.extend(std::iter::repeat_n(("cookie", "a=b"), 101));
    client.headers(3, &fields, END_STREAM);
    assert_eq!(client.outcome(3), Outcome::Status(431));
    // Up to the limit of bytes, however they are spread over frames.
    for (stream, size, status) in [(5, 32, 200), (7, 60, 200), (9, 70, 431)] {
        let value = "x".repeat(size * 1024);
        let mut fields = frames::get("a.example", "/").to_vec();
        fields.push(("cookie", &value));
        let block = frames::block(&fields);
        let (first, rest) = block.split_at(16_000);
        client.send(HEADERS, END_STREAM, stream, first);
        let mut pieces = rest.chunks(16_000).peekable();
        while let Some(piece) = pieces.next() {
            client.send(CONTINUATION, if pieces.peek().is_none() { END_HEADERS } else { 0 }, stream, piece);
        }
        assert_eq!(client.outcome(stream), Outcome::Status(status), "{size} KiB");
    }
}

#[test]
fn rapid_reset() {
    let backend = Backend::echo();
    let gateway = Gateway::before(&backend);
    let mut client = gateway.frames();
    for n in 0..50_000u32 {
        let stream = 2 * n + 1;
        client.get(stream, "a.example", "/");
        if !client.send(RST_STREAM, 0, stream, frames::CANCEL.to_be_bytes()) {
            break;
        }
    }
    assert!(matches!(client.goaway(), Some(frames::ENHANCE_YOUR_CALM) | None));
    assert!(backend.requests().len() < 2_000, "{} requests got through", backend.requests().len());
    assert_eq!(gateway.tls_client("a.example").get("a.example", "/").status, 200);
}

/// Each stream is looked at and its request is with the backend before it is reset: what waits to be looked at is not
/// what bounds this.
#[test]
fn rapid_reset_at_leisure() {
    let backend = Backend::on_request(|_, wire| {
        let _ = wire.fill();
        After::Close
    });
    let gateway = Gateway::before(&backend);
    let mut client = gateway.frames();
    for round in 0..3u32 {
        let streams = || (0..50u32).map(|n| 2 * (50 * round + n) + 1);
        for stream in streams() {
            assert!(client.get(stream, "a.example", "/"));
        }
        eventually("the requests", || backend.requests().len() == 50 * (round as usize + 1));
        for stream in streams() {
            client.send(RST_STREAM, 0, stream, frames::CANCEL.to_be_bytes());
        }
        eventually("the requests being given up", || backend.open_connections() == 0);
    }
    assert_eq!(client.goaway(), Some(frames::ENHANCE_YOUR_CALM));
    // Who takes what it asked for may go on.
    let backend = Backend::echo();
    let gateway = Gateway::before(&backend);
    let mut client = gateway.frames();
    for stream in (0..300u32).map(|n| 2 * n + 1) {
        client.get(stream, "a.example", "/");
        assert_eq!(client.outcome(stream), Outcome::Status(200));
        client.find(|frame| frame.stream == stream && frame.flags & END_STREAM != 0).unwrap();
        client.send(RST_STREAM, 0, stream, frames::CANCEL.to_be_bytes());
    }
}

#[test]
fn an_answer_is_seen_by_a_client_that_is_still_sending() {
    let backend = Backend::echo();
    let gateway = Gateway::before(&backend);
    let mut client = gateway.frames();
    let mut fields = frames::get("a.example", "/").to_vec();
    fields[0] = (":method", "POST");
    fields.push(("content-length", "2000000"));
    client.headers(1, &fields, 0);
    client.send(DATA, 0, 1, [b'x'; 16_000]);
    assert_eq!(client.outcome(1), Outcome::Status(413));
    let is_end = |frame: &Frame| frame.stream == 1 && frame.flags & END_STREAM != 0;
    client.find(is_end).unwrap();
    // There is time to take it, and then an end.
    client.send(DATA, 0, 1, [b'x'; 16_000]);
    client.send(PING, 0, 0, [7; 8]);
    let next = client.find(|frame| matches!(frame.kind, PING | RST_STREAM)).unwrap();
    assert_eq!(next.kind, PING);
    assert_eq!(client.outcome(1), Outcome::Reset(frames::NO_ERROR));
    client.get(3, "a.example", "/");
    assert_eq!(client.outcome(3), Outcome::Status(200));
}

#[test]
fn a_client_that_asks_before_it_sends_its_body() {
    let backend = Backend::echo();
    let gateway = Gateway::before(&backend);
    let mut client = gateway.frames();
    let mut fields = frames::get("a.example", "/").to_vec();
    fields[0] = (":method", "POST");
    fields.extend([("content-length", "5"), ("expect", "100-continue")]);
    client.headers(1, &fields, 0);
    assert_eq!(client.outcome(1), Outcome::Status(100));
    client.send(DATA, END_STREAM, 1, "hello");
    assert_eq!(client.outcome(1), Outcome::Status(200));
    assert_eq!(backend.only_request().body, b"hello");
    // A refusal comes instead.
    fields[2] = (":authority", "nobody.example");
    client.headers(3, &fields, 0);
    assert_eq!(client.outcome(3), Outcome::Status(421));
    fields[2] = (":authority", "a.example");
    fields[5] = ("expect", "200-ok");
    client.headers(5, &fields, 0);
    assert_eq!(client.outcome(5), Outcome::Status(417));
    assert_eq!(backend.requests().len(), 1);
}

/// Resets that the client makes us send count as if it had sent them itself.
#[test]
fn made_you_reset() {
    let backend = Backend::on_request(|_, wire| {
        let _ = wire.fill();
        After::Close
    });
    let gateway = Gateway::before(&backend);
    let mischief: [(&str, u8, Vec<u8>); 3] = [
        ("a window update of nothing", WINDOW_UPDATE, vec![0; 4]),
        ("a window that overflows", WINDOW_UPDATE, 0x7fff_ffffu32.to_be_bytes().to_vec()),
        ("data after the end", DATA, b"x".to_vec()),
    ];
    for (what, kind, payload) in mischief {
        let mut client = gateway.frames();
        let mut sent = 0;
        for n in 0..5_000u32 {
            let stream = 2 * n + 1;
            sent += u32::from(client.get(stream, "a.example", "/"));
            if !client.send(kind, 0, stream, &payload) {
                break;
            }
        }
        let end = client.goaway();
        assert!(sent < 5_000 || end.is_some(), "{what}: {sent} went through, {end:?}");
        eventually("the backend being let go", || backend.open_connections() == 0);
    }
}

#[test]
fn headers_that_never_end() {
    let backend = Backend::echo();
    let gateway = Gateway::before(&backend);
    let before = gateway.resident();
    for piece in [[0, 1, b'x', 1, b'y'].repeat(3000), Vec::new()] {
        let mut client = gateway.frames();
        client.send(HEADERS, END_STREAM, 1, frames::block(&frames::get("a.example", "/")));
        let mut closed = false;
        for _ in 0..50_000 {
            if !client.send(CONTINUATION, 0, 1, &piece) {
                closed = true;
                break;
            }
        }
        assert!(closed || client.goaway().is_some(), "{} bytes a frame", piece.len());
    }
    let grown = gateway.resident().saturating_sub(before);
    assert!(grown < 16 * 1024, "{grown} KiB more than before");
}

#[test]
fn header_compression_bombs() {
    let backend = Backend::echo();
    let gateway = Gateway::before(&backend);
    let before = gateway.resident();
    // One entry of the dynamic table, then one byte for each mention of it.
    let mut seed = frames::block(&frames::get("a.example", "/"));
    seed.push(0x40);
    frames::string(&mut seed, "x");
    frames::string(&mut seed, &"y".repeat(3900));
    let mentions = vec![0x80 | 62; 16_000];
    let mut client = gateway.frames();
    client.send(HEADERS, END_STREAM | END_HEADERS, 1, &seed);
    assert_eq!(client.outcome(1), Outcome::Status(200));
    for n in 1..100u32 {
        let block = [frames::block(&frames::get("a.example", "/")), mentions.clone()].concat();
        if !client.send(HEADERS, END_STREAM | END_HEADERS, 2 * n + 1, block) {
            break;
        }
    }
    // Refused one by one or all together, never expanded.
    let outcome = client.outcome(3);
    assert!(matches!(outcome, Outcome::Status(431) | Outcome::GoAway(_) | Outcome::Closed), "{outcome:?}");
    let grown = gateway.resident().saturating_sub(before);
    assert!(grown < 32 * 1024, "{grown} KiB more than before");
    // Blocks that are broken.
    for block in [
        vec![0x80],                                                 // index 0
        vec![0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], // an index that overflows
        vec![0x3f, 0xff, 0xff, 0xff, 0x7f],                         // a table size beyond ours
        vec![0x00, 0x81, 0xff, 0x81, 0xff],                         // not Huffman
        vec![0xfe],                                                 // no such entry
    ] {
        let mut client = gateway.frames();
        client.send(HEADERS, END_STREAM | END_HEADERS, 1, &block);
        assert!(
            matches!(client.goaway(), Some(frames::COMPRESSION_ERROR | frames::PROTOCOL_ERROR) | None),
            "{block:?}"
        );
    }
    assert_eq!(backend.requests().len(), 1);
}

/// Floods of frames that ask for an answer or carry nothing. The client reads nothing of what it is answered.
#[test]
fn floods() {
    let backend = Backend::echo();
    let gateway = Gateway::before(&backend);
    let before = gateway.resident();
    let mut open = frames::get("a.example", "/").to_vec();
    open[0] = (":method", "POST");
    for (what, flood) in [
        ("PING", frames::frame(PING, 0, 0, &[0; 8])),
        ("SETTINGS", frames::frame(SETTINGS, 0, 0, &[])),
        ("empty DATA", frames::frame(DATA, 0, 1, &[])),
    ] {
        let mut client = gateway.frames();
        client.headers(1, &open, 0);
        // What the gateway answers is read, so that nothing but the gateway itself can stop the flood.
        let mut answers = client.wire.tcp().try_clone().unwrap();
        let answers = std::thread::spawn(move || std::io::copy(&mut answers, &mut std::io::sink()));
        let flood = flood.repeat(1000);
        let _ = (0..50).any(|_| client.wire.send(&flood).is_err());
        let end = answers.join().unwrap();
        let endless = end.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        assert!(!endless, "{what}: 50,000 frames were taken");
        let grown = gateway.resident().saturating_sub(before);
        assert!(grown < 24 * 1024, "{what}: {grown} KiB more than before");
    }
    // Priorities are ignored, and harmless.
    let mut client = gateway.frames();
    for _ in 0..500 {
        client.send(PRIORITY, 0, 1, [0, 0, 0, 0, 1]);
    }
    client.get(1, "a.example", "/");
    assert_eq!(client.outcome(1), Outcome::Status(200));
}

#[tokio::test]
async fn an_upload_goes_on_while_its_client_takes_nothing_of_the_response() {
    // The response is larger than all socket buffers on the way, the upload than the window of a stream.
    const RESPONSE: usize = 32 * 1024 * 1024;
    const UPLOAD: usize = 4 * 1024 * 1024;
    let (done, mut taken) = tokio::sync::mpsc::unbounded_channel();
    let backend = Backend::on_head(move |request, wire| {
        let mut out = wire.tcp().try_clone().unwrap();
        let response = std::thread::spawn(move || {
            let _ = write!(out, "HTTP/1.1 200 OK\r\nContent-Length: {RESPONSE}\r\n\r\n");
            let _ = out.write_all(&vec![b'x'; RESPONSE]);
        });
        request.read_body(wire);
        let _ = done.send(request.body.len());
        response.join().unwrap();
        After::Close
    });
    let gateway = Gateway::in_front_of(backend.address(), &[("proxy-body-size", "0")], &[]);
    let mut client = gateway.http2("a.example").await;
    let (response, mut upload) = client.begin(post("a.example", "/"), false).await.unwrap();
    upload.send_data(Bytes::from(vec![b'y'; UPLOAD]), true).unwrap();
    let response = response.await.unwrap();
    let length = tokio::time::timeout(std::time::Duration::from_secs(30), taken.recv()).await;
    assert_eq!(length.expect("the whole upload while nothing of the response is read"), Some(UPLOAD));
    assert_eq!(response.status(), 200);
}

#[test]
fn a_client_that_opens_no_window() {
    let backend = Backend::on_request(|_, wire| {
        let _ = wire.send("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n");
        while wire.send(vec![b'x'; 100_000]).is_ok() {}
        After::Close
    });
    let gateway = Gateway::with(&backend, &["client-body-timeout: 500ms"]);
    let before = gateway.resident();
    let mut client = frames::Frames::connect(gateway.https, "a.example", &[(4, 0)]);
    for n in 0..20u32 {
        client.get(2 * n + 1, "a.example", "/");
    }
    eventually("the requests", || backend.requests().len() == 20);
    eventually("the streams being given up", || backend.open_connections() == 0);
    let grown = gateway.resident().saturating_sub(before);
    assert!(grown < 32 * 1024, "{grown} KiB more than before");
    // One byte at a time is not taking it either.
    client.get(41, "a.example", "/");
    eventually("the request", || backend.open_connections() == 1);
    let mut drips = 0;
    while backend.open_connections() > 0 && drips < 600 {
        client.send(WINDOW_UPDATE, 0, 41, 1u32.to_be_bytes());
        std::thread::sleep(std::time::Duration::from_millis(25));
        drips += 1;
    }
    assert!(drips < 600, "still held after {drips} bytes");
    // However small the response is.
    let backend = Backend::echo();
    let gateway = Gateway::with(&backend, &["client-body-timeout: 500ms"]);
    let mut client = frames::Frames::connect(gateway.https, "a.example", &[(4, 0)]);
    client.get(1, "a.example", "/");
    assert_eq!(client.outcome(1), Outcome::Status(200));
    assert_eq!(client.outcome(1), Outcome::Reset(frames::CANCEL));
}

#[test]
fn a_body_that_stops() {
    let backend = Backend::echo();
    let gateway = Gateway::with(&backend, &["client-body-timeout: 500ms"]);
    let mut client = gateway.frames();
    let mut fields = frames::get("a.example", "/").to_vec();
    fields[0] = (":method", "POST");
    client.headers(1, &fields, 0);
    client.send(DATA, 0, 1, "hello");
    assert_eq!(client.outcome(1), Outcome::Status(408));
    eventually("the backend being let go", || backend.open_connections() == 0);
    // One that is said to be empty, and does not end either.
    let fields = [fields.as_slice(), &[("content-length", "0")]].concat();
    client.headers(3, &fields, 0);
    assert_eq!(client.outcome(3), Outcome::Status(408));
    let is_one = |line: &&str| line.contains("\" 408 ") && line.contains("reason=client_body");
    eventually("a line in the log for both", || gateway.log().lines().filter(is_one).count() == 2);
}

#[test]
fn more_streams_than_allowed() {
    let backend = Backend::on_request(|_, wire| {
        let _ = wire.fill();
        After::Close
    });
    let gateway = Gateway::with(&backend, &["http2-max-concurrent-streams: 10"]);
    let mut client = gateway.frames();
    for n in 0..15u32 {
        client.get(2 * n + 1, "a.example", "/");
    }
    assert_eq!(client.outcome(21), Outcome::Reset(frames::REFUSED_STREAM));
    eventually("ten requests", || backend.requests().len() == 10);
    // Numbers that a client may not use.
    for streams in [[2, 4], [5, 3]] {
        let mut client = gateway.frames();
        for stream in streams {
            client.headers(stream, &frames::get("nobody.example", "/"), END_STREAM);
        }
        assert!(matches!(client.goaway(), Some(_) | None), "{streams:?}");
    }
}

#[test]
fn acknowledgements_that_nobody_asked_for() {
    let backend = Backend::echo();
    let gateway = Gateway::before(&backend);
    let mut client = gateway.frames();
    client.send(PING, ACK, 0, [7; 8]);
    client.get(1, "a.example", "/");
    assert_eq!(client.outcome(1), Outcome::Status(200));
}

#[tokio::test]
async fn a_client_that_cancels_takes_its_request_with_it() {
    let backend = Backend::on_request(|_, wire| {
        let _ = wire.fill();
        After::Close
    });
    let gateway = Gateway::before(&backend);
    let mut client: Http2 = gateway.http2("a.example").await;
    let (response, mut stream) = client.begin(post("a.example", "/"), false).await.unwrap();
    stream.send_data(Bytes::new(), true).unwrap();
    eventually_async("the request", || backend.open_connections() == 1).await;
    stream.send_reset(h2::Reason::CANCEL);
    drop(response);
    eventually_async("the end of the request", || backend.open_connections() == 0).await;
}
