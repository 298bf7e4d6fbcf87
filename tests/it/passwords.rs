//! Passwords: `auth-type`, `auth-secret` and what goes with them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use portcullis::testing::backend::Backend;
use portcullis::testing::certificates::Authority;
use portcullis::testing::eventually;
use portcullis::testing::message::Response;

use crate::gateway::{Gateway, Setup};
use crate::manifests::Ingress;

/// `secret`, as `htpasswd` writes it.
const APR1: &str = "$apr1$saltsalt$LrttParrLPdxvgutaSXWJ0";
const BCRYPT: &str = "$2b$04$cFyqjHIrJAPDXLLGno7jA.s29HiZvMJho5lqNtoI//nIeCtbsjzQy";
const SHA: &str = "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=";

fn ingress(name: &str, annotations: &[(&str, &str)]) -> Ingress {
    let ingress = Ingress::new(name, &format!("{name}.example")).path("Prefix", "/", "web");
    annotations.iter().fold(ingress, |ingress, (name, value)| ingress.annotation(name, value))
}

fn secret(name: &str, entries: &[(&str, &str)]) -> String {
    let mut yaml = format!(
        "kind: Secret\napiVersion: v1\nmetadata: {{name: {name}, namespace: default}}\nstringData:\n"
    );
    for (key, value) in entries {
        yaml += &format!("  {key}: \"{}\"\n", value.replace('\n', "\\n"));
    }
    yaml
}

fn basic(pair: &str) -> String {
    format!("Authorization: Basic {}\r\n", STANDARD.encode(pair))
}

fn ask(gateway: &Gateway, host: &str, fields: &str) -> Response {
    gateway.client().ask(format!("GET / HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n"))
}

fn status(gateway: &Gateway, host: &str, pair: &str) -> u16 {
    ask(gateway, host, &basic(pair)).status
}

#[test]
fn a_route_is_for_those_with_a_password() {
    let backend = Backend::echo();
    let file = format!("ann:{APR1}\nben:{BCRYPT}\n# a remark\ncid:{SHA}\nold:plain\n");
    let setup = Setup::new()
        .service("web", &[backend.address()])
        .manifest(secret("file", &[("auth", &file)]))
        .manifest(secret("map", &[("ann", APR1), ("ben", BCRYPT), ("cid", SHA)]))
        .ingress(&ingress(
            "a",
            &[("auth-type", "basic"), ("auth-secret", "file"), ("auth-realm", r#"The \"room\""#)],
        ))
        .ingress(&ingress(
            "b",
            &[("auth-type", "basic"), ("auth-secret", "default/map"), ("auth-secret-type", "auth-map")],
        ))
        .ingress(&ingress("open", &[]));
    let gateway = setup.start();
    for host in ["a.example", "b.example"] {
        // Twice: what was right is known by then.
        for _ in 0..2 {
            for (pair, expected) in [
                ("ann:secret", 200),
                ("ben:secret", 200),
                ("cid:secret", 200),
                ("ann:secre", 401),
                ("ben:", 401),
                ("cid:Secret", 401),
                ("dan:secret", 401),
                ("old:plain", 401),
                (":secret", 401),
            ] {
                assert_eq!(status(&gateway, host, pair), expected, "{host} {pair}");
            }
        }
    }
    for fields in [
        "",
        "Authorization: Basic\r\n",
        "Authorization: Basic !\r\n",
        "Authorization: Bearer YW5uOnNlY3JldA==\r\n",
        &basic("ann:secret").repeat(2),
    ] {
        let response = ask(&gateway, "a.example", fields);
        assert_eq!(response.status, 401, "{fields}");
        assert_eq!(response.field("www-authenticate"), Some(r#"Basic realm="The \"room\"""#));
    }
    assert_eq!(ask(&gateway, "open.example", "").status, 200);
    // The backend is told who it is.
    let requests = backend.requests();
    let seen: Vec<_> = requests.iter().filter_map(|request| request.field("authorization")).collect();
    assert_eq!((seen.len(), seen[0]), (12, &*format!("Basic {}", STANDARD.encode("ann:secret"))));
    let grpc =
        "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Type: application/grpc\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(gateway.client().ask(grpc).field("grpc-status"), Some("16"));
    let findings = gateway.admin("/api/v1/diagnostics");
    assert!(findings.contains("1 entries of Secret") && findings.contains("UnusableUsers"), "{findings}");
    eventually("the log", || gateway.log().contains("reason=unauthorized"));
    let log = gateway.log();
    for hidden in ["YW5uOnNlY3JldA", "$apr1$", "$2b$"] {
        assert!(!log.contains(hidden) && !findings.contains(hidden), "{hidden}");
    }
}

#[tokio::test]
async fn over_http2_and_for_upgrades() {
    let backend = Backend::echo();
    let pair = Authority::new("test").leaf(&["a.example"]).issue();
    let gateway = Setup::new()
        .service("web", &[backend.address()])
        .secret("tls", &pair)
        .manifest(secret("users", &[("auth", &format!("ann:{BCRYPT}"))]))
        .ingress(&ingress("a", &[("auth-type", "basic"), ("auth-secret", "users")]).tls("tls"))
        .start();
    assert_eq!(status(&gateway, "a.example", "ann:secret"), 308);
    let mut http2 = gateway.http2("a.example").await;
    let request = |pair: &str| {
        let credentials = format!("Basic {}", STANDARD.encode(pair));
        Request::post("https://a.example/").header("authorization", credentials).body(()).unwrap()
    };
    let refused = http2.ask(request("ann:wrong"), "a body", None).await.unwrap();
    assert_eq!((refused.status, refused.field("www-authenticate")), (401, Some("Basic realm=\"\"")));
    assert_eq!(http2.ask(request("ann:secret"), "a body", None).await.unwrap().status, 200);
    assert_eq!(backend.only_request().body, b"a body");
    let upgrade = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    assert_eq!(gateway.tls_client("a.example").ask(upgrade).status, 401);
}

#[test]
fn one_of_network_and_password_can_be_enough() {
    let backend = Backend::echo();
    let both = |name: &str, more: &[(&str, &str)]| {
        let auth = [("auth-secret", "users"), ("whitelist-source-range", "192.0.2.0/24")];
        ingress(name, &[&auth, more].concat())
    };
    let gateway = Setup::new()
        .setting("use-forwarded-headers: true")
        .setting("proxy-real-ip-cidr: [127.0.0.0/8]")
        .service("web", &[backend.address()])
        .manifest(secret("users", &[("auth", &format!("ann:{SHA}"))]))
        .ingress(&both("all", &[("satisfy", "all")]))
        .ingress(&both("any", &[("satisfy", "any")]))
        .ingress(&ingress("alone", &[("auth-secret", "users"), ("satisfy", "any")]))
        .start();
    let (inside, outside) = ("X-Forwarded-For: 192.0.2.1\r\n", "X-Forwarded-For: 192.0.3.1\r\n");
    let password = basic("ann:secret");
    for (host, from, with, without) in [
        ("all.example", inside, 200, 401),
        ("all.example", outside, 403, 403),
        ("any.example", inside, 200, 200),
        ("any.example", outside, 200, 401),
        ("alone.example", outside, 200, 401),
    ] {
        assert_eq!(ask(&gateway, host, &format!("{from}{password}")).status, with, "{host} {from}");
        assert_eq!(ask(&gateway, host, from).status, without, "{host} {from}");
    }
}

#[test]
fn without_users_nobody_gets_in_and_a_secret_counts_when_it_comes() {
    let backend = Backend::echo();
    let auth = |secret: &'static str| vec![("auth-type", "basic"), ("auth-secret", secret)];
    let gateway = Setup::new()
        .service("web", &[backend.address()])
        .manifest(secret("empty", &[("auth", "# nobody\n")]))
        .manifest(secret("other", &[("password", "x")]))
        .manifest(secret("plain", &[("auth", "ann:secret")]))
        .ingress(&ingress("missing", &auth("missing")))
        .ingress(&ingress("empty", &auth("empty")))
        .ingress(&ingress("other", &auth("other")))
        .ingress(&ingress("plain", &auth("plain")))
        .ingress(&ingress("elsewhere", &auth("kube-system/users")))
        .ingress(&ingress("malformed", &auth("../users")))
        .ingress(&ingress("none", &[("auth-type", "basic")]))
        .ingress(&ingress("digest", &[("auth-type", "digest"), ("auth-secret", "plain")]))
        .start();
    let hosts = ["missing", "empty", "other", "plain", "elsewhere", "malformed", "none", "digest"];
    for host in hosts {
        assert_eq!(status(&gateway, &format!("{host}.example"), "ann:secret"), 503, "{host}");
    }
    let findings = gateway.admin("/api/v1/diagnostics");
    let findings = findings.replace(": ", ":");
    for host in hosts {
        assert!(findings.contains(&format!(r#""name":"{host}""#)), "{host}: {findings}");
    }
    assert!(findings.contains("Secret default/missing does not exist."), "{findings}");

    // Every step without a restart, over a connection that stays.
    let mut client = gateway.client();
    let mut now = |pair: &str| {
        client.ask(format!("GET / HTTP/1.1\r\nHost: missing.example\r\n{}\r\n", basic(pair))).status
    };
    gateway.write("users.yaml", &secret("missing", &[("auth", &format!("ann:{BCRYPT}"))]));
    eventually("the Secret is there", || now("ann:secret") == 200);
    assert_eq!(now("ann:other"), 401);
    gateway.write("users.yaml", &secret("missing", &[("auth", &format!("ben:{APR1}"))]));
    eventually("the Secret is another", || now("ben:secret") == 200);
    assert_eq!(now("ann:secret"), 401);
    gateway.write("users.yaml", &secret("another", &[("auth", "")]));
    eventually("the Secret is gone", || now("ben:secret") == 503);
}
