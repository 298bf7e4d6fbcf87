//! How much one client may ask for: `limit-rps`, `limit-rpm`, `limit-connections` and what goes with them.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use portcullis::testing::backend::{After, Backend};
use portcullis::testing::certificates::Authority;
use portcullis::testing::eventually;
use portcullis::testing::http2::{get, receive};

use crate::gateway::{Gateway, Setup};
use crate::manifests::Ingress;

fn ingress(name: &str, annotations: &[(&str, &str)]) -> Ingress {
    let ingress = Ingress::new(name, &format!("{name}.example")).path("Prefix", "/", "web");
    annotations.iter().fold(ingress, |ingress, (name, value)| ingress.annotation(name, value))
}

fn start(backend: &Backend, settings: &[&str], ingresses: &[Ingress]) -> Gateway {
    let setup = Setup::new().workers(2).service("web", &[backend.address()]);
    let setup = ingresses.iter().fold(setup, Setup::ingress);
    settings.iter().fold(setup, |setup, line| setup.setting(line)).start()
}

/// How many of `wanted` requests one after another are answered by the backend, the others with `status`. Each comes over
/// a connection of its own, so that every worker gets some.
fn served(gateway: &Gateway, host: &str, client: &str, wanted: usize, status: u16) -> usize {
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nX-Forwarded-For: {client}\r\n\r\n");
    let answers = (0..wanted).map(|_| gateway.client().ask(&request).status);
    let served = answers.inspect(|answer| assert!([200, status].contains(answer), "{answer}"));
    served.filter(|answer| *answer == 200).count()
}

#[test]
fn each_client_has_so_many_requests_whichever_worker_it_comes_to() {
    let backend = Backend::echo();
    // An hour passes between two requests that are due: how long the test takes does not matter.
    let limited = [("limit-rpm", "1"), ("limit-burst-multiplier", "4")];
    let exempt = [&limited[..], &[("limit-whitelist", "10.0.0.0/8, 2001:db8::/32")]].concat();
    let settings = ["use-forwarded-headers: true", "proxy-real-ip-cidr: [127.0.0.0/8]"];
    let gateway = start(
        &backend,
        &settings,
        &[
            ingress("a", &limited).path("Exact", "/other", "web"),
            ingress("b", &limited),
            ingress("exempt", &exempt),
            ingress("open", &[("limit-rpm", "0"), ("limit-rps", "0"), ("limit-connections", "0")]),
        ],
    );
    assert_eq!(served(&gateway, "a.example", "192.0.2.1", 20, 503), 5);
    assert_eq!(
        gateway
            .client()
            .ask("GET /other HTTP/1.1\r\nHost: a.example\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n")
            .status,
        503
    );
    assert_eq!(served(&gateway, "a.example", "192.0.2.2", 20, 503), 5);
    assert_eq!(served(&gateway, "b.example", "192.0.2.1", 20, 503), 5);
    assert_eq!(served(&gateway, "a.example", "2001:db8::1", 20, 503), 5);
    assert_eq!(served(&gateway, "a.example", "2001:db8::ffff:1", 20, 503), 0);
    assert_eq!(served(&gateway, "exempt.example", "10.1.2.3", 20, 503), 20);
    assert_eq!(served(&gateway, "exempt.example", "192.0.2.1", 20, 503), 5);
    assert_eq!(served(&gateway, "open.example", "192.0.2.1", 20, 503), 20);
    eventually("the log", || gateway.log().contains("reason=rate_limited"));
}

#[test]
fn the_status_is_a_setting_and_limits_change_while_it_runs() {
    let backend = Backend::echo();
    let limited = |number| ingress("a", &[("limit-rpm", number), ("limit-burst-multiplier", "0")]);
    let gateway = start(&backend, &[], &[limited("1")]);
    assert_eq!(served(&gateway, "a.example", "", 5, 503), 1);
    gateway.set("limit-req-status-code: 429");
    eventually("the setting holds", || gateway.client().get("a.example", "/").status == 429);
    let answer = gateway.client().get("a.example", "/").text();
    assert_eq!(answer, "429 Too Many Requests: your network asks too often\n");
    gateway.write("2.yaml", &limited("0").yaml());
    eventually("no limit", || gateway.client().get("a.example", "/").status == 200);
    assert_eq!(served(&gateway, "a.example", "", 20, 429), 20);
    for name in ["limit-rps", "limit-rpm", "limit-connections"] {
        gateway.write("2.yaml", &ingress("a", &[(name, "many")]).yaml());
        eventually("who may ask how often is not known", || {
            gateway.client().get("a.example", "/").status == 503
        });
        gateway.write("2.yaml", &ingress("a", &[]).yaml());
        eventually("no limit", || gateway.client().get("a.example", "/").status == 200);
    }
}

/// A backend that answers a request when the test says so.
fn held() -> (Backend, Sender<()>) {
    let (release, released): (_, Receiver<()>) = channel();
    let released = Mutex::new(released);
    let backend = Backend::on_request(move |_, wire| {
        let _ = released.lock().unwrap().recv();
        let _ = wire.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        After::KeepAlive
    });
    (backend, release)
}

#[tokio::test]
async fn only_so_many_requests_of_a_client_are_answered_at_once() {
    let (backend, release) = held();
    let pair = Authority::new("test").leaf(&["a.example"]).issue();
    let limited = ingress("a", &[("limit-connections", "2"), ("ssl-redirect", "false")]).tls("tls");
    let gateway = Setup::new()
        .service("web", &[backend.address()])
        .secret("tls", &pair)
        .setting("limit-conn-status-code: 429")
        .ingress(&limited)
        .start();
    // Streams of one connection count as connections do.
    let mut http2 = gateway.http2("a.example").await;
    let (first, _) = http2.begin(get("a.example", "/"), true).await.unwrap();
    let (second, _) = http2.begin(get("a.example", "/"), true).await.unwrap();
    // The first is being answered, the other has its place already or gets it before what comes later on its connection.
    let third = http2.get("a.example", "/").await.unwrap();
    assert_eq!(third.status, 429);
    assert_eq!(third.text(), "429 Too Many Requests: your network asks for too much at once\n");
    assert_eq!(gateway.client().get("a.example", "/").status, 429);
    release.send(()).unwrap();
    release.send(()).unwrap();
    assert_eq!(receive(first).await.unwrap().status, 200);
    assert_eq!(receive(second).await.unwrap().status, 200);
    for _ in 0..3 {
        release.send(()).unwrap();
        assert_eq!(gateway.client().get("a.example", "/").status, 200);
    }
    // A client that leaves gives its place back.
    for _ in 0..2 {
        gateway.client().send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    }
    drop(release);
    eventually("both places are free", || gateway.client().get("a.example", "/").status == 200);
}

#[test]
fn a_tunnel_keeps_its_place_to_its_end() {
    let backend = Backend::answering(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        After::KeepAlive,
    );
    let gateway = start(&backend, &[], &[ingress("a", &[("limit-connections", "1")])]);
    let upgrade = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    let mut tunnel = gateway.client();
    assert_eq!(tunnel.ask(upgrade).status, 101);
    assert_eq!(gateway.client().ask(upgrade).status, 503);
    drop(tunnel);
    eventually("the place is free", || gateway.client().ask(upgrade).status == 101);
}
