//! Backends of every protocol, and backends that fail.

use std::sync::atomic::{AtomicUsize, Ordering};

use http::{HeaderMap, HeaderValue, Request};
use portcullis::testing::backend::{After, Backend, refusing_address};
use portcullis::testing::certificates::Authority;
use portcullis::testing::grpc::{Grpc, message_of};
use portcullis::testing::http2::{Http2, post, receive};

use crate::gateway::{Gateway, Setup};
use crate::manifests::{Ingress, endpoint_slice, service};

fn grpc(path: &str) -> Request<()> {
    let request = Request::post(format!("https://a.example{path}"));
    request.header("content-type", "application/grpc").header("te", "trailers").body(()).unwrap()
}

async fn grpc_gateway(backend: &Grpc, protocol: &str) -> (Gateway, Http2) {
    let gateway = Gateway::in_front_of(backend.address(), &[("backend-protocol", protocol)], &[]);
    let client = gateway.http2("a.example").await;
    (gateway, client)
}

#[tokio::test]
async fn grpc_over_plain_and_encrypted_connections() {
    let pair = Authority::new("backends").leaf(&["a.example"]).issue();
    for (backend, protocol) in [(Grpc::plain(), "GRPC"), (Grpc::secured(&pair), "GRPCS")] {
        let (_gateway, mut client) = grpc_gateway(&backend, protocol).await;
        let answer = client.ask(grpc("/echo.Echo/Unary"), message_of(b"hello"), None).await.unwrap();
        assert_eq!((answer.status, answer.body), (200, message_of(b"hello").to_vec()), "{protocol}");
        assert_eq!(answer.trailers.get("grpc-status"), Some("0"));
        // Only trailers.
        let answer = client.ask(grpc("/echo.Echo/Fail"), message_of(b""), None).await.unwrap();
        let fields = if answer.trailers.0.is_empty() { &answer.fields } else { &answer.trailers };
        assert_eq!((answer.status, fields.get("grpc-status")), (200, Some("5")));
        assert_eq!(fields.get("grpc-message"), Some("no such thing"));
        // Many messages to a client that takes them as it likes.
        let answer = client.ask(grpc("/echo.Echo/Many"), message_of(b"1000"), None).await.unwrap();
        assert!(answer.body.ends_with(b"message 999"));
        assert_eq!(answer.trailers.get("grpc-status"), Some("0"));
        let seen = &backend.requests()[0];
        assert_eq!(
            (seen.fields.get("te"), seen.fields.get("content-type")),
            (Some("trailers"), Some("application/grpc"))
        );
    }
}

/// A client that takes little at a time lets small messages pile up, and loses none.
#[tokio::test]
async fn many_small_grpc_messages_to_a_slow_client() {
    let backend = Grpc::plain();
    let gateway = Gateway::in_front_of(backend.address(), &[("backend-protocol", "GRPC")], &[]);
    let mut client = Http2::with_window(gateway.https, "a.example", 1024).await;
    let answer = client.ask(grpc("/echo.Echo/Many"), message_of(b"20000"), None).await.unwrap();
    assert!(answer.body.ends_with(b"message 19999"));
    assert_eq!(answer.trailers.get("grpc-status"), Some("0"));
}

#[tokio::test]
async fn grpc_in_both_directions_at_once() {
    let backend = Grpc::plain();
    let (_gateway, mut client) = grpc_gateway(&backend, "GRPC").await;
    let (response, mut stream) = client.begin(grpc("/echo.Echo/Chat"), false).await.unwrap();
    let mut body = response.await.unwrap().into_body();
    for n in 0..20 {
        let message = message_of(format!("message {n}").as_bytes());
        stream.send_data(message.clone(), false).unwrap();
        let mut echoed = Vec::new();
        while echoed.len() < message.len() {
            let piece = body.data().await.unwrap().unwrap();
            body.flow_control().release_capacity(piece.len()).unwrap();
            echoed.extend_from_slice(&piece);
        }
        assert_eq!(echoed, message);
    }
    stream.send_data(Default::default(), true).unwrap();
    assert!(body.data().await.is_none());
    assert_eq!(body.trailers().await.unwrap().unwrap()["grpc-status"], "0");
}

#[tokio::test]
async fn grpc_backends_that_fail_are_a_grpc_status() {
    let backend = Grpc::plain();
    let annotations = [("backend-protocol", "GRPC"), ("proxy-read-timeout", "1"), ("proxy-body-size", "1k")];
    let gateway = Gateway::in_front_of(backend.address(), &annotations, &[]);
    let mut client = gateway.http2("a.example").await;
    for (path, body, status) in [("/e.E/Die", 1, "14"), ("/e.E/Hang", 1, "4"), ("/e.E/Unary", 5000, "8")] {
        let answer = client.ask(grpc(path), message_of(&vec![b'x'; body]), None).await.unwrap();
        assert_eq!((answer.status, answer.field("grpc-status")), (200, Some(status)), "{path}");
        assert_eq!(answer.field("content-type"), Some("application/grpc"));
    }
    let gateway = Gateway::in_front_of(refusing_address(), &[("backend-protocol", "GRPC")], &[]);
    let mut client = gateway.http2("a.example").await;
    let answer = client.ask(grpc("/e.E/Unary"), message_of(b""), None).await.unwrap();
    assert_eq!(answer.field("grpc-status"), Some("14"));
}

#[tokio::test]
async fn http_1_clients_of_http_2_backends() {
    let backend = Grpc::plain();
    let gateway = Gateway::in_front_of(
        backend.address(),
        &[("backend-protocol", "GRPC"), ("proxy-body-size", "1k")],
        &[],
    );
    let mut client = gateway.client();
    let response = client.ask("POST /echo HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!((response.status, response.text().as_str()), (200, "hello"));
    let request = "POST /echo HTTP/1.1\r\nHost: a.example\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\n\r\n\
                   3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n";
    let response = client.ask(request);
    assert_eq!((response.text().as_str(), response.trailers.get("grpc-status")), ("abc", Some("0")));
    let seen = &backend.requests()[1];
    assert_eq!((seen.trailers.get("x-sum"), seen.complete), (Some("1"), true));
    assert_eq!(seen.target, "http://a.example/echo");
    // Not announced, and too large.
    let large = "x".repeat(3000);
    client.send(format!("POST /echo HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\nbb8\r\n{large}\r\n0\r\n\r\n"));
    assert_eq!(client.response().status, 413);
}

#[test]
fn https_backends_are_asked_for_by_name() {
    let backend = Backend::secured_echo(&Authority::new("backends").leaf(&["a.example"]).issue());
    let gateway = Gateway::in_front_of(backend.address(), &[("backend-protocol", "HTTPS")], &[]);
    let mut client = gateway.tls_client("a.example");
    for n in 0..3 {
        assert_eq!(client.get("a.example", &format!("/{n}")).text(), format!("GET /{n}"));
    }
    assert_eq!(backend.requests()[0].sni.as_deref(), Some("a.example"));
    assert_eq!(backend.connections(), 1);
    // A backend that does not speak TLS.
    let plain = Grpc::plain();
    let gateway = Gateway::in_front_of(plain.address(), &[("backend-protocol", "HTTPS")], &[]);
    let response = gateway.client().get("a.example", "/");
    assert_eq!(response.status, 502);
    assert!(response.text().contains("upstream_tls"), "{}", response.text());
}

#[test]
fn external_names() {
    let backend = Backend::echo();
    let port = backend.address().port();
    let external = |name: &str, host: &str, port: u16| {
        format!(
            "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: default}}\n\
             spec: {{type: ExternalName, externalName: {host}, ports: [{{port: {port}}}]}}\n"
        )
    };
    let to = |number: u16| format!("{{number: {number}}}");
    let gateway = Setup::new()
        .manifest(external("outside", "localhost", port))
        .manifest(external("nowhere", "nowhere.invalid", 80))
        .ingress(&Ingress::new("a", "a.example").path_to("Prefix", "/", "outside", &to(port)).path_to(
            "Prefix",
            "/nowhere",
            "nowhere",
            &to(80),
        ))
        .start();
    let mut client = gateway.client();
    assert_eq!(client.get("a.example", "/x").text(), "GET /x");
    let response = client.get("a.example", "/nowhere");
    assert_eq!(response.status, 502);
    assert!(response.text().contains("upstream_name_not_found"), "{}", response.text());
}

#[test]
fn endpoints_that_refuse_are_passed_over() {
    let backend = Backend::echo();
    let gateway = Setup::new()
        .service("web", &[refusing_address(), backend.address()])
        .service("down", &[refusing_address()])
        .ingress(&Ingress::new("a", "a.example").path("Prefix", "/", "web").path("Prefix", "/down", "down"))
        .start();
    let mut client = gateway.client();
    for n in 0..20 {
        let request = format!("POST /{n} HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhello");
        assert_eq!(client.ask(request).text(), "hello");
    }
    let response = client.get("a.example", "/down");
    assert_eq!(response.status, 502);
    assert!(response.text().contains("upstream_connect_refused"), "{}", response.text());
}

#[test]
fn endpoints_come_and_go_and_terminating_ones_serve_when_they_are_the_last() {
    let (old, new) = (Backend::echo(), Backend::echo());
    let gateway = Setup::new().ingress(&Ingress::new("a", "a.example").path("Prefix", "/", "web")).start();
    gateway.write("web.yaml", &service("web", &[old.address()]));
    let mut client = gateway.client();
    portcullis::testing::eventually("the service", || client.get("a.example", "/").status == 200);
    let terminating =
        endpoint_slice("web", 0, old.address(), "{ready: false, serving: true, terminating: true}");
    gateway.write("web.yaml", &(service("web", &[]) + &terminating));
    // It is still the only one.
    for _ in 0..20 {
        assert_eq!(client.get("a.example", "/").status, 200);
    }
    gateway.write(
        "web.yaml",
        &(service("web", &[]) + &terminating + &endpoint_slice("web", 1, new.address(), "{ready: true}")),
    );
    portcullis::testing::eventually("the new endpoint", || {
        assert_eq!(client.get("a.example", "/").status, 200, "no request is lost on the way");
        !new.requests().is_empty()
    });
    gateway.write("web.yaml", &service("web", &[]));
    portcullis::testing::eventually("no endpoint", || client.get("a.example", "/").status == 503);
}

/// A backend of which every second request to `/stale` finds the kept-alive connection closed.
fn closing_backend() -> Backend {
    let turn = AtomicUsize::new(0);
    Backend::on_request(move |request, wire| {
        if turn.fetch_add(1, Ordering::Relaxed) % 2 == 1 && request.target == "/stale" {
            return After::Close;
        }
        let _ = wire.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        After::KeepAlive
    })
}

#[test]
fn stale_connections_are_retried_where_that_is_harmless() {
    let backend = closing_backend();
    let gateway = Gateway::before(&backend);
    let mut client = gateway.client();
    assert_eq!(client.get("a.example", "/first").status, 200);
    assert_eq!(client.get("a.example", "/stale").status, 200, "sent again over a new connection");
    assert_eq!(backend.lines(), ["GET /first", "GET /stale", "GET /stale"]);
    let response = client.ask("POST /stale HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1\r\n\r\nx");
    assert_eq!(response.status, 502, "nothing proves that the backend did not act on it");
    assert_eq!(backend.lines().iter().filter(|line| line.starts_with("POST")).count(), 1);
}

#[test]
fn the_settings_say_what_is_retried_and_how_often() {
    const POST: &str = "POST /stale HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n";
    const GET: &str = "GET /stale HTTP/1.1\r\nHost: a.example\r\n\r\n";
    for (request, setting, status, sent) in [
        (POST, "retry-non-idempotent: false", 502, 1),
        (POST, "retry-non-idempotent: true", 200, 2),
        (GET, "proxy-next-upstream-tries: 3", 200, 2),
        (GET, "proxy-next-upstream-tries: 1", 502, 1),
    ] {
        let backend = closing_backend();
        let gateway = Gateway::with(&backend, &[setting]);
        let mut client = gateway.client();
        assert_eq!(client.get("a.example", "/first").status, 200);
        assert_eq!(client.ask(request).status, status, "{setting}: {request}");
        assert_eq!(backend.lines().len(), 1 + sent, "{setting}: {request}");
    }
}

#[test]
fn the_limit_of_idle_connections_changes_while_the_gateway_runs() {
    let backend = Backend::echo();
    let gateway = Gateway::before(&backend);
    let mut client = gateway.client();
    let mut ask = || assert_eq!(client.get("a.example", "/").status, 200);
    ask();
    ask();
    assert_eq!((backend.connections(), backend.open_connections()), (1, 1));
    gateway.set("upstream-keepalive-connections: 0");
    portcullis::testing::eventually("the end of the idle connection", || backend.open_connections() == 0);
    ask();
    ask();
    assert_eq!(backend.connections(), 3);
}

#[tokio::test]
async fn trailers_of_http_2_reach_http_2() {
    let backend = Grpc::plain();
    let (_gateway, mut client) = grpc_gateway(&backend, "GRPC").await;
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", HeaderValue::from_static("1"));
    let (response, mut stream) = client.begin(post("a.example", "/echo"), false).await.unwrap();
    stream.send_data("abc".into(), false).unwrap();
    stream.send_trailers(trailers).unwrap();
    assert_eq!(receive(response).await.unwrap().text(), "abc");
    assert_eq!(backend.requests()[0].trailers.get("x-sum"), Some("1"));
}

/// What the gateway answers before there is a backend is in the words of gRPC too.
#[tokio::test]
async fn refusals_of_grpc() {
    let backend = Backend::echo();
    let annotations = [("proxy-body-size", "10")];
    let gateway = Gateway::in_front_of(backend.address(), &annotations, &[]);
    let ask = |host: &str, path: &str, length: usize| {
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/grpc\r\nContent-Length: {length}\r\n\r\n"
        );
        let response = gateway.client().ask(request);
        (response.status, response.field("grpc-status").map(str::to_owned))
    };
    assert_eq!(ask("nobody.example", "/", 0), (200, Some("12".into())));
    assert_eq!(ask("a.example", "/a%00b", 0), (200, Some("13".into())));
    assert_eq!(ask("a.example", "/", 11), (200, Some("8".into())));
    // But for what has the client connect anew. It comes first, whatever the other host has.
    let mut client = gateway.http2("a.example").await;
    let request = Request::post("https://nobody.example/nowhere").header("content-type", "application/grpc");
    let response = client.ask(request.body(()).unwrap(), "", None).await.unwrap();
    assert_eq!((response.status, response.field("grpc-status")), (421, None));
    assert!(backend.requests().is_empty());
}
