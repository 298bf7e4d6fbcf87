//! The PROXY protocol ahead of HTTP and TLS.

use std::net::TcpStream;

use portcullis::testing::backend::Backend;
use portcullis::testing::client::Client;
use portcullis::testing::message::Request;
use portcullis::testing::wire::Wire;

use crate::gateway::Gateway;

const HEADER: &str = "PROXY TCP4 192.0.2.1 198.51.100.2 4096 1234\r\n";

fn seen(settings: &[&str], header: &str, fields: &str) -> Request {
    let backend = Backend::echo();
    let settings = [&["use-proxy-protocol: true"], settings].concat();
    let gateway = Gateway::with(&backend, &settings);
    let mut client = gateway.client();
    let response = client.ask(format!("{header}GET / HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n"));
    assert_eq!(response.status, 200);
    backend.only_request()
}

fn field<'a>(request: &'a Request, name: &str) -> &'a str {
    request.field(name).unwrap_or("-")
}

#[test]
fn the_client_and_the_port_are_those_of_the_header() {
    let request = seen(&[], HEADER, "X-Forwarded-For: 10.0.0.1\r\n");
    assert_eq!(field(&request, "x-forwarded-for"), "192.0.2.1");
    assert_eq!(field(&request, "x-real-ip"), "192.0.2.1");
    assert_eq!((field(&request, "x-forwarded-port"), field(&request, "x-forwarded-proto")), ("1234", "http"));
    // TLS ended at the load balancer's port 443.
    let request = seen(&[], "PROXY TCP4 192.0.2.1 198.51.100.2 4096 443\r\n", "");
    assert_eq!((field(&request, "x-forwarded-port"), field(&request, "x-forwarded-proto")), ("443", "https"));
    // A load balancer that speaks for itself.
    let request = seen(&[], "PROXY UNKNOWN\r\n", "");
    assert_eq!(field(&request, "x-forwarded-for"), "127.0.0.1");
}

#[test]
fn ahead_of_tls() {
    let backend = Backend::echo();
    let gateway = Gateway::with(&backend, &["use-proxy-protocol: true"]);
    let mut tcp = TcpStream::connect(gateway.https).unwrap();
    std::io::Write::write_all(&mut tcp, HEADER.as_bytes()).unwrap();
    let mut client = Client { wire: Wire::client(tcp, Some("a.example"), &["http/1.1"]).unwrap() };
    assert_eq!(client.get("a.example", "/").status, 200);
    let request = backend.only_request();
    assert_eq!(field(&request, "x-real-ip"), "192.0.2.1");
    assert_eq!((field(&request, "x-forwarded-port"), field(&request, "x-scheme")), ("1234", "https"));
    assert_eq!(field(&request, "x-forwarded-proto"), "https");
}

#[test]
fn peers_that_are_not_trusted_are_who_they_are() {
    let request = seen(&["proxy-real-ip-cidr: [10.0.0.0/8]"], HEADER, "");
    assert_eq!(field(&request, "x-real-ip"), "127.0.0.1");
    assert_ne!(field(&request, "x-forwarded-port"), "1234");
    let request = seen(&["proxy-real-ip-cidr: [127.0.0.0/8]"], HEADER, "");
    assert_eq!(field(&request, "x-real-ip"), "192.0.2.1");
    // Trust in X-Forwarded-For is in the client of the header, not in whoever sent it.
    let claims = "X-Forwarded-For: 203.0.113.9\r\n";
    let request = seen(&["use-forwarded-headers: true", "proxy-real-ip-cidr: [127.0.0.0/8]"], HEADER, claims);
    assert_eq!(field(&request, "x-real-ip"), "192.0.2.1");
    let trusted = "proxy-real-ip-cidr: [127.0.0.0/8, 192.0.2.0/24]";
    let request = seen(&["use-forwarded-headers: true", trusted], HEADER, claims);
    assert_eq!(field(&request, "x-real-ip"), "203.0.113.9");
}

#[test]
fn without_a_header_there_is_no_answer() {
    let backend = Backend::echo();
    let gateway =
        Gateway::with(&backend, &["use-proxy-protocol: true", "proxy-protocol-header-timeout: 500ms"]);
    for bytes in [
        "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "PROXY TCP4 192.0.2.1 198.51",
        "PROXY TCP4 x y 1 2\r\nGET",
        "",
    ] {
        let mut client = gateway.client();
        client.send(bytes);
        client.assert_closed();
    }
    assert!(Client::try_tls(gateway.https, Some("a.example"), &[]).is_err());
    assert!(backend.requests().is_empty());
    // Four, and a ClientHello where a header should be.
    assert!(gateway.metric("portcullis_proxy_headers_refused_total") >= 5.0);
}

#[test]
fn where_it_is_off_a_header_is_a_bad_request() {
    let backend = Backend::echo();
    let gateway = Gateway::before(&backend);
    let mut client = gateway.client();
    client.send(format!("{HEADER}GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"));
    assert_eq!(client.response().status, 400);
    let mut client = Client::plain(gateway.https);
    client.send(HEADER);
    assert!(!client.wire.take_all().starts_with(b"HTTP"));
    assert!(backend.requests().is_empty());
}
