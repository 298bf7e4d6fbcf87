//! Who may come in by the address of the client: `whitelist-source-range`, `denylist-source-range` and the settings of
//! their names.

use portcullis::testing::backend::Backend;
use portcullis::testing::certificates::Authority;
use portcullis::testing::eventually;

use crate::gateway::{Gateway, Setup};
use crate::manifests::Ingress;

/// The peer is believed about the client.
const TRUST: [&str; 2] = ["use-forwarded-headers: true", "proxy-real-ip-cidr: [127.0.0.0/8]"];

fn start(setup: Setup, settings: &[&str]) -> Gateway {
    settings.iter().fold(setup, |setup, line| setup.setting(line)).start()
}

/// The status of `/` on `host` for a client of which `X-Forwarded-For` says this; the peer itself where that is empty.
fn status(gateway: &Gateway, host: &str, client: &str) -> u16 {
    let claim = if client.is_empty() { String::new() } else { format!("X-Forwarded-For: {client}\r\n") };
    gateway.client().ask(format!("GET / HTTP/1.1\r\nHost: {host}\r\n{claim}\r\n")).status
}

fn ingress(name: &str) -> Ingress {
    Ingress::new(name, &format!("{name}.example")).path("Prefix", "/", "web")
}

#[test]
fn lists_say_which_clients_a_route_is_for() {
    let backend = Backend::echo();
    let list = "10.0.0.0/8, 2001:db8::/32,192.0.2.7";
    let setup = Setup::new()
        .service("web", &[backend.address()])
        .ingress(&ingress("white").annotation("whitelist-source-range", list))
        .ingress(&ingress("allow").annotation("allowlist-source-range", list))
        .ingress(&ingress("deny").annotation("denylist-source-range", list))
        .ingress(
            &ingress("both")
                .annotation("whitelist-source-range", list)
                .annotation("denylist-source-range", "10.1.0.0/16"),
        )
        .ingress(&ingress("nothing").annotation("whitelist-source-range", ""))
        .ingress(&ingress("open"));
    let gateway = start(setup, &TRUST);
    for client in ["10.1.2.3", "::ffff:10.1.2.3", "2001:db8::9", "192.0.2.7", "192.0.2.8", "2001:db9::", ""] {
        let listed = !matches!(client, "192.0.2.8" | "2001:db9::" | "");
        let status = |host: &str| status(&gateway, host, client);
        assert_eq!(status("white.example"), if listed { 200 } else { 403 }, "{client}");
        assert_eq!(status("allow.example"), if listed { 200 } else { 403 }, "{client}");
        assert_eq!(status("deny.example"), if listed { 403 } else { 200 }, "{client}");
        let both = listed && !client.contains("10.1");
        assert_eq!(status("both.example"), if both { 200 } else { 403 }, "{client}");
        assert_eq!((status("open.example"), status("nothing.example")), (200, 200), "{client}");
    }
    let answer = gateway.client().get("white.example", "/");
    assert_eq!(answer.text(), "403 Forbidden: this is not for clients of your network\n");
    eventually("the log", || gateway.log().contains("reason=source_denied"));
    let grpc = gateway.client().ask(
        "POST / HTTP/1.1\r\nHost: white.example\r\nContent-Type: application/grpc\r\nContent-Length: 0\r\n\r\n",
    );
    assert_eq!((grpc.status, grpc.field("grpc-status")), (200, Some("7")));
    assert!(backend.requests().iter().all(|request| request.field("host") != Some("white.example")
        || request.field("x-real-ip") != Some("127.0.0.1")));
}

#[test]
fn the_client_is_the_one_that_is_believed() {
    let backend = Backend::echo();
    let setup = || {
        Setup::new()
            .service("web", &[backend.address()])
            .ingress(&ingress("a").annotation("whitelist-source-range", "192.0.2.0/24"))
            .ingress(&ingress("b").annotation("denylist-source-range", "127.0.0.0/8"))
    };
    // Nobody is believed: what a client writes does not make it another.
    let gateway = setup().start();
    for claim in ["192.0.2.1", "192.0.2.1, 127.0.0.1", ""] {
        assert_eq!((status(&gateway, "a.example", claim), status(&gateway, "b.example", claim)), (403, 403));
    }
    // What stands left of the address that a trusted peer saw is hearsay.
    let gateway = start(setup(), &TRUST);
    assert_eq!(status(&gateway, "a.example", "192.0.2.1"), 200);
    assert_eq!(status(&gateway, "a.example", "192.0.2.1, 198.51.100.1"), 403);
    assert_eq!(status(&gateway, "b.example", "192.0.2.1"), 200);

    let gateway = start(setup(), &["use-proxy-protocol: true"]);
    let status = |header: &str| {
        gateway.client().ask(format!("{header}\r\nGET / HTTP/1.1\r\nHost: a.example\r\n\r\n")).status
    };
    assert_eq!(status("PROXY TCP4 192.0.2.1 198.51.100.2 4096 80"), 200);
    assert_eq!(status("PROXY TCP6 ::ffff:192.0.2.1 ::1 4096 80"), 200);
    assert_eq!(status("PROXY TCP4 192.0.3.1 198.51.100.2 4096 80"), 403);
    assert_eq!(status("PROXY UNKNOWN"), 403);
}

#[tokio::test]
async fn they_hold_for_every_protocol_and_after_redirects() {
    let backend = Backend::echo();
    let pair = Authority::new("test").leaf(&["a.example"]).issue();
    let setup = Setup::new()
        .service("web", &[backend.address()])
        .secret("tls", &pair)
        .ingress(&ingress("a").tls("tls").annotation("whitelist-source-range", "192.0.2.0/24"))
        .ingress(
            &ingress("b")
                .annotation("permanent-redirect", "https://c.example")
                .annotation("whitelist-source-range", "192.0.2.0/24"),
        );
    let gateway = setup.start();
    assert_eq!(gateway.client().get("a.example", "/").status, 308);
    assert_eq!(gateway.client().get("b.example", "/").status, 301);
    assert_eq!(gateway.tls_client("a.example").get("a.example", "/").status, 403);
    let mut http2 = gateway.http2("a.example").await;
    assert_eq!(http2.get("a.example", "/").await.unwrap().status, 403);
    let upgrade = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    assert_eq!(gateway.tls_client("a.example").ask(upgrade).status, 403);
    assert_eq!(backend.connections(), 0);
}

#[test]
fn a_list_that_cannot_be_read_lets_in_nobody() {
    let backend = Backend::echo();
    let lists =
        ["10.0.0.0/33", "127.0.0.1; deny all", "127.0.0.1 10.0.0.0/8", "localhost", ",", "127.0.0.0/8, x"];
    let mut setup = Setup::new().service("web", &[backend.address()]);
    for (number, list) in lists.iter().enumerate() {
        setup = setup
            .ingress(&ingress(&format!("white{number}")).annotation("whitelist-source-range", list))
            .ingress(&ingress(&format!("deny{number}")).annotation("denylist-source-range", list));
    }
    let gateway = setup.ingress(&ingress("open")).start();
    for number in 0..lists.len() {
        for kind in ["white", "deny"] {
            assert_eq!(status(&gateway, &format!("{kind}{number}.example"), ""), 503, "{kind} {number}");
        }
    }
    assert_eq!(status(&gateway, "open.example", ""), 200);
    let findings = gateway.admin("/api/v1/diagnostics");
    assert_eq!(findings.matches("Requests are refused (503) rather than served without it.").count(), 12);
}

#[test]
fn lists_and_settings_change_while_it_runs() {
    let backend = Backend::echo();
    let solver = ingress("solver").annotation("whitelist-source-range", "0.0.0.0/0,::/0");
    let setup = Setup::new().service("web", &[backend.address()]).ingress(&ingress("a")).ingress(&solver);
    let gateway = setup.start();
    let mut client = gateway.client();
    let mut now = |host: &str| client.get(host, "/").status;
    assert_eq!((now("a.example"), now("solver.example")), (200, 200));
    // An Ingress that says something itself is not asked for what the setting says.
    gateway.set("whitelist-source-range: [192.0.2.0/24]");
    eventually("the setting holds", || now("a.example") == 403);
    assert_eq!(now("solver.example"), 200);
    gateway.write("2.yaml", &ingress("a").annotation("whitelist-source-range", "127.0.0.1").yaml());
    eventually("the annotation holds", || now("a.example") == 200);
    gateway.write("2.yaml", &ingress("a").annotation("whitelist-source-range", "127.0.0.2").yaml());
    eventually("the annotation holds", || now("a.example") == 403);
    // Who is blocked is blocked from everything.
    assert_eq!(now("nobody.example"), 404);
    gateway.set("block-cidrs: 127.0.0.0/8");
    eventually("the setting holds", || now("solver.example") == 403);
    assert_eq!(now("nobody.example"), 403);
}
