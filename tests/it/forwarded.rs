//! What a backend is told about the client, and what a client may not tell it.

use portcullis::testing::backend::Backend;
use portcullis::testing::certificates::Authority;
use portcullis::testing::client::Client;
use portcullis::testing::message::Request;

use crate::gateway::{Gateway, Setup};
use crate::manifests::Ingress;

/// What the backend sees of a request with these fields.
fn seen(settings: &[&str], fields: &str) -> Request {
    let backend = Backend::echo();
    let gateway = Gateway::with(&backend, settings);
    let request = format!("GET / HTTP/1.1\r\nHost: a.example:8080\r\n{fields}Connection: close\r\n\r\n");
    assert_eq!(gateway.client().ask(request).status, 200);
    backend.only_request()
}

const FORGED: &str = "X-Forwarded-For: 10.0.0.1, 10.0.0.2\r\nX-Forwarded-For: 10.0.0.3\r\nX-Forwarded-Proto: https\r\n\
                      X-Forwarded-Host: evil.example\r\nX-Forwarded-Port: 1\r\nX-Forwarded-Scheme: https\r\n\
                      X-Scheme: https\r\nX-Real-IP: 10.0.0.1\r\nX-Request-ID: mine\r\nForwarded: for=10.0.0.1\r\n\
                      Proxy: http://evil.example\r\n";

#[test]
fn it_is_built_from_the_connection() {
    let request = seen(&[], FORGED);
    let port = request.field("x-forwarded-port").unwrap();
    assert!(port.parse::<u16>().is_ok_and(|port| port > 1024), "{port}");
    for (name, value) in [
        ("host", Some("a.example:8080")),
        ("x-forwarded-for", Some("127.0.0.1")),
        ("x-real-ip", Some("127.0.0.1")),
        ("x-forwarded-proto", Some("http")),
        ("x-forwarded-scheme", Some("http")),
        ("x-scheme", Some("http")),
        ("x-forwarded-host", Some("a.example:8080")),
        ("x-original-forwarded-for", Some("10.0.0.1, 10.0.0.2, 10.0.0.3")),
        ("x-original-forwarded-host", Some("evil.example")),
        ("forwarded", None),
        ("proxy", None),
        ("connection", None),
    ] {
        assert_eq!(request.field(name), value, "{name}");
        assert!(request.fields.all(name).count() <= 1, "{name}");
    }
    let id = request.field("x-request-id").unwrap();
    assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
}

#[test]
fn trusted_peers_are_believed() {
    let trust = ["use-forwarded-headers: true", "proxy-real-ip-cidr: [127.0.0.0/8, 10.0.0.0/8]"];
    let request = seen(&trust, &FORGED.replace("10.0.0.1, ", "203.0.113.9, "));
    for (name, value) in [
        ("x-forwarded-for", "203.0.113.9"),
        ("x-real-ip", "203.0.113.9"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "evil.example"),
        ("x-forwarded-port", "1"),
        ("x-request-id", "mine"),
    ] {
        assert_eq!(request.field(name), Some(value), "{name}");
    }
    // Not from just anybody.
    let request = seen(&["use-forwarded-headers: true", "proxy-real-ip-cidr: [10.0.0.0/8]"], FORGED);
    assert_eq!(request.field("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(request.field("x-forwarded-proto"), Some("http"));
}

#[test]
fn the_client_is_the_rightmost_that_nobody_vouches_for() {
    let trust = ["use-forwarded-headers: true", "proxy-real-ip-cidr: [127.0.0.0/8, 10.0.0.0/8]"];
    for (chain, client) in [
        ("X-Forwarded-For: 10.9.9.9, 203.0.113.9", "203.0.113.9"),
        ("X-Forwarded-For: 10.9.9.9, 203.0.113.9, 10.0.0.1", "203.0.113.9"),
        ("X-Forwarded-For: 1.1.1.1\r\nX-Forwarded-For: 203.0.113.9, 10.0.0.1", "203.0.113.9"),
        ("X-Forwarded-For: garbage, 203.0.113.9", "203.0.113.9"),
        ("X-Forwarded-For: 203.0.113.9, garbage", "127.0.0.1"),
        ("X-Forwarded-For: [2001:db8::1]:80", "2001:db8::1"),
        ("X-Forwarded-For: ::ffff:10.0.0.2, ::ffff:10.0.0.1", "10.0.0.2"),
        ("X-Forwarded-For:   203.0.113.9  ", "203.0.113.9"),
        ("X-Forwarded-For:", "127.0.0.1"),
    ] {
        let request = seen(&trust, &format!("{chain}\r\n"));
        assert_eq!(request.field("x-real-ip"), Some(client), "{chain}");
    }
}

#[test]
fn fields_of_the_connection_end_here() {
    let request = seen(
        &[],
        "Connection: keep-alive, X-Forwarded-For, X-Real-IP, X-Secret, Cookie, Host\r\nX-Secret: x\r\nCookie: a=b\r\n\
         Keep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\nTE: gzip\r\nAccept: */*\r\n",
    );
    for name in ["x-secret", "cookie", "keep-alive", "proxy-connection", "te", "connection", "upgrade"] {
        assert_eq!(request.field(name), None, "{name}");
    }
    // Ours were not among what the client could strike out.
    assert_eq!(request.field("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(request.field("x-real-ip"), Some("127.0.0.1"));
    assert_eq!(request.field("host"), Some("a.example:8080"));
    assert_eq!(request.field("accept"), Some("*/*"));
}

#[test]
fn other_spellings_of_our_fields_are_dropped() {
    let request = seen(
        &[],
        "X_Forwarded_For: 10.0.0.1\r\nX.Forwarded.For: 10.0.0.1\r\nX_Real_IP: 10.0.0.1\r\nx_forwarded-proto: https\r\n\
         My_Field: x\r\nMy.Field: y\r\nx-FORWARDED-for: 10.0.0.1\r\n",
    );
    for name in ["x_forwarded_for", "x.forwarded.for", "x_real_ip", "x_forwarded-proto", "my_field"] {
        assert_eq!(request.field(name), None, "{name}");
    }
    assert_eq!(request.field("my.field"), Some("y"), "a dot alone is no alias");
    let request =
        seen(&["enable-underscores-in-headers: true"], "X_Forwarded_For: 10.0.0.1\r\nMy_Field: x\r\n");
    assert_eq!((request.field("x_forwarded_for"), request.field("my_field")), (None, Some("x")));
}

/// A host with a certificate: HTTP is sent to HTTPS, unless a trusted peer says it was HTTPS already.
#[test]
fn redirects_to_https() {
    let backend = Backend::echo();
    let pair = Authority::new("test").leaf(&["a.example"]).issue();
    let setup = |settings: &[&str]| {
        let setup = Setup::new()
            .service("web", &[backend.address()])
            .secret("a-tls", &pair)
            .ingress(&Ingress::new("a", "a.example").path("Prefix", "/", "web").tls("a-tls"))
            .ingress(&Ingress::new("m", "missing.example").path("Prefix", "/", "web").tls("nowhere"))
            .ingress(&Ingress::new("p", "plain.example").path("Prefix", "/", "web"))
            .ingress(
                &Ingress::new("f", "force.example")
                    .path("Prefix", "/", "web")
                    .annotation("force-ssl-redirect", "true"),
            )
            .ingress(&Ingress::new("s", "a.example").path(
                "Exact",
                "/.well-known/acme-challenge/token",
                "web",
            ));
        settings.iter().fold(setup, |setup, line| setup.setting(line)).start()
    };
    let gateway = setup(&[]);
    let ask = |host: &str, path: &str, fields: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n");
        let response = gateway.client().ask(request);
        (response.status, response.field("location").map(str::to_owned))
    };
    let to = |location: &str| (308, Some(location.to_owned()));
    assert_eq!(ask("a.example", "/", ""), to("https://a.example"));
    assert_eq!(ask("a.example:8080", "/x?y=z", ""), to("https://a.example/x?y=z"));
    assert_eq!(ask("A.Example.", "/", ""), to("https://a.example"));
    assert_eq!(ask("force.example", "/", ""), to("https://force.example"));
    assert_eq!(ask("missing.example", "/", ""), to("https://missing.example"));
    assert_eq!(ask("plain.example", "/", ""), (200, None));
    assert_eq!(ask("a.example", "/.well-known/acme-challenge/token", ""), (200, None));
    assert_eq!(ask("a.example", "/.well-known/acme-challenge/other", "").0, 308);
    assert_eq!(ask("a.example", "/", "X-Forwarded-Proto: https\r\n").0, 308, "anyone could say so");
    // Nothing of the target can break out of the field.
    let (status, location) = ask("a.example", "/%0d%0aX-Injected:%20y", "");
    assert_eq!((status, location.as_deref()), (308, Some("https://a.example/%0D%0AX-Injected:%20y")));

    let gateway = setup(&["use-forwarded-headers: true", "proxy-real-ip-cidr: [127.0.0.0/8]"]);
    let ask = |fields: &str| {
        let response = gateway.client().ask(format!("GET /x HTTP/1.1\r\nHost: a.example:80\r\n{fields}\r\n"));
        (response.status, response.field("location").map(str::to_owned))
    };
    assert_eq!(ask("X-Forwarded-Proto: https\r\n"), (200, None), "no loop");
    assert_eq!(ask("X-Forwarded-Proto: http\r\n"), to("https://a.example/x"));
    assert_eq!(ask("X-Forwarded-Host: b.example:80, c.example:90\r\n"), to("https://b.example/x"));

    let gateway = setup(&["no-tls-redirect-locations: [/plain]", "http-redirect-code: 301"]);
    assert_eq!(gateway.client().get("a.example", "/.well-known/acme-challenge/token").status, 301);
}

/// Redirects that annotations ask for, before those to HTTPS and without a backend.
#[test]
fn redirects_elsewhere() {
    let pair = Authority::new("test").leaf(&["app.example", "www.app.example"]).issue();
    let to = |name: &str, annotation: &str, value: &str| {
        Ingress::new(name, &format!("{name}.example"))
            .path("Prefix", "/", "nowhere")
            .annotation(annotation, value)
    };
    let gateway = Setup::new()
        .secret("tls", &pair)
        .ingress(&to("old", "permanent-redirect", "https://new.example$request_uri").tls("tls"))
        .ingress(&to("away", "temporal-redirect", "/closed").annotation("temporal-redirect-code", "307"))
        .ingress(&to("near", "permanent-redirect", "/x").annotation("relative-redirects", "true"))
        .ingress(&to("app", "app-root", "/start").annotation("from-to-www-redirect", "true").tls("tls"))
        .ingress(&to("slash", "force-ssl-redirect", "true").annotation("preserve-trailing-slash", "true"))
        .start();
    let response_to = |client: &mut Client, host: &str, path: &str| {
        let response = client.get(host, path);
        (response.status, response.field("location").unwrap_or_default().to_owned())
    };
    let http = |host: &str, path: &str| response_to(&mut gateway.client(), host, path);
    let answer = |status: u16, location: &str| (status, location.to_owned());
    assert_eq!(http("old.example", "/a?b=c"), answer(301, "https://new.example/a?b=c"));
    assert_eq!(http("away.example:8080", "/a"), answer(307, "http://away.example:8080/closed"));
    assert_eq!(http("near.example", "/a"), answer(301, "/x"));
    assert_eq!(http("app.example", "/"), answer(302, "http://app.example/start"));
    assert_eq!(http("app.example", "/start").0, 308);
    assert_eq!(http("www.app.example", "/a?b"), answer(308, "http://app.example/a?b"));
    assert_eq!(http("slash.example", "/"), answer(308, "https://slash.example/"));
    // Nothing of the request can break out of the field, or lead to another host.
    assert_eq!(
        http("old.example", "//evil.example/%0d%0ax:y"),
        answer(301, "https://new.example/evil.example/%0D%0Ax:y")
    );

    let https = |host: &str, path: &str| response_to(&mut gateway.tls_client(host), host, path);
    assert_eq!(https("www.app.example", "/a"), answer(308, "https://app.example/a"));
    assert_eq!(https("app.example", "/"), answer(302, "https://app.example/start"));
    let shown = gateway.tls_client("www.app.example").wire.certificate();
    assert_eq!(&*shown, pair.parse().leaf(), "the certificate that covers both");
}
