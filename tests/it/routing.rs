//! Which backend a request reaches: hosts, paths, defaults, and who may ask for what over which connection.

use portcullis::testing::backend::{After, Backend};
use portcullis::testing::certificates::Authority;
use portcullis::testing::client::Client;

use crate::gateway::{Gateway, Setup};
use crate::manifests::{Ingress, service};

/// Backends that say their name.
fn named(name: &'static str) -> Backend {
    Backend::answering(
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len()),
        After::KeepAlive,
    )
}

/// The name of the backend, or the status.
fn ask(gateway: &Gateway, host: &str, path: &str) -> String {
    let response = gateway.client().get(host, path);
    if response.status == 200 { response.text() } else { response.status.to_string() }
}

/// The services `one` to `four`.
fn setup(backends: &[Backend; 4]) -> Setup {
    let names = ["one", "two", "three", "four"];
    names
        .iter()
        .zip(backends)
        .fold(Setup::new(), |setup, (name, backend)| setup.service(name, &[backend.address()]))
}

fn backends() -> [Backend; 4] {
    [named("one"), named("two"), named("three"), named("four")]
}

#[test]
fn paths() {
    let backends = backends();
    let gateway = setup(&backends)
        .ingress(
            &Ingress::new("a", "a.example")
                .created("2020-01-01T00:00:00Z")
                .path("Prefix", "/foo", "one")
                .path("Exact", "/foo", "two")
                .path("Prefix", "/foo/bar", "three")
                .path("ImplementationSpecific", "/impl", "four")
                .raw_path(
                    "{pathType: Prefix, path: /resource, backend: {resource: {kind: Bucket, name: b}}}",
                ),
        )
        // The same path again, by a younger Ingress.
        .ingress(
            &Ingress::new("b", "a.example").path("Prefix", "/foo", "four").created("2021-01-01T00:00:00Z"),
        )
        .start();
    for (path, answer) in [
        ("/foo", "two"),
        ("/foo?x", "two"),
        ("/foo/", "one"),
        ("/foo/x", "one"),
        ("/foo/bar", "three"),
        ("/foo/bar/x", "three"),
        ("/foo/barx", "one"),
        ("/foobar", "404"),
        ("/FOO", "404"),
        ("/impl", "four"),
        ("/impl/x", "four"),
        ("/implx", "404"),
        ("/resource", "404"),
        ("/", "404"),
    ] {
        assert_eq!(ask(&gateway, "a.example", path), answer, "{path}");
    }
}

#[test]
fn one_form_of_a_path_is_matched_and_forwarded() {
    let echo = Backend::echo();
    let admin = named("admin");
    let gateway = Setup::new()
        .service("web", &[echo.address()])
        .service("admin", &[admin.address()])
        .ingress(&Ingress::new("a", "a.example").path("Prefix", "/", "web").path("Prefix", "/admin", "admin"))
        .start();
    for path in [
        "/%2e%2e/admin",
        "//admin",
        "/./admin",
        "/%61dmin",
        "/x/../admin",
        "/admin/.",
        "/x/%2e%2e/admin",
        "/admin//x",
    ] {
        let answer = ask(&gateway, "a.example", path);
        assert!(answer == "admin" || answer == "400", "{path}: {answer}");
    }
    // An encoded slash never becomes one, and what was encoded twice is decoded at most once.
    for path in [
        "/a/..%2fadmin",
        "/%252e%252e/admin",
        "/x%2fadmin",
        "/a\\..\\admin",
        "/admin%00",
        "/#/../admin",
        "/admin;x=1",
    ] {
        let answer = ask(&gateway, "a.example", path);
        if answer == "400" || answer == "admin" {
            continue;
        }
        let forwarded = answer.strip_prefix("GET ").unwrap_or_else(|| panic!("{path}: {answer}"));
        assert!(
            !forwarded.to_lowercase().starts_with("/admin/") && forwarded != "/admin",
            "{path}: {forwarded}"
        );
        assert!(!forwarded.contains("/../") && !forwarded.contains("//"), "{path}: {forwarded}");
    }
    assert_eq!(ask(&gateway, "a.example", "/a%2Fb?q=%2e%2e//x"), "GET /a%2Fb?q=%2e%2e//x");
}

#[test]
fn hosts() {
    let backends = backends();
    let gateway = setup(&backends)
        .ingress(&Ingress::new("exact", "x.a.example").path("Prefix", "/only", "one"))
        .ingress(&Ingress::new("wild", "*.a.example").path("Prefix", "/", "two"))
        .ingress(&Ingress::hostless("any").path("Prefix", "/any", "three"))
        .start();
    for (host, path, answer) in [
        ("x.a.example", "/only", "one"),
        ("X.A.EXAMPLE", "/only", "one"),
        ("x.a.example.", "/only", "one"),
        ("x.a.example:443", "/only", "one"),
        ("x.a.example:8443", "/only", "one"),
        ("x.a.example.:443", "/only", "one"),
        ("x.a.example..", "/only", "400"),
        // The exact host is the whole answer, even where it has no such path.
        ("x.a.example", "/other", "404"),
        ("y.a.example", "/other", "two"),
        ("y_1.a.example", "/", "two"),
        ("a.example", "/", "404"),
        ("z.y.a.example", "/", "404"),
        ("unknown.example", "/any", "three"),
        ("unknown.example", "/", "404"),
        ("127.0.0.1", "/any", "three"),
        ("[::1]:80", "/any", "three"),
        ("x.a.example", "/any", "404"),
    ] {
        assert_eq!(ask(&gateway, host, path), answer, "{host}{path}");
    }
}

#[test]
fn default_backends() {
    let backends = backends();
    let gateway = setup(&backends)
        .ingress(&Ingress::new("a", "a.example").path("Prefix", "/x", "one").default_backend("two"))
        .ingress(&Ingress::hostless("everything").default_backend("three"))
        .start();
    for (host, path, answer) in [
        ("a.example", "/x", "one"),
        ("a.example", "/other", "two"),
        ("unknown.example", "/", "three"),
        ("unknown.example", "/x/y", "three"),
    ] {
        assert_eq!(ask(&gateway, host, path), answer, "{host}{path}");
    }
}

#[test]
fn ports_by_name_and_services_without_endpoints() {
    let backends = backends();
    let gateway = setup(&backends)
        .manifest(service("empty", &[]))
        .ingress(
            &Ingress::new("a", "a.example")
                .path_to("Prefix", "/name", "one", "{name: http}")
                .path_to("Prefix", "/unknown", "one", "{name: nope}")
                .path("Prefix", "/empty", "empty")
                .path("Prefix", "/missing", "missing"),
        )
        .start();
    for (path, answer) in [("/name", "one"), ("/unknown", "503"), ("/empty", "503"), ("/missing", "503")] {
        assert_eq!(ask(&gateway, "a.example", path), answer, "{path}");
    }
    assert!(gateway.client().get("a.example", "/empty").text().contains("no_endpoint"));
}

/// A request may ask for hosts that the certificate of its connection is good for, and no others (RFC 9110,
/// section 15.5.20).
#[test]
fn misdirected_requests() {
    let backends = backends();
    let authority = Authority::new("test");
    let start = |settings: &[&str]| {
        let setup = setup(&backends)
            .secret("a", &authority.leaf(&["a.example"]).issue())
            .secret("b", &authority.leaf(&["b.example"]).issue())
            .secret("w", &authority.leaf(&["*.w.example"]).issue())
            .ingress(&Ingress::new("a", "a.example").path("Prefix", "/", "one").tls("a"))
            .ingress(&Ingress::new("b", "b.example").path("Prefix", "/", "two").tls("b"))
            .ingress(&Ingress::new("w1", "x.w.example").path("Prefix", "/", "three").tls("w"))
            .ingress(&Ingress::new("w2", "y.w.example").path("Prefix", "/", "four").tls("w"));
        settings.iter().fold(setup, |setup, line| setup.setting(line)).start()
    };
    let ask = |gateway: &Gateway, sni: Option<&str>, host: &str| {
        let response = Client::tls(gateway.https, sni).get(host, "/");
        if response.status == 200 { response.text() } else { response.status.to_string() }
    };
    let gateway = start(&[]);
    for (sni, host, answer) in [
        (Some("a.example"), "a.example", "one"),
        (Some("a.example"), "A.EXAMPLE.:443", "one"),
        (Some("A.example"), "a.example", "one"),
        (Some("a.example"), "b.example", "421"),
        (Some("a.example"), "unknown.example", "421"),
        (Some("a.example"), "127.0.0.1", "421"),
        (Some("x.w.example"), "x.w.example", "three"),
        (Some("x.w.example"), "y.w.example", "four"),
        (Some("x.w.example"), "w.example", "421"),
        (Some("x.w.example"), "z.y.w.example", "421"),
        (Some("x.w.example"), "a.example", "421"),
        (None, "a.example", "one"),
        (None, "b.example", "two"),
        (None, "unknown.example", "404"),
        (Some("unknown.example"), "unknown.example", "404"),
        (Some("unknown.example"), "a.example", "421"),
    ] {
        assert_eq!(ask(&gateway, sni, host), answer, "{sni:?} {host}");
    }
    let gateway = start(&["default-certificate-any-host: false"]);
    assert_eq!(ask(&gateway, None, "a.example"), "421");
    let gateway = start(&["ssl-reject-handshake: true"]);
    assert!(Client::try_tls(gateway.https, None, &[]).is_err());
    assert!(Client::try_tls(gateway.https, Some("unknown.example"), &[]).is_err());
    assert_eq!(ask(&gateway, Some("b.example"), "b.example"), "two");
}

#[test]
fn protocols_that_clients_offer() {
    let backends = backends();
    let authority = Authority::new("test");
    let gateway = setup(&backends)
        .secret("a", &authority.leaf(&["a.example"]).issue())
        .ingress(&Ingress::new("a", "a.example").path("Prefix", "/", "one").tls("a"))
        .start();
    let agreed =
        |offered: &[&str]| Client::try_tls(gateway.https, Some("a.example"), offered).map(|c| c.wire.alpn());
    assert_eq!(agreed(&[]).unwrap(), None);
    assert_eq!(agreed(&["http/1.1"]).unwrap().as_deref(), Some("http/1.1"));
    assert_eq!(agreed(&["http/1.1", "h2"]).unwrap().as_deref(), Some("h2"));
    assert!(agreed(&["foo"]).is_err());
    // The preface of a protocol that was not agreed on.
    let mut client = Client::tls(gateway.https, Some("a.example"));
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert!(matches!(client.response().status, 400 | 505));
    // Plain HTTP where TLS is spoken.
    let mut client = Client::plain(gateway.https);
    client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    client.wire.take_all();
}
