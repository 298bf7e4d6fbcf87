//! Certificates of clients at the edge: authorities are in Secrets of any type, which are followed by name.

use std::process::Command;

use super::backend::Backend;
use super::certificates::{Authority, Pair};
use super::control_plane::ControlPlane;
use super::eventually;
use super::gateway::Gateway;
use super::secrets::{create_secret, ingress};

const HOST: &str = "partners.example.com";

/// The status for a client that shows `pair`.
fn status(gateway: &Gateway, pair: Option<&[String; 2]>) -> String {
    let address = gateway.https_address();
    let mut curl = Command::new("curl");
    curl.args(["-sk", "-o", "/dev/null", "-w", "%{http_code}", "--resolve"]);
    curl.arg(format!("{HOST}:{}:127.0.0.1", address.port()));
    curl.arg(format!("https://{HOST}:{}/", address.port()));
    for argument in pair.into_iter().flatten() {
        let (flag, file) = argument.split_once('=').unwrap();
        curl.args([flag, file]);
    }
    String::from_utf8(curl.output().unwrap().stdout).unwrap()
}

fn expect(gateway: &Gateway, pair: Option<&[String; 2]>, expected: &str) {
    eventually(expected, || match status(gateway, pair) {
        status if status == expected => Ok(()),
        other => Err(format!("{other} in place of {expected}")),
    });
}

#[test]
fn a_secret_of_another_type_is_followed_and_its_absence_is_told() {
    let Some(plane) = ControlPlane::shared() else { return };
    plane.namespace("partners");
    let (server, one, two) = (Authority::new(), Authority::new(), Authority::new());
    plane.apply(&Backend::start("partners").manifest("partners", "web"));
    create_secret(plane, "partners", "tls", &server.issue(HOST));
    let asking = ingress("partners", "web", HOST, "tls").replace(
        "name: web }\nspec",
        "name: web, annotations: { nginx.ingress.kubernetes.io/auth-tls-secret: partners/ca } }\nspec",
    );
    plane.apply(&asking);
    let gateway = Gateway::start(&plane.kubeconfig(), &["--watch-namespace=partners"]);
    let files = |name: &str, pair: &Pair| pair.write(plane.path(), name);
    let (first, second) = (files("first", &one.issue("first")), files("second", &two.issue("second")));
    expect(&gateway, Some(&first), "403");
    assert_eq!(gateway.reasons("partners", "web"), ["SecretNotFound"]);
    eventually("an Event", || {
        let events = plane.kubectl(&["-n", "partners", "get", "events", "-o", "jsonpath={.items[*].reason}"]);
        if events.contains("SecretNotFound") { Ok(()) } else { Err(events) }
    });

    let secret = |authority: &Authority| {
        let file = plane.path().join("partners-ca.crt");
        std::fs::write(&file, authority.pem()).unwrap();
        let file = format!("--from-file=ca.crt={}", file.display());
        let dry =
            ["-n", "partners", "create", "secret", "generic", "ca", &file, "--dry-run=client", "-o", "yaml"];
        plane.apply(&plane.kubectl(&dry));
    };
    secret(&one);
    expect(&gateway, Some(&first), "200");
    assert_eq!((status(&gateway, Some(&second)), status(&gateway, None)), ("400".into(), "400".into()));
    assert_eq!(gateway.reasons("partners", "web"), [] as [&str; 0]);
    secret(&two);
    expect(&gateway, Some(&second), "200");
    assert_eq!(status(&gateway, Some(&first)), "400");
    plane.kubectl(&["-n", "partners", "delete", "secret", "ca"]);
    expect(&gateway, Some(&second), "403");
}
