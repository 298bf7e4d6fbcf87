//! Paths that are regular expressions, and what backends get in place of what a client asked for.

use portcullis::testing::backend::{After, Backend};
use portcullis::testing::certificates::Authority;
use portcullis::testing::client::Client;
use portcullis::testing::eventually;

use crate::gateway::{Gateway, Setup};
use crate::manifests::{Ingress, service};

/// What the backend was asked for, or the status.
fn ask(gateway: &Gateway, host: &str, path: &str) -> String {
    let response = gateway.client().get(host, path);
    if response.status == 200 { response.text() } else { response.status.to_string() }
}

fn named(name: &'static str) -> Backend {
    Backend::answering(
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len()),
        After::KeepAlive,
    )
}

fn shop() -> Ingress {
    Ingress::new("shop", "a.example").path("ImplementationSpecific", "/shop(/|$)(.*)", "shop")
}

#[test]
fn a_path_is_rewritten_and_the_query_stays() {
    let echo = Backend::echo();
    let gateway = Setup::new()
        .service("shop", &[echo.address()])
        .ingress(&shop().annotation("rewrite-target", "/$2"))
        .start();
    for (path, forwarded) in [
        ("/shop", "GET /"),
        ("/shop/", "GET /"),
        ("/SHOP/Cart/", "GET /Cart/"),
        ("/shop/cart?a=b&c=%2F", "GET /cart?a=b&c=%2F"),
        ("/shop?x", "GET /?x"),
        ("/shop//a/./b/../c", "GET /a/c"),
        ("/shop/a%2Fb%20c", "GET /a%2Fb%20c"),
        ("/shopping", "404"),
        ("/x/shop/cart", "404"),
        ("/", "404"),
    ] {
        assert_eq!(ask(&gateway, "a.example", path), forwarded, "{path}");
    }
    assert!(gateway.admin("/api/v1/diagnostics").contains("\"diagnostics\":[]"));
}

/// Whatever a client asks for, what comes out is a canonical path below the target.
#[test]
fn no_request_leads_out_of_the_target() {
    let echo = Backend::echo();
    let gateway = Setup::new()
        .service("img", &[echo.address()])
        .ingress(
            &Ingress::new("img", "a.example")
                .path("ImplementationSpecific", "/img(.*)", "img")
                .annotation("rewrite-target", "/static/$1"),
        )
        .ingress(
            &Ingress::new("q", "b.example")
                .path("ImplementationSpecific", "/q/(.*)", "img")
                .annotation("rewrite-target", "/static/?q=$1"),
        )
        .start();
    for path in [
        "/img../secret",
        "/img..",
        "/img./secret",
        "/img..%2fsecret",
        "/img..;/secret",
        "/img%2e%2e/secret",
        "/img%2e./secret",
        "/img..//secret",
        "/img..%5csecret",
    ] {
        assert_eq!(ask(&gateway, "a.example", path), "400", "{path}");
    }
    for path in [
        "/img/../secret",
        "/img/..%2fsecret",
        "/img%00",
        "/img\\..\\secret",
        "/img%0d%0aX-Evil:%201",
        "/img%3Fx=1%23y",
        "/img/%252e%252e/secret",
        "//img//evil.example/x",
        "/img.../secret",
        "/imgé",
    ] {
        let answer = ask(&gateway, "a.example", path);
        let Some(forwarded) = answer.strip_prefix("GET ") else {
            assert!(answer == "400" || answer == "404", "{path}: {answer}");
            continue;
        };
        assert!(forwarded.starts_with("/static/") || forwarded == "/static", "{path}: {forwarded}");
        for part in ["//", "/../", "/./", "?", "#", "\r", "\n", " "] {
            assert!(!forwarded.contains(part), "{path}: {forwarded}");
        }
    }
    assert_eq!(ask(&gateway, "b.example", "/q/a&admin=1%23?b=c"), "GET /static/?q=a%26admin%3D1%23&b=c");
    let long = format!("/q/{}", "a".repeat(5_000));
    assert_eq!(ask(&gateway, "b.example", &long), format!("GET /static/?q={}", &long[3..]));
}

#[test]
fn one_ingress_decides_for_its_host_and_patterns_change_while_running() {
    let [one, two, rest] = [named("one"), named("two"), named("rest")];
    let one_path =
        Ingress::new("one", "a.example").path("Exact", "/Orders", "one").created("2020-01-01T00:00:00Z");
    let gateway = Setup::new()
        .service("one", &[one.address()])
        .service("two", &[two.address()])
        .service("rest", &[rest.address()])
        .ingress(&one_path)
        .ingress(&Ingress::new("rest", "a.example").path("Prefix", "/", "rest"))
        .start();
    assert_eq!(ask(&gateway, "a.example", "/orders123"), "rest");
    let regex = |path: &str| Ingress::new("two", "a.example").path("ImplementationSpecific", path, "two");
    let written = |ingress: Ingress| gateway.write("two.yaml", &ingress.yaml());

    written(regex("/v[0-9]+$").annotation("use-regex", "true"));
    eventually("patterns", || ask(&gateway, "a.example", "/V12") == "two");
    assert_eq!(ask(&gateway, "a.example", "/orders123"), "one");
    assert_eq!(ask(&gateway, "a.example", "/v12/x"), "rest");
    assert_eq!(ask(&gateway, "a.example", "/x/v12"), "rest");
    assert!(gateway.admin("/api/v1/diagnostics").contains("PathsArePatterns"));

    written(regex("/(?=v1)v.*").annotation("use-regex", "true"));
    eventually("the finding", || gateway.admin("/api/v1/diagnostics").contains("InvalidPattern"));
    assert_eq!(ask(&gateway, "a.example", "/v1"), "rest");

    written(regex("/v[0-9]+").annotation("use-regex", "false"));
    eventually("paths", || ask(&gateway, "a.example", "/orders123") == "rest");
    assert_eq!(ask(&gateway, "a.example", "/Orders"), "one");
    assert!(!gateway.admin("/api/v1/diagnostics").contains("PathsArePatterns"));

    written(regex("/v[0-9]+").annotation("rewrite-target", "https://evil.example/"));
    eventually("the finding", || gateway.admin("/api/v1/diagnostics").contains("InvalidAnnotation"));
    assert_eq!(ask(&gateway, "a.example", "/v%5B0-9%5D+"), "503", "as the text that it is, and closed");
}

/// The backend's view, over both protocols and in both.
#[tokio::test]
async fn backends_are_told_another_host_and_a_prefix() {
    let echo = Backend::echo();
    let pair = Authority::new("test").leaf(&["a.example"]).issue();
    let gateway = Setup::new()
        .service("shop", &[echo.address()])
        .secret("a-tls", &pair)
        .ingress(
            &shop()
                .tls("a-tls")
                .annotation("ssl-redirect", "false")
                .annotation("rewrite-target", "/$2")
                .annotation("upstream-vhost", "$service_name.$namespace.svc.cluster.local:$service_port")
                .annotation("x-forwarded-prefix", "/shop$1"),
        )
        .start();
    let forged = "X-Forwarded-Prefix: /evil\r\nX_Forwarded_Prefix: /evil\r\nX.Forwarded.Prefix: /evil\r\n\
                  Connection: close, X-Forwarded-Prefix, Host\r\n";
    Client::plain(gateway.http).ask(format!("GET /shop/a?b HTTP/1.1\r\nHost: a.example:80\r\n{forged}\r\n"));
    gateway.tls_client("a.example").get("a.example", "/shop/a?b");
    gateway.http2("a.example").await.get("a.example", "/shop/a?b").await.unwrap();
    let requests = echo.requests();
    assert_eq!(requests.len(), 3);
    for (request, host) in requests.iter().zip(["a.example:80", "a.example", "a.example"]) {
        assert_eq!(request.target, "/a?b");
        assert_eq!(request.field("host"), Some("shop.default.svc.cluster.local:80"));
        assert_eq!(request.field("x-forwarded-host"), Some(host));
        assert_eq!(request.fields.all("x-forwarded-prefix").collect::<Vec<_>>(), ["/shop/"]);
        assert_eq!((request.field("x_forwarded_prefix"), request.field("x.forwarded.prefix")), (None, None));
    }
    eventually("the path of the client in the log", || gateway.log().contains("/shop/a?b"));
}

/// A Service without any endpoint that is reached by its own address, as long as that is asked for.
#[test]
fn a_service_is_reached_by_its_own_address() {
    let backend = named("by its address");
    let address = backend.address();
    // The address of a Service is one that this machine has.
    let own = service("web", &[])
        .replace("10.0.0.1", "127.0.0.1")
        .replace("port: 80,", &format!("port: {},", address.port()));
    let ingress = |value: &str| {
        let port = format!("{{number: {}}}", address.port());
        Ingress::new("web", "a.example")
            .path_to("Prefix", "/", "web", &port)
            .annotation("service-upstream", value)
    };
    let gateway = Setup::new().manifest(own).start();
    gateway.write("web.yaml", &ingress("true").yaml());
    eventually("an answer", || ask(&gateway, "a.example", "/") == "by its address");
    gateway.write("web.yaml", &ingress("false").yaml());
    eventually("no endpoint", || ask(&gateway, "a.example", "/") == "503");
    gateway.set("service-upstream: true");
    gateway.write("web.yaml", &ingress("perhaps").yaml());
    eventually("what the setting says", || ask(&gateway, "a.example", "/") == "by its address");
}

#[tokio::test]
async fn a_host_has_other_names() {
    let echo = Backend::echo();
    let other = named("other");
    let authority = Authority::new("test");
    let pair = authority.leaf(&["a.example", "b.example"]).issue();
    let one = |aliases: &str| {
        Ingress::new("one", "a.example")
            .path("Prefix", "/", "web")
            .tls("a-tls")
            .annotation("server-alias", aliases)
    };
    let gateway = Setup::new()
        .service("web", &[echo.address()])
        .service("other", &[other.address()])
        .secret("a-tls", &pair)
        .ingress(&Ingress::new("two", "a.example").path("Prefix", "/two", "other"))
        .start();
    gateway.write("one.yaml", &one("b.example, *.c.example").yaml());
    eventually("an alias", || gateway.client().get("b.example", "/").status == 308);
    let secured = |host: &str, path: &str| {
        let response = gateway.tls_client(host).get(host, path);
        if response.status == 200 { response.text() } else { response.status.to_string() }
    };
    assert_eq!(secured("b.example", "/x"), "GET /x");
    assert_eq!(secured("b.example", "/two"), "other");
    assert_eq!(secured("x.c.example", "/two"), "other");
    assert_eq!(secured("c.example", "/two"), "404");
    assert_eq!(gateway.http2("b.example").await.get("b.example", "/x").await.unwrap().text(), "GET /x");
    // The certificate is good for one alias and not for the other, which has the default one.
    let certificates = gateway.admin("/api/v1/certificates");
    assert!(certificates.contains("\"b.example\"") && !certificates.contains("c.example"), "{certificates}");

    // Rules of its own end it, and it comes back when they go.
    gateway.write("b.yaml", &Ingress::new("b", "b.example").path("Prefix", "/own", "other").yaml());
    eventually("rules of its own", || ask(&gateway, "b.example", "/own") == "other");
    assert_eq!(ask(&gateway, "b.example", "/x"), "404");
    assert!(gateway.admin("/api/v1/diagnostics").contains("AliasConflict"));
    std::fs::remove_file(gateway.path("manifests/b.yaml")).unwrap();
    eventually("the alias again", || secured("b.example", "/x") == "GET /x");

    gateway.write("one.yaml", &one("~^b.*$").yaml());
    eventually("the end of the alias", || secured("b.example", "/x") == "404");
    assert!(gateway.admin("/api/v1/diagnostics").contains("UnsupportedAnnotation"));
}

#[test]
fn another_backend_answers_in_place_of_one_without_endpoints() {
    let [web, sorry] = [named("web"), named("sorry")];
    let gateway = Setup::new()
        .service("sorry", &[sorry.address()])
        .ingress(
            &Ingress::new("web", "a.example")
                .path("Prefix", "/", "web")
                .annotation("default-backend", "sorry"),
        )
        .start();
    assert_eq!(ask(&gateway, "a.example", "/"), "sorry", "there is no such Service yet");
    gateway.write("web.yaml", &service("web", &[web.address()]));
    eventually("the endpoint", || ask(&gateway, "a.example", "/") == "web");
    gateway.write("web.yaml", &service("web", &[]));
    eventually("the other one", || ask(&gateway, "a.example", "/") == "sorry");
}
