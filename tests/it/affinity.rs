//! Sessions that stay with one endpoint, by a cookie.

use std::collections::BTreeSet;
use std::net::TcpStream;

use http::Request;
use portcullis::testing::backend::{After, Backend, refusing_address};
use portcullis::testing::certificates::Authority;
use portcullis::testing::eventually;
use portcullis::testing::message::Response;

use crate::gateway::{Gateway, Setup};
use crate::manifests::{Ingress, endpoint_slice, service};

/// A backend that says its name.
fn named(name: &str) -> Backend {
    Backend::answering(
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len()),
        After::KeepAlive,
    )
}

fn ingress(annotations: &[(&str, &str)]) -> Ingress {
    let plain = Ingress::new("a", "a.example").path("Prefix", "/", "web").tls("a-tls");
    let plain = plain.annotation("affinity", "cookie").annotation("ssl-redirect", "false");
    annotations.iter().fold(plain, |ingress, (name, value)| ingress.annotation(name, value))
}

fn setup(ingress: &Ingress) -> Setup {
    let pair = Authority::new("test").leaf(&["a.example"]).issue();
    Setup::new().secret("a-tls", &pair).ingress(ingress)
}

/// With three backends, one to three, in a file of their own.
fn start(ingress: &Ingress) -> (Gateway, [Backend; 3]) {
    let backends = ["one", "two", "three"].map(named);
    let gateway = setup(ingress).service("web", &backends.each_ref().map(Backend::address)).start();
    (gateway, backends)
}

fn ask(gateway: &Gateway, cookie: &str) -> Response {
    gateway.client().ask(format!("GET / HTTP/1.1\r\nHost: a.example\r\nCookie: {cookie}\r\n\r\n"))
}

/// The cookie that a response sets, as a client sends it, and its attributes.
fn set_cookie(response: &Response) -> Option<(String, String)> {
    let line = response.field("set-cookie")?;
    let (pair, attributes) = line.split_once("; ").unwrap();
    Some((pair.to_owned(), attributes.to_owned()))
}

/// A new session: its cookie and who serves it.
fn begin(gateway: &Gateway) -> (String, String) {
    let response = ask(gateway, "other=1");
    let (cookie, _) = set_cookie(&response).expect("a cookie");
    (cookie, response.text())
}

#[test]
fn a_session_stays_with_its_endpoint_and_is_told_once() {
    let (gateway, backends) = start(&ingress(&[]));
    let mut served = BTreeSet::new();
    for _ in 0..30 {
        let (cookie, name) = begin(&gateway);
        for _ in 0..3 {
            let again = ask(&gateway, &format!("a=b; {cookie}; c=d"));
            assert_eq!((again.text(), set_cookie(&again)), (name.clone(), None));
        }
        // The same over TLS and over HTTP/1.1 connections that go on.
        let mut client = gateway.tls_client("a.example");
        for _ in 0..2 {
            let request = format!("GET / HTTP/1.1\r\nHost: a.example\r\nCookie: {cookie}\r\n\r\n");
            assert_eq!(client.ask(request).text(), name);
        }
        served.insert(name);
    }
    assert_eq!(served.len(), 3, "{served:?}");
    // Neither address nor port is in it.
    let (cookie, _) = begin(&gateway);
    let value = cookie.strip_prefix("INGRESSCOOKIE=").unwrap();
    assert!(value.len() == 24 && value.bytes().all(|byte| byte.is_ascii_hexdigit()), "{value}");
    // Backends see the cookie, as they do those of anybody else.
    let seen =
        backends.iter().flat_map(Backend::requests).any(|request| request.field("cookie") == Some(&cookie));
    assert!(!seen);
    ask(&gateway, &cookie);
    let seen =
        backends.iter().flat_map(Backend::requests).any(|request| request.field("cookie") == Some(&cookie));
    assert!(seen);
}

/// HTTP/2 clients may send each cookie in a field of its own.
#[tokio::test]
async fn sessions_over_http_2() {
    let (gateway, _backends) = start(&ingress(&[]));
    let (cookie, name) = begin(&gateway);
    let mut client = gateway.http2("a.example").await;
    for _ in 0..5 {
        let request = Request::get("https://a.example/").header("cookie", "x=y").header("cookie", &cookie);
        let answer = client.ask(request.body(()).unwrap(), "", None).await.unwrap();
        assert_eq!((answer.text(), set_cookie(&answer)), (name.clone(), None));
    }
    let answer = client.ask(Request::get("https://a.example/").body(()).unwrap(), "", None).await.unwrap();
    assert!(set_cookie(&answer).unwrap().1.contains("Secure"), "{:?}", answer.fields);
}

#[test]
fn every_replica_reads_a_cookie_alike() {
    let (first, backends) = start(&ingress(&[]));
    let second = setup(&ingress(&[])).service("web", &backends.each_ref().map(Backend::address)).start();
    for _ in 0..10 {
        let (cookie, name) = begin(&first);
        assert_eq!(ask(&second, &cookie).text(), name);
    }
}

#[test]
fn sessions_move_when_their_endpoint_goes_and_others_stay() {
    for mode in ["balanced", "persistent"] {
        let (gateway, backends) = start(&ingress(&[("affinity-mode", mode)]));
        let sessions: Vec<_> = (0..30).map(|_| begin(&gateway)).collect();
        // One that is not ready is as good as gone.
        let [one, two, three] = backends.each_ref().map(Backend::address);
        let unready = service("web", &[one, two]) + &endpoint_slice("web", 2, three, "{ready: false}");
        gateway.write("3.yaml", &unready);
        let probe = sessions.iter().find(|(_, name)| name == "three").unwrap();
        eventually("another endpoint", || ask(&gateway, &probe.0).text() != "three");
        let mut moved = Vec::new();
        for (cookie, name) in &sessions {
            let response = ask(&gateway, cookie);
            let told = set_cookie(&response).map(|(cookie, _)| cookie);
            if name != "three" {
                assert_eq!((&response.text(), told), (name, None), "{mode}");
                continue;
            }
            assert_eq!(told.is_some(), mode == "persistent");
            moved.push((told.unwrap_or_else(|| cookie.clone()), response.text()));
        }
        for (cookie, name) in &moved {
            assert_eq!(&ask(&gateway, cookie).text(), name);
        }
        // It comes back.
        let before = sessions.iter().filter(|(_, name)| name != "three").chain(&moved);
        gateway.write("3.yaml", &service("web", &[one, two, three]));
        eventually("the third endpoint", || (0..10).any(|_| begin(&gateway).1 == "three"));
        for (cookie, name) in before {
            if mode == "persistent" {
                assert_eq!(&ask(&gateway, cookie).text(), name);
            }
        }
        if mode == "balanced" {
            assert!(sessions.iter().all(|(cookie, name)| ask(&gateway, cookie).text() == *name));
        }
    }
}

#[test]
fn where_an_endpoint_is_listed_and_dead_another_answers() {
    for (change, mode) in
        [("false", "balanced"), ("false", "persistent"), ("true", "balanced"), ("true", "persistent")]
    {
        let alive = [named("one"), named("two")];
        let dying = Backend::answering("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\ndying", After::Close);
        let addresses = [alive[0].address(), alive[1].address(), dying.address()];
        let annotations = [("affinity-mode", mode), ("session-cookie-change-on-failure", change)];
        let gateway = setup(&ingress(&annotations)).service("web", &addresses).start();
        let (cookie, _) =
            std::iter::repeat_with(|| begin(&gateway)).find(|(_, name)| name == "dying").unwrap();
        drop(dying);
        eventually("its end", || TcpStream::connect(addresses[2]).is_err());
        let response = ask(&gateway, &cookie);
        assert_eq!(response.status, 200);
        let name = response.text();
        let told = set_cookie(&response);
        assert_eq!(told.is_some(), change == "true", "{mode}");
        let cookie = told.map_or(cookie, |(cookie, _)| cookie);
        for _ in 0..5 {
            let again = ask(&gateway, &cookie);
            assert_eq!((again.text(), set_cookie(&again)), (name.clone(), None), "{mode} {change}");
        }
    }
}

/// A new session is never told of an endpoint that did not answer it.
#[test]
fn a_new_session_begins_where_it_was_answered() {
    let alive = [named("one"), named("two")];
    let addresses = [alive[0].address(), refusing_address(), alive[1].address()];
    for mode in ["balanced", "persistent"] {
        let gateway = setup(&ingress(&[("affinity-mode", mode)])).service("web", &addresses).start();
        for _ in 0..20 {
            let (cookie, name) = begin(&gateway);
            let again = ask(&gateway, &cookie);
            assert_eq!((again.text(), set_cookie(&again)), (name, None));
        }
    }
}

#[test]
fn garbage_is_no_session() {
    let (gateway, _backends) = start(&ingress(&[]));
    let long = format!("INGRESSCOOKIE={}", "f".repeat(4096));
    for cookie in [
        "INGRESSCOOKIE=",
        "INGRESSCOOKIE",
        "INGRESSCOOKIE=1700000000.123.45.678901|0123456789abcdef0123456789abcdef",
        "INGRESSCOOKIE=\"000000000000000000000000\"",
        "INGRESSCOOKIE=00000000000000000000000g",
        "ingresscookie=000000000000000000000000",
        "XINGRESSCOOKIE=000000000000000000000000",
        ";;;=;",
        &long,
    ] {
        let response = ask(&gateway, cookie);
        assert_eq!(response.status, 200, "{cookie}");
        let (told, attributes) = set_cookie(&response).unwrap_or_else(|| panic!("{cookie}"));
        assert_eq!((told.len(), attributes.as_str()), (38, "Path=/; HttpOnly"), "{cookie}");
    }
}

#[test]
fn attributes_are_those_of_the_annotations_and_change_while_it_runs() {
    let annotations = [
        ("session-cookie-name", "route"),
        ("session-cookie-max-age", "3600"),
        ("session-cookie-expires", "7200"),
        ("session-cookie-path", "/shop"),
        ("session-cookie-domain", "example.com"),
        ("session-cookie-samesite", "None"),
        ("session-cookie-secure", "true"),
        ("session-cookie-conditional-samesite-none", "true"),
    ];
    let (gateway, _backends) = start(&ingress(&annotations));
    let (cookie, attributes) = set_cookie(&ask(&gateway, "")).unwrap();
    assert!(cookie.starts_with("route="), "{cookie}");
    let rest = attributes.strip_prefix("Expires=").unwrap().split_once("; ").unwrap();
    assert!(rest.0.ends_with(" GMT"), "{attributes}");
    assert_eq!(rest.1, "Max-Age=3600; Domain=example.com; Path=/shop; Secure; HttpOnly; SameSite=None");
    let old =
        "GET / HTTP/1.1\r\nHost: a.example\r\nUser-Agent: Mozilla/5.0 Chrome/60.0.3112 Safari/537.36\r\n\r\n";
    assert!(!gateway.client().ask(old).field("set-cookie").unwrap().contains("SameSite"));

    let plain = ingress(&[]).path("Prefix", "/app/", "web");
    gateway.write("2.yaml", &plain.yaml());
    eventually("the cookie of the new Ingress", || {
        let response = ask(&gateway, &cookie);
        response.field("set-cookie").is_some_and(|line| line.starts_with("INGRESSCOOKIE="))
    });
    assert_eq!(set_cookie(&gateway.client().get("a.example", "/app/x")).unwrap().1, "Path=/app; HttpOnly");
    let other =
        Ingress::new("b", "a.example").path("Prefix", "/other", "web").annotation("ssl-redirect", "false");
    gateway.write("other.yaml", &other.yaml());
    eventually("the path of another Ingress", || {
        set_cookie(&gateway.client().get("a.example", "/other")).is_none()
    });
    let over_tls = gateway.tls_client("a.example").get("a.example", "/");
    assert_eq!(set_cookie(&over_tls).unwrap().1, "Path=/; Secure; HttpOnly");

    let without =
        Ingress::new("a", "a.example").path("Prefix", "/", "web").annotation("ssl-redirect", "false");
    gateway.write("2.yaml", &without.yaml());
    eventually("no cookie", || set_cookie(&ask(&gateway, "")).is_none());
}
