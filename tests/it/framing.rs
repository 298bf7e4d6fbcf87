//! Request smuggling (RFC 9112, sections 6.3 and 11.2): whatever a client sends, the backend parses exactly the
//! requests that the gateway answered from it, and nothing of a body ever becomes a request line. The backend here
//! is as careless a parser as they come.

use portcullis::testing::backend::Backend;
use portcullis::testing::client::Client;
use portcullis::testing::message::Response;

use crate::gateway::Gateway;

/// A gateway before an echo, for many short attacks.
struct Target {
    gateway: Gateway,
    backend: Backend,
}

impl Target {
    fn new() -> Self {
        let backend = Backend::echo();
        Self { gateway: Gateway::with(&backend, &["client-header-timeout: 2s"]), backend }
    }

    /// Sends `bytes` on a connection of their own and collects answers until it ends: what should succeed asks for
    /// that. Every answer that came from the backend must have its request there, and the other way round; a request
    /// whose body broke off is none.
    fn attack(&self, bytes: impl AsRef<[u8]>) -> Vec<u16> {
        let before = self.backend.lines().len();
        let mut client = self.gateway.client();
        client.send(&bytes);
        let statuses: Vec<u16> = client.responses().iter().map(|response| response.status).collect();
        let parsed = self.backend.lines().split_off(before);
        let shown = String::from_utf8_lossy(&bytes.as_ref()[..bytes.as_ref().len().min(400)]).into_owned();
        let answered = statuses.iter().filter(|status| **status == 200).count();
        assert_eq!(parsed.len(), answered, "{shown:?}: answers {statuses:?}, parsed {parsed:?}");
        for line in &parsed {
            assert!(!line.contains("smuggled"), "{shown:?}: {parsed:?}");
        }
        statuses
    }

    /// The attack is refused with `status`, nothing reaches the backend, and the connection ends.
    fn refused(&self, status: u16, bytes: impl AsRef<[u8]>) {
        let shown = String::from_utf8_lossy(&bytes.as_ref()[..bytes.as_ref().len().min(400)]).into_owned();
        assert_eq!(self.attack(bytes), [status], "{shown:?}");
    }
}

const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
const NEXT: &str = "GET /next HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";

fn with_field(field: &str, body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a.example\r\n{field}\r\n\r\n{body}{SMUGGLED}")
}

#[test]
fn content_length_next_to_transfer_encoding() {
    let target = Target::new();
    target.refused(400, with_field("Content-Length: 6\r\nTransfer-Encoding: chunked", "0\r\n\r\nG"));
    target.refused(
        400,
        with_field("Content-Length: 4\r\nTransfer-Encoding: chunked", "5c\r\nGPOST / HTTP/1.1\r\n"),
    );
    target.refused(400, with_field("Transfer-Encoding: chunked\r\nContent-Length: 0", "0\r\n\r\n"));
}

#[test]
fn transfer_encodings_that_parsers_disagree_on() {
    let target = Target::new();
    for field in [
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked;q=1",
        "Transfer-Encoding: \"chunked\"",
        "Transfer-Encoding: \u{b}chunked",
        "Transfer-Encoding: chunked\u{0}",
        "Transfer-Encoding: \u{c}chunked",
        "Transfer-Encoding:",
        "X: y\rTransfer-Encoding: chunked",
        "X: y\nTransfer-Encoding: chunked",
        " Transfer-Encoding: chunked",
        "Transfer\u{0}-Encoding: chunked",
        "X: y\r\n\tTransfer-Encoding: chunked",
        "Transfer-Encoding:\r\n chunked",
        "Foo\r\nTransfer-Encoding: chunked",
        "Content-Length : 5",
    ] {
        target.refused(400, with_field(field, "0\r\n\r\n"));
    }
    // Whitespace around a value is no part of it.
    let padded =
        "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding:\tChunked \r\n\r\n1\r\nx\r\n0\r\n\r\n";
    assert_eq!(target.attack(format!("{padded}{NEXT}")), [200, 200]);
}

#[test]
fn lengths_that_parsers_disagree_on() {
    let target = Target::new();
    for value in [
        "+5",
        "-0",
        "0x5",
        "05",
        "5 5",
        "5, 5",
        "5, 6",
        "5,",
        "1e1",
        "18446744073709551616",
        "99999999999999999999",
        "",
        "five",
        "5\u{b}",
    ] {
        target.refused(400, with_field(&format!("Content-Length: {value}"), "hello"));
    }
    target.refused(400, with_field("Content-Length: 5\r\nContent-Length: 10", "hello"));
    target.refused(400, with_field("Content-Length: 5\r\nContent-Length: 5", "hello"));
}

#[test]
fn bodies_where_none_is_expected_stay_bodies() {
    let target = Target::new();
    for method in ["GET", "OPTIONS", "DELETE"] {
        let length = SMUGGLED.len();
        let head = format!("{method} /first HTTP/1.1\r\nHost: a.example\r\nContent-Length: {length}\r\n\r\n");
        let statuses = target.attack(format!("{head}{SMUGGLED}{NEXT}"));
        assert_eq!(statuses, [200, 200], "{method}");
    }
    let zero = "POST /first HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(target.attack(format!("{zero}{NEXT}")), [200, 200]);
}

/// Answers that come without the body having been read: the rest of it is never a request.
#[test]
fn early_answers_leave_no_body_behind() {
    let target = Target::new();
    let length = SMUGGLED.len();
    for (host, path, status) in [("nobody.example", "/", 404), ("a.example", "/%zz", 400), ("a@b", "/", 400)]
    {
        for framing in [format!("Content-Length: {length}"), "Transfer-Encoding: chunked".to_owned()] {
            let body = match framing.starts_with('C') {
                true => SMUGGLED.to_owned(),
                false => format!("{length:x}\r\n{SMUGGLED}\r\n0\r\n\r\n"),
            };
            let request = format!("POST {path} HTTP/1.1\r\nHost: {host}\r\n{framing}\r\n\r\n{body}{NEXT}");
            let statuses = target.attack(request);
            // Drained and answered, or closed.
            assert!(statuses == [status, 200] || statuses == [status], "{host}{path}: {statuses:?}");
        }
    }
}

#[test]
fn lines_that_do_not_end_in_crlf() {
    let target = Target::new();
    for request in [
        "GET / HTTP/1.1\nHost: a.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\n\n",
        "GET / HTTP/1.1\nHost: a.example\n\n",
        "GET / HTTP/1.1\rHost: a.example\r\r",
        "GET / HTTP/1.1\r\nHost: a.example\rX: y\r\n\r\n",
        "GET / HTTP/1.1\r\nX: a\r\r\nHost: a.example\r\n\r\n",
        "\nGET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
    ] {
        let statuses = target.attack(request);
        assert!(statuses == [400] || statuses.is_empty(), "{request:?}: {statuses:?}");
        assert!(target.backend.requests().is_empty(), "{request:?}");
    }
}

#[test]
fn chunks_that_parsers_disagree_on() {
    let target = Target::new();
    let long_extension = format!("3;{}\r\nabc\r\n0\r\n\r\n", "x".repeat(64 * 1024));
    for body in [
        "0x3\r\nabc\r\n0\r\n\r\n",
        "+3\r\nabc\r\n0\r\n\r\n",
        "3 \r\nabc\r\n0\r\n\r\n",
        "-3\r\nabc\r\n0\r\n\r\n",
        "1_0\r\nabc\r\n0\r\n\r\n",
        "3;a=\n\r\nabc\r\n0\r\n\r\n",
        "3\nabc\r\n0\r\n\r\n",
        "3\r\nabc\n0\r\n\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "ffffffffffffffff0\r\nabc\r\n0\r\n\r\n",
        "3\r\nabc\r\n0\r\nX: y\n\r\n",
        "3\r\nabc\r\n0\nGET / HTTP/1.1\r\n\r\n",
        &long_extension,
    ] {
        let statuses = target.attack(with_field("Transfer-Encoding: chunked", body));
        assert!(statuses == [400], "{:?}: {statuses:?}", &body[..body.len().min(60)]);
    }
    // Extensions are allowed and end at the gateway.
    let body = "3;name=value\r\nabc\r\n0;last\r\n\r\n";
    let head =
        "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
    assert_eq!(target.attack(format!("{head}{body}")), [200]);
    assert_eq!(target.backend.requests().last().unwrap().body, b"abc");
}

#[test]
fn http_1_0_has_no_chunks_and_no_body_until_close() {
    let target = Target::new();
    target.refused(400, "POST / HTTP/1.0\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    let statuses = target.attack(format!("POST /first HTTP/1.0\r\nHost: a.example\r\n\r\n{SMUGGLED}"));
    assert_eq!(statuses, [200]);
    assert_eq!(target.backend.requests().last().unwrap().body, b"");
}

#[test]
fn hosts_that_are_none_or_two() {
    let target = Target::new();
    for fields in [
        "X: y",
        "Host: a.example\r\nHost: a.example",
        "Host: a.example\r\nHost: b.example",
        "Host: a.example, b.example",
        "Host:",
        "Host: a@a.example",
        "Host: a.example/x",
        "Host: a.example:99999",
        "Host: a.example:80:80",
        "Host: http://a.example",
        "Host: a..example",
        "Host: a.example..",
        "Host: a.example x",
        "Host: a.\u{e9}xample",
    ] {
        target.refused(400, format!("GET / HTTP/1.1\r\n{fields}\r\nConnection: close\r\n\r\n"));
    }
    target.refused(400, "GET http://evil.example/ HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n");
    target
        .refused(400, "GET http://user@a.example/ HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n");
    assert_eq!(
        target
            .attack("GET http://a.example/x HTTP/1.1\r\nHost: A.example.:8080\r\nConnection: close\r\n\r\n"),
        [200]
    );
    assert_eq!(target.backend.requests().last().unwrap().target, "/x");
    assert_eq!(target.backend.requests().last().unwrap().field("host"), Some("a.example"));
}

#[test]
fn sizes_have_ends() {
    let target = Target::new();
    let before = target.gateway.resident();
    target.refused(414, format!("GET /{} HTTP/1.1\r\nHost: a.example\r\n\r\n", "x".repeat(40 * 1024)));
    for head in [
        format!("GET /{} HTTP/1.1\r\nHost: a.example\r\n\r\n", "x".repeat(1024 * 1024)),
        format!("{} / HTTP/1.1\r\nHost: a.example\r\n\r\n", "X".repeat(1024 * 1024)),
        format!("GET / HTTP/1.1\r\nHost: a.example\r\n{}: y\r\n\r\n", "x".repeat(65 * 1024)),
        format!("GET / HTTP/1.1\r\nHost: a.example\r\n{}\r\n", "x: y\r\n".repeat(100_000)),
        format!("GET / HTTP/1.1\r\nHost: a.example\r\n{}\r\n", "x: y\r\n".repeat(101)),
        format!("GET / HTTP/1.1\r\nHost: a.example\r\nCookie: {}\r\n\r\n", "x".repeat(70 * 1024)),
    ] {
        target.refused(431, head);
    }
    for size in [8, 16, 32, 60] {
        let cookie = "x".repeat(size * 1024);
        assert_eq!(
            target.attack(format!(
                "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\nCookie: {cookie}\r\n\r\n"
            )),
            [200]
        );
        assert_eq!(target.backend.requests().last().unwrap().field("cookie"), Some(&*cookie));
    }
    for head in [
        "GET /\u{0} HTTP/1.1\r\nHost: a.example\r\n\r\n".as_bytes(),
        b"GET /\xc0\xaf HTTP/1.1\r\nHost: a.example\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a.example\r\nX: \x01\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a.example\r\nX\xff: y\r\n\r\n",
        b"GET  / HTTP/1.1\r\nHost: a.example\r\n\r\n",
        b"GET / HTTP/1.1 x\r\nHost: a.example\r\n\r\n",
        b"GET / HTTP/0.9\r\nHost: a.example\r\n\r\n",
        b"GET /\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET * HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n",
    ] {
        let statuses = target.attack(head);
        assert!(matches!(statuses[..], [400 | 505]), "{:?}: {statuses:?}", String::from_utf8_lossy(head));
    }
    let grown = target.gateway.resident().saturating_sub(before);
    assert!(grown < 16 * 1024, "{grown} KiB more than before");
}

/// HTTP/2 is spoken under TLS alone; its preface is no request of HTTP/1.
#[test]
fn the_preface_of_http2_in_the_clear() {
    let target = Target::new();
    let statuses = target.attack("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
    assert!(matches!(statuses[..], [400 | 505]), "{statuses:?}");
}

#[test]
fn methods_that_are_not_for_a_gateway() {
    let target = Target::new();
    for request in [
        "TRACE / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n",
        "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\nConnection: close\r\n\r\n",
        "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n",
    ] {
        let statuses = target.attack(request);
        assert_eq!(statuses.first(), Some(&405), "{request:?}: {statuses:?}");
    }
}

/// Bytes behind the head of an upgrade belong to the other protocol: they wait for the 101.
#[test]
fn upgrades_do_not_carry_requests() {
    let target = Target::new();
    let request = |fields: &str, body: &str| {
        format!("GET /first HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n\r\n{body}")
    };
    // The backend answers 200: what follows is an ordinary request again.
    let fields = "Connection: upgrade\r\nUpgrade: x";
    assert_eq!(target.attack(request(fields, NEXT)), [200, 200]);
    assert_eq!(target.backend.requests()[0].field("upgrade"), Some("x"));
    // HTTP/2 in the clear is not passed on.
    let fields = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__";
    assert_eq!(target.attack(request(fields, NEXT)), [200, 200]);
    let seen = &target.backend.requests()[2];
    assert_eq!(
        (seen.field("upgrade"), seen.field("http2-settings"), seen.field("connection")),
        (None, None, None)
    );
    // With a body the upgrade waits for its end.
    let fields = format!("Connection: upgrade\r\nUpgrade: x\r\nContent-Length: {}", SMUGGLED.len());
    assert_eq!(target.attack(request(&fields, &format!("{SMUGGLED}{NEXT}"))), [200, 200]);
}

#[test]
fn expectations() {
    let target = Target::new();
    let post = |expect: &str, body: &str| {
        format!("POST / HTTP/1.1\r\nHost: a.example\r\nExpect: {expect}\r\nContent-Length: 5\r\n\r\n{body}")
    };
    target.refused(417, post("y 100-continue", "hello"));
    target.refused(417, post("200-ok", "hello"));
    // The client did not wait: both are answered, the interim response first or not at all.
    let statuses = target.attack(post("100-continue", "hello") + NEXT);
    assert!(statuses == [100, 200, 200] || statuses == [200, 200], "{statuses:?}");
    // Nothing to wait for.
    let empty = "POST / HTTP/1.1\r\nHost: a.example\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(target.attack(format!("{empty}{NEXT}")), [200, 200]);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let target = Target::new();
    let mut client = target.gateway.client();
    let requests: String = (0..20).map(|n| format!("GET /{n} HTTP/1.1\r\nHost: a.example\r\n\r\n")).collect();
    client.send(requests);
    for n in 0..20 {
        assert_eq!(client.response().text(), format!("GET /{n}"));
    }
    // Split anywhere, a request is the same request.
    let request = b"POST /split HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    for cut in 1..request.len() {
        client.send(&request[..cut]);
        std::thread::sleep(std::time::Duration::from_micros(300));
        client.send(&request[cut..]);
        let Response { status, body, .. } = client.response();
        assert_eq!((status, &*body), (200, &b"hello"[..]), "cut at {cut}");
    }
}

#[test]
fn tls_changes_nothing_about_framing() {
    let target = Target::new();
    let attack = |bytes: &str| -> Vec<u16> {
        let mut client: Client = target.gateway.tls_client("a.example");
        client.send(bytes);
        client.responses().iter().map(|response| response.status).collect()
    };
    assert_eq!(attack(&with_field("Content-Length: 6\r\nTransfer-Encoding: chunked", "0\r\n\r\nG")), [400]);
    assert_eq!(attack(&format!("GET /a HTTP/1.1\r\nHost: a.example\r\n\r\n{NEXT}")), [200, 200]);
    assert_eq!(target.backend.lines(), ["GET /a", "GET /next"]);
}
