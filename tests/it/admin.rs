//! `portcullis certs` and `portcullis status` against a running admin port.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Output};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use portcullis::admin::view::{PendingRestart, View};
use portcullis::admin::{AdminState, serve};
use portcullis::compile::Compiled;
use portcullis::settings::Settings;
use portcullis::snapshot::shared::Shared;
use portcullis::telemetry::histogram::{APPLY_BOUNDS, Histogram};
use portcullis::tls::tickets::Tickets;
use serde_json::{Value, json};
use tokio::sync::watch;

/// An admin port on a thread of its own, for as long as the test runs.
fn start() -> SocketAddr {
    let settings = Arc::new(Settings::default());
    let tickets = Tickets::new(Duration::from_secs(60)).unwrap();
    let snapshot = Compiled::empty(&settings, &tickets, now()).unwrap().snapshot;
    let pending =
        vec![PendingRestart { key: "http-port", reason: "listeners are opened before workers start" }];
    let view = View { ready: true, pending_restart: pending, ..View::default() };

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (_sender, view) = watch::channel(Arc::new(view));
        let shared = Shared::new(Arc::new(snapshot));
        let workers = vec![Arc::default()];
        let applied = Arc::new(Histogram::new(&APPLY_BOUNDS));
        let state =
            Arc::new(AdminState { shared, workers, access_logs: None, applied, registry: None, view });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { serve(tokio::net::TcpListener::from_std(listener).unwrap(), state).await });
    });
    address
}

/// Seconds since the Unix epoch.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_secs()).unwrap()
}

fn portcullis(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_portcullis")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn answer(arguments: &[&str]) -> String {
    let output = portcullis(arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).to_owned()
}

#[test]
fn certs_as_a_table_and_as_json() {
    let admin = start().to_string();
    let table = answer(&["certs", "--admin", &admin]);
    let rows: Vec<_> = table.lines().collect();
    assert_eq!(rows.len(), 2, "{table}");
    assert!(rows[0].starts_with("NAMES"), "{table}");
    assert!(rows[1].starts_with("ingress.local  (generated)"), "{table}");
    assert!(rows[1].contains("(364d)  no_responder  (every other name)"), "{table}");
    assert!(!table.contains('\x1b'), "no colours where nobody sees them");

    let json: Value = serde_json::from_str(&answer(&["certs", "--admin", &admin, "--output=json"])).unwrap();
    assert_eq!(json["certificates"][0]["names"], json!(["ingress.local"]));
}

#[test]
fn status_as_a_table_and_as_json() {
    let port = start().port();
    // A name is asked by the address it leads to.
    let table = answer(&["status", "--admin", &format!("http://localhost:{port}/")]);
    assert!(table.contains("ready         yes\n"), "{table}");
    assert!(table.contains("http-port        listeners are opened before workers start\n"), "{table}");

    let json = answer(&["status", "--admin", &format!("127.0.0.1:{port}"), "--output", "json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["ready"], &json["generation"]), (&json!(true), &json!(0)));
}

#[test]
fn without_a_gateway_the_error_says_what_to_do() {
    // Bound and closed: nothing listens there.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for command in ["certs", "status"] {
        let output = portcullis(&[command, "--admin", &address]);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), ""));
        let error = text(&output.stderr);
        assert!(error.contains(&format!("cannot reach the admin port at {address}: ")), "{error}");
        assert!(error.contains("Is portcullis serve running?"), "{error}");
    }
}

#[test]
fn something_else_on_the_port_is_told_apart() {
    for reply in ["HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nn\x1b[2J", "SSH-2.0-x\r\n", ""] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(reply.as_bytes());
        });
        let output = portcullis(&["status", "--admin", &address]);
        assert_eq!(output.status.code(), Some(1));
        let error = text(&output.stderr);
        assert!(error.contains("does not answer as the admin port does"), "{error}");
        assert!(!error.contains('\x1b'), "{error:?}");
    }
}
