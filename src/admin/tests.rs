//! The admin port over a real socket, and the shapes of its answers.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::fixtures::{Gateway, object};
use super::serve;
use super::view::View;
use crate::names::HostName;
use crate::settings::Settings;
use crate::snapshot::certificates::{Binding, Certificate, HostCertificates};
use crate::supervisor::messages::Crash;
use crate::tls::keys::Algorithm;

/// An admin port on a socket.
struct Server {
    address: std::net::SocketAddr,
    view: watch::Sender<Arc<View>>,
}

impl Server {
    async fn start(gateway: Gateway) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (state, view) = gateway.state();
        tokio::spawn(serve(listener, Arc::new(state)));
        Self { address, view }
    }

    /// Sends bytes and returns everything that comes back.
    async fn exchange(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        String::from_utf8(answer).unwrap()
    }

    async fn get(&self, path: &str) -> Reply {
        self.request("GET", path, "localhost").await
    }

    async fn request(&self, method: &str, path: &str, host: &str) -> Reply {
        let request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let answer = self.exchange(&request).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Reply { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    fn set_view(&self, change: impl FnOnce(&mut View)) {
        let mut view = View::clone(&self.view.borrow());
        change(&mut view);
        self.view.send_replace(Arc::new(view));
    }
}

struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    fn json(&self) -> Value {
        assert!(self.head.contains("content-type: application/json"), "{}", self.head);
        serde_json::from_str(&self.body).unwrap()
    }
}

const PATHS: [&str; 9] = [
    "/",
    "/healthz",
    "/readyz",
    "/metrics",
    "/api/v1/status",
    "/api/v1/certificates",
    "/api/v1/hosts",
    "/api/v1/policies",
    "/api/v1/diagnostics",
];

#[tokio::test]
async fn probes_follow_the_view() {
    let server = Server::start(Gateway::sample()).await;
    let codes = async || (server.get("/healthz").await.status, server.get("/readyz").await.status);
    assert_eq!(codes().await, (200, 200));

    server.set_view(|view| {
        view.ready = false;
        view.sources[0].synced = false;
    });
    assert_eq!(codes().await, (200, 503));
    assert_eq!(server.get("/readyz").await.body, "waiting for the first list of directory\n");

    server.set_view(|view| {
        view.ready = true;
        view.draining = true;
    });
    assert_eq!(codes().await, (500, 503));
}

#[tokio::test]
async fn certificates_have_the_promised_shape() {
    let answer = Server::start(Gateway::sample()).await.get("/api/v1/certificates").await.json();
    let rows = answer["certificates"].as_array().unwrap();
    assert_eq!(rows.len(), 3);

    let generated = &rows[0];
    assert_eq!((&generated["secret"], &generated["default"]), (&Value::Null, &json!(true)));
    assert_eq!((&generated["hosts"], &generated["ocsp"]["state"]), (&json!([]), &json!("no_responder")));

    let shop = &rows[2];
    assert_eq!(shop["secret"], "shop/tls");
    assert_eq!(shop["names"], json!(["shop.example.com", "*.shop.example.com"]));
    assert_eq!(shop["hosts"], json!(["shop.example.com", "*.shop.example.com"]));
    assert_eq!((&shop["algorithm"], &rows[1]["algorithm"]), (&json!("ECDSA P-256"), &json!("RSA")));
    assert_eq!(
        shop["ocsp"],
        json!({
            "state": "good", "this_update": "2023-11-14T22:13:20Z", "next_update": "2023-11-14T23:13:20Z",
            "next_fetch": "2023-11-14T22:43:20Z", "last_error": "timeout",
        })
    );
    assert_eq!(
        rows[1]["ocsp"],
        json!({
            "state": "pending", "this_update": null, "next_update": null,
            "next_fetch": null, "last_error": null,
        })
    );
    for key in ["not_before", "not_after"] {
        let time = shop[key].as_str().unwrap();
        time::OffsetDateTime::parse(time, &time::format_description::well_known::Rfc3339).unwrap();
    }
    for key in ["serial", "fingerprint"] {
        let hex = shop[key].as_str().unwrap();
        assert!(!hex.is_empty() && hex.bytes().all(|b| b.is_ascii_hexdigit() && !b.is_ascii_uppercase()));
    }
}

#[tokio::test]
async fn equal_certificates_out_of_two_secrets_are_two_rows() {
    let mut gateway = Gateway::new(Settings { enable_ocsp: false, ..Settings::default() });
    gateway.certificate("a/tls", &["a.example.com"], Algorithm::EcdsaP256);
    let name = HostName::new("a.example.com").unwrap();
    let first = gateway.snapshot.certificates.exact.get(&name).unwrap().iter().next().unwrap().clone();
    let pair = first.certificate.pair.clone();
    let twin = Arc::new(Certificate { pair, secret: Some(object("b/tls")), handshakes: Arc::default() });
    let of_host = HostCertificates::new(Binding { certificate: twin, ..first }, []);
    gateway.snapshot.certificates.exact.insert(HostName::new("b.example.com").unwrap(), Arc::new(of_host));
    let answer = Server::start(gateway).await.get("/api/v1/certificates").await.json();
    let rows = answer["certificates"].as_array().unwrap();
    let secrets: Vec<_> = rows.iter().map(|row| (&row["secret"], &row["hosts"])).collect();
    assert_eq!(
        secrets[1..],
        [(&json!("a/tls"), &json!(["a.example.com"])), (&json!("b/tls"), &json!(["b.example.com"])),]
    );
    assert!(rows.iter().all(|row| row["ocsp"]["state"] == "disabled"));
}

#[tokio::test]
async fn status_has_the_promised_shape() {
    let mut gateway = Gateway::sample();
    gateway.view.last_restart_error = Some("port in use".into());
    gateway.view.last_crash = Some(Crash { reason: "killed".into(), at: 1_700_000_000 });
    let status = Server::start(gateway).await.get("/api/v1/status").await.json();
    assert_eq!((&status["generation"], &status["ready"]), (&json!(7), &json!(true)));
    let pending = json!([{ "key": "http-port", "reason": "listeners are opened before workers start" }]);
    assert_eq!(status["pending_restart"], pending);
    assert_eq!(status["last_restart_error"], "port in use");
    assert_eq!(status["last_crash"], json!({ "reason": "killed", "at": "2023-11-14T22:13:20Z" }));
    assert_eq!(status["started"], "2023-11-14T22:13:20Z");
    assert!(status["uptime_seconds"].as_u64().unwrap() > 0);
    let counted = ["hosts", "routes", "certificates", "clusters", "endpoints"].map(|key| &status[key]);
    assert_eq!(counted, [&json!(3), &json!(4), &json!(3), &json!(4), &json!(3)]);
    assert_eq!(status["diagnostics"], json!({ "error": 1, "warning": 1, "info": 0 }));
    assert_eq!(status["workers"][1]["connections"], 1);
    assert_eq!(status["workers"][0]["handshakes_failed"], 1);
    assert_eq!(status["workers"][0]["pid"], std::process::id());
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
}

#[tokio::test]
async fn hosts_tell_their_routes_and_what_was_counted() {
    let answer = Server::start(Gateway::sample()).await.get("/api/v1/hosts").await.json();
    let shop = &answer["hosts"][2];
    assert_eq!((&shop["host"], &shop["tls"]), (&json!("shop.example.com"), &json!(true)));
    assert_eq!(
        shop["routes"][1],
        json!({
            "path": "/", "ingress": "shop/web", "backend": "shop/web-service:80", "protocol": "HTTP/1.1",
            "endpoints": 1, "unavailable": null, "requests": 2, "failed": 1,
        })
    );
}

#[tokio::test]
async fn a_route_that_is_closed_says_why() {
    let mut gateway = Gateway::sample();
    gateway.close("shop.example.com", "auth-url");
    let answer = Server::start(gateway).await.get("/api/v1/hosts").await.json();
    let route = &answer["hosts"][2]["routes"][1];
    let told = (&route["backend"], &route["unavailable"]);
    assert_eq!(told, (&json!(null), &json!("closed, because the annotation auth-url is not supported")));
}

#[cfg(unix)]
#[tokio::test]
async fn diagnostics_are_told_even_of_files_with_odd_names() {
    use std::os::unix::ffi::OsStrExt;
    let mut gateway = Gateway::sample();
    let file = std::ffi::OsStr::from_bytes(b"odd\xff.yaml");
    let mut all = gateway.view.diagnostics.to_vec();
    all[1].file = Some(Arc::new(file.into()));
    gateway.view.diagnostics = all.into();
    let answer = Server::start(gateway).await.get("/api/v1/diagnostics").await.json();
    assert_eq!(
        answer["diagnostics"][0],
        json!({
            "severity": "error", "object": { "kind": "Ingress", "namespace": "blog", "name": "<img src=x>" },
            "field": "spec.tls[0].secretName", "reason": "SecretNotFound", "message": "a \"message\"",
        })
    );
    assert_eq!(answer["diagnostics"][1]["file"], "odd\u{fffd}.yaml");
}

#[tokio::test]
async fn nothing_secret_is_reachable() {
    let gateway = Gateway::sample();
    let keys: Vec<_> = gateway.pairs.iter().map(|pair| pair.key_pem.clone()).collect();
    let server = Server::start(gateway).await;
    for path in PATHS {
        let reply = server.get(path).await;
        assert_eq!(reply.status, 200, "{path}");
        assert!(!reply.body.contains("PRIVATE KEY"), "{path}");
        for key in &keys {
            for line in key.lines().filter(|line| !line.starts_with("-----")) {
                assert!(!reply.body.contains(line), "{path}");
                let hex: String = STANDARD.decode(line).unwrap().iter().map(|b| format!("{b:02x}")).collect();
                assert!(!reply.body.contains(&hex), "{path}");
            }
        }
    }
}

#[tokio::test]
async fn no_answer_lends_itself_to_other_pages() {
    let server = Server::start(Gateway::sample()).await;
    for path in PATHS.into_iter().chain(["/nowhere", "/api/v1/certificates/../../x", "//"]) {
        let Reply { head, .. } = server.get(path).await;
        assert!(!head.contains("access-control-"), "{head}");
        for header in [
            "content-security-policy: default-src 'none'",
            "x-content-type-options: nosniff",
            "cache-control: no-store",
            "x-frame-options: deny",
        ] {
            assert!(head.contains(header), "{path}: {head}");
        }
    }
    let page = server.get("/").await;
    assert!(page.head.contains("script-src 'sha256-") && !page.head.contains("unsafe"), "{}", page.head);
    assert!(!page.body.contains("<img"), "what objects are called is no part of the page");
}

#[tokio::test]
async fn strange_names_are_refused_everywhere() {
    let server = Server::start(Gateway::sample()).await;
    for path in PATHS {
        assert_eq!(server.request("GET", path, "rebound.example").await.status, 421, "{path}");
        assert_eq!(server.request("GET", path, "10.0.0.7:10254").await.status, 200, "{path}");
    }
    let told = Settings { admin_hosts: vec!["portcullis.ingress.svc".into()], ..Settings::default() };
    let server = Server::start(Gateway::new(told)).await;
    assert_eq!(server.request("GET", "/metrics", "portcullis.ingress.svc:10254").await.status, 200);
}

#[tokio::test]
async fn only_reading_is_answered() {
    let server = Server::start(Gateway::sample()).await;
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "CONNECT"] {
        let path = if method == "CONNECT" { "localhost:80" } else { "/healthz" };
        let reply = server.request(method, path, "localhost").await;
        assert_eq!(reply.status, 405, "{method}");
        assert!(reply.head.contains("allow: get, head"), "{}", reply.head);
    }
    let head = server.request("HEAD", "/metrics", "localhost").await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert_eq!(server.get("/nowhere").await.status, 404);
}

#[tokio::test]
async fn a_head_without_end_is_refused() {
    let server = Server::start(Gateway::sample()).await;
    let answer = server.exchange(&format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(20_000))).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
}
