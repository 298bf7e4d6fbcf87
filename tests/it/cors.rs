//! What pages of other origins may do: `enable-cors` and `cors-*`.

use http::Request;
use portcullis::testing::backend::{After, Backend};
use portcullis::testing::certificates::Authority;
use portcullis::testing::eventually;
use portcullis::testing::message::Response;

use crate::gateway::{Gateway, Setup};
use crate::manifests::Ingress;

fn ingress(annotations: &[(&str, &str)]) -> Ingress {
    let ingress = Ingress::new("a", "a.example").path("Prefix", "/", "web").annotation("enable-cors", "true");
    annotations.iter().fold(ingress, |ingress, (name, value)| ingress.annotation(name, value))
}

fn gateway(backend: &Backend, annotations: &[(&str, &str)]) -> Gateway {
    Setup::new().service("web", &[backend.address()]).ingress(&ingress(annotations)).start()
}

fn preflight(gateway: &Gateway, origin: &str) -> Response {
    gateway.client().ask(format!(
        "OPTIONS /x HTTP/1.1\r\nHost: a.example\r\nOrigin: {origin}\r\nAccess-Control-Request-Method: PUT\r\n\
         Access-Control-Request-Headers: x-custom\r\n\r\n"
    ))
}

fn get(gateway: &Gateway, fields: &str) -> Response {
    gateway.client().ask(format!("GET / HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n"))
}

/// Every field of the response about other origins, without `access-control-`.
fn said(response: &Response) -> Vec<String> {
    let names =
        ["allow-origin", "allow-credentials", "allow-methods", "allow-headers", "expose-headers", "max-age"];
    let all = |name: &str| {
        let field = format!("access-control-{name}");
        response.fields.all(&field).map(|value| format!("{name}: {value}")).collect::<Vec<_>>()
    };
    names.into_iter().flat_map(all).collect()
}

const STATED: [(&str, &str); 6] = [
    ("cors-allow-origin", "https://shop.example, https://*.shop.example:8443"),
    ("cors-allow-methods", "GET, PUT"),
    ("cors-allow-headers", "X-Custom"),
    ("cors-expose-headers", "X-Count"),
    ("cors-allow-credentials", "false"),
    ("cors-max-age", "600"),
];

#[test]
fn the_gateway_answers_preflights() {
    let backend = Backend::echo();
    let gateway = gateway(&backend, &STATED);
    for origin in ["https://shop.example", "https://x.shop.example:8443"] {
        let response = preflight(&gateway, origin);
        assert_eq!((response.status, response.field("content-length")), (204, None));
        let expected = ["allow-methods: GET, PUT", "allow-headers: X-Custom", "max-age: 600"];
        assert_eq!(said(&response), [&[&*format!("allow-origin: {origin}")][..], &expected].concat());
        assert_eq!(response.field("vary"), Some("Origin"));
    }
    for origin in
        ["https://evil.example", "http://shop.example", "https://x.y.shop.example:8443", "null", "*", ""]
    {
        let response = preflight(&gateway, origin);
        assert_eq!((response.status, response.field("vary")), (204, Some("Origin")), "{origin}");
        assert_eq!(said(&response), [""; 0], "{origin}");
    }
    assert_eq!(backend.connections(), 0);
    // These ask about the resource, not about what a page may do.
    for fields in ["", "Origin: https://shop.example\r\n", "Access-Control-Request-Method: PUT\r\n"] {
        let request = format!("OPTIONS / HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n");
        assert_eq!(gateway.client().ask(request).status, 200);
    }
    assert_eq!(backend.requests().len(), 3);
}

#[test]
fn without_further_annotations_every_origin_may_ask() {
    let backend = Backend::echo();
    let gateway = gateway(&backend, &[]);
    let expected = [
        "allow-origin: *",
        "allow-credentials: true",
        "allow-methods: GET, PUT, POST, DELETE, PATCH, OPTIONS",
        "allow-headers: DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,Cache-Control,Content-Type,Range,\
         Authorization",
        "max-age: 1728000",
    ];
    let response = preflight(&gateway, "https://anybody.example");
    assert_eq!((said(&response), response.field("vary")), (expected.map(String::from).into(), None));
    // Whether or not a page asks: a cache may keep the answer for both.
    for fields in ["", "Origin: https://anybody.example\r\n"] {
        assert_eq!(said(&get(&gateway, fields)), expected[..2]);
    }
}

#[test]
fn what_the_backend_says_about_other_origins_goes() {
    let backend = Backend::answering(
        "HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\nAccess-Control-Allow-Origin: https://shop.example\r\n\
         Access-Control-Allow-Credentials: true\r\nAccess-Control-Expose-Headers: X-Secret\r\nVary: Accept\r\n\
         Access-Control-Max-Age: 5\r\nContent-Length: 0\r\n\r\n",
        After::KeepAlive,
    );
    let gateway = gateway(&backend, &STATED);
    let response = get(&gateway, "Origin: https://shop.example\r\n");
    assert_eq!(said(&response), ["allow-origin: https://shop.example", "expose-headers: X-Count"]);
    assert_eq!(response.fields.all("vary").collect::<Vec<_>>(), ["Accept", "Origin"]);
    for fields in ["Origin: https://evil.example\r\n", "Origin: https://shop.example.evil.example\r\n", ""] {
        let response = get(&gateway, fields);
        assert_eq!(said(&response), [""; 0], "{fields}");
        assert_eq!(response.fields.all("vary").collect::<Vec<_>>(), ["Accept", "Origin"]);
    }
    // Without the annotation it is the backend's to say.
    gateway.write("2.yaml", &Ingress::new("a", "a.example").path("Prefix", "/", "web").yaml());
    eventually("CORS is off", || said(&get(&gateway, "Origin: https://evil.example\r\n")).len() == 5);
}

#[tokio::test]
async fn pages_can_read_refusals_and_redirects_too() {
    let backend = Backend::echo();
    let pair = Authority::new("test").leaf(&["a.example"]).issue();
    let ingress =
        ingress(&[("cors-allow-origin", "https://shop.example"), ("denylist-source-range", "127.0.0.0/8")]);
    let setup = Setup::new().service("web", &[backend.address()]).secret("tls", &pair);
    let gateway = setup.ingress(&ingress.tls("tls")).start();
    let expected = ["allow-origin: https://shop.example", "allow-credentials: true"];
    // Browsers follow no redirect of a preflight.
    assert_eq!(preflight(&gateway, "https://shop.example").status, 204);
    let redirect = get(&gateway, "Origin: https://shop.example\r\n");
    assert_eq!((redirect.status, said(&redirect)), (308, expected.map(String::from).into()));
    let mut http2 = gateway.http2("a.example").await;
    let request = |method: &str| {
        Request::builder()
            .method(method)
            .uri("https://a.example/")
            .header("origin", "https://shop.example")
            .header("access-control-request-method", "PUT")
            .body(())
            .unwrap()
    };
    let refused = http2.ask(request("GET"), "", None).await.unwrap();
    assert_eq!((refused.status, said(&refused)), (403, expected.map(String::from).into()));
    let response = http2.ask(request("OPTIONS"), "", None).await.unwrap();
    assert_eq!((response.status, said(&response).len()), (204, 5));
    assert_eq!(backend.connections(), 0);
}

#[test]
fn rules_that_cannot_be_read_let_no_other_origin_in() {
    let backend = Backend::echo();
    for (name, value) in [
        ("cors-allow-origin", "shop.example"),
        ("cors-allow-origin", "https://shop.example, https://(.*)"),
        ("cors-allow-origin", ""),
        ("cors-allow-methods", "GET; PUT"),
        ("cors-allow-headers", "X-Custom,"),
        ("cors-allow-credentials", "no"),
    ] {
        let gateway = gateway(&backend, &[(name, value)]);
        assert_eq!(said(&preflight(&gateway, "https://shop.example")), [""; 0], "{name}: {value}");
        let response = get(&gateway, "Origin: https://shop.example\r\n");
        assert_eq!((response.status, said(&response).len()), (200, 0), "{name}: {value}");
        let findings = gateway.admin("/api/v1/diagnostics");
        assert!(findings.contains("No other origin is allowed until that is repaired."), "{findings}");
    }
}
