//! What backends may answer: what two parsers could read in two ways is a 502, and the connection it came over is
//! not used again (response queue poisoning).

use portcullis::testing::backend::{After, Backend};

use crate::gateway::Gateway;

/// The gateway before a backend that answers `answer`, then, on the same connection if it can, `/next`.
fn poisoned(answer: &str, method: &str) -> (u16, Vec<u8>, bool, usize) {
    let answer = answer.to_owned();
    let backend = Backend::on_request(move |request, wire| {
        let normal = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext";
        let _ = wire.send(if request.target == "/next" { normal } else { &answer });
        After::KeepAlive
    });
    let gateway = Gateway::before(&backend);
    let mut client = gateway.client();
    let first = client.ask(format!("{method} /first HTTP/1.1\r\nHost: a.example\r\n\r\n"));
    let mut client = gateway.client();
    let next = client.get("a.example", "/next");
    assert_eq!(
        (next.status, next.text().as_str()),
        (200, "next"),
        "{answer_shown}",
        answer_shown = first.text()
    );
    (first.status, first.body, first.complete, backend.connections())
}

#[test]
fn ambiguous_or_broken_heads_are_a_502() {
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(10_000));
    let huge = format!("HTTP/1.1 200 OK\r\nX: {}\r\nContent-Length: 0\r\n\r\n", "y".repeat(400_000));
    let storm = format!(
        "{}HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 102 Processing\r\n\r\n".repeat(1000)
    );
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\r\n folded\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX : y\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 0\r\n\r\n",
        "HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
        "<html>hello</html>\r\n\r\n",
        &many,
        &huge,
        &storm,
    ] {
        let (status, ..) = poisoned(answer, "GET");
        assert_eq!(status, 502, "{:?}", &answer[..answer.len().min(100)]);
    }
}

#[test]
fn what_follows_a_response_is_not_the_next_one() {
    let extra = "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\npoisoned";
    for (answer, method, body) in [
        (format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok{extra}"), "GET", "ok"),
        (format!("HTTP/1.1 204 No Content\r\n\r\n{extra}"), "GET", ""),
        (format!("HTTP/1.1 204 No Content\r\nContent-Length: 8\r\n\r\npoisoned{extra}"), "GET", ""),
        (format!("HTTP/1.1 304 Not Modified\r\n\r\n{extra}"), "GET", ""),
        (format!("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\npoisoned{extra}"), "HEAD", ""),
        (
            format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n{extra}"),
            "GET",
            "ok",
        ),
    ] {
        let (_, got, complete, connections) = poisoned(&answer, method);
        assert_eq!((&*got, complete), (body.as_bytes(), true), "{answer:?}");
        assert_eq!(connections, 2, "the connection is not used again: {answer:?}");
    }
}

#[test]
fn bodies_that_break_off_are_cut_off_for_the_client_too() {
    for answer in [
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nxyz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n",
    ] {
        let (status, body, complete, _) = poisoned(answer, "GET");
        assert!(status == 502 || status == 200 && !complete, "{answer:?}: {status} {body:?}");
    }
    let backend = Backend::answering("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", After::Close);
    let response = Gateway::before(&backend).client().get("a.example", "/");
    assert_eq!((response.status, response.complete), (200, false));
    let backend = Backend::answering("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n", After::Close);
    assert_eq!(Gateway::before(&backend).client().get("a.example", "/").status, 502);
}

#[test]
fn large_heads_pass() {
    let cookies: String = (0..40).map(|n| format!("Set-Cookie: c{n}={}\r\n", "x".repeat(4000))).collect();
    let answer = format!("HTTP/1.1 200 OK\r\n{cookies}Content-Length: 2\r\n\r\nok");
    let backend = Backend::answering(answer, After::KeepAlive);
    let response = Gateway::before(&backend).client().get("a.example", "/");
    assert_eq!((response.status, response.fields.all("set-cookie").count()), (200, 40));
}

#[test]
fn a_body_until_close_becomes_chunks() {
    let backend = Backend::answering("HTTP/1.1 200 OK\r\n\r\nuntil the end", After::Close);
    let gateway = Gateway::before(&backend);
    let mut client = gateway.client();
    for _ in 0..2 {
        let response = client.get("a.example", "/");
        assert_eq!(
            (response.text().as_str(), response.field("transfer-encoding")),
            ("until the end", Some("chunked"))
        );
    }
}
