//! Canaries: another backend for some of the requests of a route.

use http::Request;
use portcullis::testing::backend::{After, Backend};
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

fn main_ingress(annotations: &[(&str, &str)]) -> Ingress {
    let plain = Ingress::new("main", "a.example").path("Prefix", "/", "main").tls("a-tls");
    annotations
        .iter()
        .fold(plain.annotation("ssl-redirect", "false"), |it, (name, value)| it.annotation(name, value))
}

fn canary(annotations: &[(&str, &str)]) -> Ingress {
    let plain = Ingress::new("canary", "a.example").path("Prefix", "/", "new").annotation("canary", "true");
    annotations.iter().fold(plain, |it, (name, value)| it.annotation(name, value))
}

/// The Ingresses `main`, in file 2, and `canary`, in file 3; their backends say `main` and `new`, those of `new` are in
/// file 5.
fn start(main: &Ingress, canary: &Ingress) -> (Gateway, [Backend; 2]) {
    let backends = ["main", "new"].map(named);
    let pair = Authority::new("test").leaf(&["a.example"]).issue();
    let setup = Setup::new().secret("a-tls", &pair).ingress(main).ingress(canary);
    let setup = setup.service("main", &[backends[0].address()]).service("new", &[backends[1].address()]);
    (setup.start(), backends)
}

fn ask(gateway: &Gateway, fields: &str) -> Response {
    gateway.client().ask(format!("GET / HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n"))
}

/// How many of a hundred requests the canary got.
fn share(gateway: &Gateway) -> usize {
    let mut client = gateway.client();
    (0..100).filter(|_| client.get("a.example", "/").text() == "new").count()
}

#[test]
fn requests_are_split_by_header_then_cookie_then_weight() {
    let rules = [("canary-by-header", "X-Canary"), ("canary-by-cookie", "canary"), ("canary-weight", "100")];
    let (gateway, _backends) = start(&main_ingress(&[]), &canary(&rules));
    for (fields, expected) in [
        ("X-Canary: always\r\nCookie: canary=never\r\n", "new"),
        ("x-canary: never\r\nCookie: canary=always\r\n", "main"),
        ("X-Canary: perhaps\r\nCookie: canary=never\r\n", "main"),
        ("X-Canary: perhaps\r\nCookie: a=b; canary=always\r\n", "new"),
        ("Cookie: canary=perhaps\r\n", "new"),
        ("", "new"),
    ] {
        assert_eq!(ask(&gateway, fields).text(), expected, "{fields}");
    }
    assert_eq!(gateway.tls_client("a.example").get("a.example", "/").text(), "new");
}

#[tokio::test]
async fn requests_over_http_2_are_split_too() {
    let rules = [("canary-by-header", "X-Canary"), ("canary-by-cookie", "canary")];
    let (gateway, _backends) = start(&main_ingress(&[]), &canary(&rules));
    let mut client = gateway.http2("a.example").await;
    for (name, value, expected) in [
        ("x-canary", "always", "new"),
        ("x-canary", "never", "main"),
        ("cookie", "canary=always", "new"),
        ("cookie", "canary=never", "main"),
        ("x-other", "always", "main"),
    ] {
        let request = Request::get("https://a.example/").header("cookie", "x=y").header(name, value);
        let answer = client.ask(request.body(()).unwrap(), "", None).await.unwrap();
        assert_eq!(answer.text(), expected, "{name}: {value}");
    }
}

#[test]
fn values_and_patterns_of_the_header() {
    let by = ("canary-by-header", "X-Canary");
    let pattern = ("canary-by-header-pattern", "^beta-[0-9]+$");
    let (gateway, _backends) = start(&main_ingress(&[]), &canary(&[by, pattern]));
    let check = |cases: &[(&str, &str)]| {
        for (value, expected) in cases {
            assert_eq!(ask(&gateway, &format!("X-Canary: {value}\r\n")).text(), *expected, "{value}");
        }
    };
    let long = format!("beta-{}", "1".repeat(8000));
    check(&[("beta-12", "new"), ("beta-", "main"), ("always", "main"), ("\u{ff}", "main"), (&long, "new")]);
    gateway.write("3.yaml", &canary(&[by, ("canary-by-header-value", "gamma")]).yaml());
    eventually("the new rule", || ask(&gateway, "X-Canary: gamma\r\n").text() == "new");
    check(&[("beta-12", "main"), ("Gamma", "main"), ("gamma", "new")]);
}

#[test]
fn weights_change_while_it_runs_and_a_canary_without_endpoints_gets_nothing() {
    let (gateway, backends) = start(&main_ingress(&[]), &canary(&[("canary-weight", "0")]));
    assert_eq!(share(&gateway), 0);
    gateway.write("3.yaml", &canary(&[("canary-weight", "500"), ("canary-weight-total", "1000")]).yaml());
    eventually("half of the requests", || (20..80).contains(&share(&gateway)));
    gateway.write("3.yaml", &canary(&[("canary-weight", "100")]).yaml());
    eventually("all requests", || share(&gateway) == 100);
    gateway.write(
        "5.yaml",
        &(service("new", &[]) + &endpoint_slice("new", 0, backends[1].address(), "{ready: false}")),
    );
    eventually("no requests", || share(&gateway) == 0);
    gateway.write("5.yaml", &service("new", &[backends[1].address()]));
    eventually("all requests again", || share(&gateway) == 100);
    gateway.write("3.yaml", &Ingress::new("canary", "b.example").path("Prefix", "/", "new").yaml());
    eventually("no canary", || share(&gateway) == 0);
}

#[test]
fn a_canary_without_a_main_ingress_is_not_served_and_one_alone_counts() {
    let first = canary(&[("canary-weight", "0")]).created("2020-01-01T00:00:00Z");
    let second = canary(&[("canary-weight", "100")]).created("2021-01-01T00:00:00Z");
    let second = second.path("Prefix", "/only", "new");
    let (gateway, _backends) = start(&main_ingress(&[]), &first);
    let later = second.yaml().replace("name: canary", "name: later");
    gateway.write("later.yaml", &later);
    eventually("a word about it", || gateway.admin("/api/v1/diagnostics").contains("CanaryConflict"));
    assert_eq!(share(&gateway), 0);
    assert!(gateway.admin("/api/v1/diagnostics").contains("CanaryWithoutMain"));
    assert_eq!(gateway.client().get("a.example", "/only").text(), "main");
}

#[test]
fn sessions_stay_where_they_began() {
    let affinity = [("affinity", "cookie")];
    let rules = [("canary-weight", "50"), ("canary-by-header", "X-Canary")];
    let (gateway, _backends) = start(&main_ingress(&affinity), &canary(&rules));
    let begin = |fields: &str| {
        let response = ask(&gateway, fields);
        let cookie = response.field("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        (format!("Cookie: {cookie}\r\n"), response.text())
    };
    let mut seen = Vec::new();
    for _ in 0..20 {
        let (cookie, name) = begin("");
        for field in ["", "X-Canary: always\r\n", "X-Canary: never\r\n"] {
            let again = ask(&gateway, &format!("{cookie}{field}"));
            assert_eq!((again.text(), again.field("set-cookie")), (name.clone(), None));
        }
        seen.push(name);
    }
    assert!(seen.contains(&"main".into()) && seen.contains(&"new".into()), "{seen:?}");
    let (of_canary, name) = begin("X-Canary: always\r\n");
    assert_eq!(name, "new");
    // With `legacy` the rules decide each time, and the canary has no affinity of its own.
    let legacy = canary(&rules).annotation("affinity-canary-behavior", "legacy");
    gateway.write("3.yaml", &legacy.yaml());
    eventually("the rules to decide", || {
        ask(&gateway, &format!("{of_canary}X-Canary: never\r\n")).text() == "main"
    });
    let response = ask(&gateway, "X-Canary: always\r\n");
    assert_eq!((response.text(), response.field("set-cookie")), ("new".into(), None));
}

/// What protects the main Ingress protects its canary, and what its canary says changes nothing.
#[test]
fn a_canary_is_behind_what_its_main_ingress_says() {
    let redirected = Ingress::new("main", "a.example").path("Prefix", "/", "main").tls("a-tls");
    let rules = [("canary-weight", "100"), ("ssl-redirect", "false"), ("proxy-body-size", "1k")];
    let (gateway, _backends) = start(&redirected, &canary(&rules));
    assert_eq!(ask(&gateway, "").status, 308);
    let mut client = gateway.tls_client("a.example");
    assert_eq!(client.get("a.example", "/").text(), "new");
    let body = "x".repeat(2000);
    let post = format!("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 2000\r\n\r\n{body}");
    assert_eq!(client.ask(post).status, 200);
}

#[test]
fn it_is_counted_for_itself() {
    let (gateway, _backends) = start(&main_ingress(&[]), &canary(&[("canary-by-header", "X-Canary")]));
    for fields in ["", "X-Canary: always\r\n", "X-Canary: always\r\n"] {
        ask(&gateway, fields);
    }
    let count = |canary: &str, service: &str| {
        let text = gateway.admin("/metrics");
        let labels = format!("ingress=\"main\",service=\"{service}\",canary=\"{canary}\"");
        let line = text
            .lines()
            .find(|line| line.starts_with("nginx_ingress_controller_requests{") && line.contains(&labels));
        line.map(|line| line.rsplit(' ').next().unwrap().to_owned())
    };
    eventually("the counts", || count("default-new-80", "new").as_deref() == Some("2"));
    assert_eq!(count("", "main").as_deref(), Some("1"));
    let hosts = gateway.admin("/api/v1/hosts");
    assert!(hosts.contains("\"canary\":true"), "{hosts}");
}
