//! What a gateway looks at: namespaces by label, classes by name or by none, and what settings name while it runs.

use std::fs;

use super::backend::Backend;
use super::certificates::Authority;
use super::control_plane::ControlPlane;
use super::eventually;
use super::gateway::Gateway;
use super::secrets::{create_secret, ingress};

fn without_tls(namespace: &str, host: &str, class: &str) -> String {
    format!(
        r#"
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{ namespace: {namespace}, name: {name} }}
spec:
  {class}
  rules:
  - host: {host}
    http: {{ paths: [{{ path: /, pathType: Prefix, backend: {{ service: {{ name: web, port: {{ name: http }} }} }} }}] }}
"#,
        name = host.split('.').next().unwrap(),
    )
}

const OURS: &str = "ingressClassName: portcullis";

#[test]
fn namespaces_are_watched_by_their_labels_live() {
    let Some(plane) = ControlPlane::shared() else { return };
    for namespace in ["selected-in", "selected-out"] {
        plane.namespace(namespace);
        plane.apply(&Backend::start("selected").manifest(namespace, "web"));
        plane.apply(&without_tls(namespace, &format!("{namespace}.example.com"), OURS));
        // Whatever is wrong in a namespace that is not selected is nobody's business here.
        let broken = format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{ namespace: {namespace}, name: broken }}\n\
             type: kubernetes.io/tls\nstringData: {{ tls.crt: certificate, tls.key: key }}\n"
        );
        plane.apply(&broken);
    }
    plane.kubectl(&["label", "namespace", "selected-in", "edge=public"]);
    let gateway = Gateway::start(&plane.kubeconfig(), &["--watch-namespace-selector=edge in (public)"]);
    gateway.expect_http("selected-in.example.com", 200);
    gateway.expect_http("selected-out.example.com", 404);
    assert!(!gateway.reasons("selected-in", "broken").is_empty());
    assert!(gateway.reasons("selected-out", "broken").is_empty());

    plane.kubectl(&["label", "namespace", "selected-out", "edge=public"]);
    gateway.expect_http("selected-out.example.com", 200);
    plane.kubectl(&["label", "namespace", "selected-in", "edge-"]);
    gateway.expect_http("selected-in.example.com", 404);
    assert!(gateway.reasons("selected-in", "broken").is_empty());
    plane.apply(&without_tls("selected-in", "late.example.com", OURS));
    plane.apply(&without_tls("selected-out", "shown.example.com", OURS));
    gateway.expect_http("shown.example.com", 200);
    gateway.expect_http("late.example.com", 404);
}

#[test]
fn a_selector_that_cannot_be_read_is_named() {
    let Some(plane) = ControlPlane::shared() else { return };
    let gateway = Gateway::start_only(&plane.kubeconfig(), &["--watch-namespace-selector=a=b=c"]);
    eventually("it does not say what is wrong", || match gateway.admin("/readyz")? {
        answer if answer.status == 503 && answer.body.contains("namespaces (found '=', expected") => Ok(()),
        answer => Err(format!("{answer:?}")),
    });
}

#[test]
fn classes_by_name_and_ingresses_without_one_are_a_choice() {
    let Some(plane) = ControlPlane::shared() else { return };
    plane.namespace("by-name");
    plane.apply(&Backend::start("by-name").manifest("by-name", "web"));
    plane.apply(
        "apiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata: { name: by-name }\n\
         spec: { controller: example.com/somebody }\n",
    );
    plane.apply(&without_tls("by-name", "named.by-name.example.com", "ingressClassName: by-name"));
    plane.apply(&without_tls("by-name", "none.by-name.example.com", ""));
    let settings = plane.path().join("by-name.yaml");
    fs::write(&settings, "ingress-class: by-name\n").unwrap();
    let file = format!("--settings={}", settings.display());
    let gateway = Gateway::start(&plane.kubeconfig(), &["--watch-namespace=by-name", &file]);
    gateway.expect_http("named.by-name.example.com", 404);
    gateway.expect_http("none.by-name.example.com", 404);

    fs::write(&settings, "ingress-class: by-name\ningress-class-by-name: true\n").unwrap();
    gateway.expect_http("named.by-name.example.com", 200);
    gateway.expect_http("none.by-name.example.com", 404);
    fs::write(&settings, "ingress-class: by-name\nwatch-ingress-without-class: true\n").unwrap();
    gateway.expect_http("none.by-name.example.com", 200);
    gateway.expect_http("named.by-name.example.com", 404);
}

#[test]
fn a_default_certificate_that_is_named_later_is_followed() {
    let Some(plane) = ControlPlane::shared() else { return };
    for namespace in ["default-web", "default-certs"] {
        plane.namespace(namespace);
    }
    let authority = Authority::new();
    let host = "default.example.com";
    let [first, second, renewed] = [(); 3].map(|()| authority.issue(host));
    plane.apply(&Backend::start("default").manifest("default-web", "web"));
    plane.apply(&ingress("default-web", "web", host, "none"));
    create_secret(plane, "default-certs", "first", &first);
    let settings = plane.path().join("default.yaml");
    fs::write(&settings, "default-ssl-certificate: default-certs/first\n").unwrap();
    let file = format!("--settings={}", settings.display());
    // Neither Secret is in the namespace that is watched.
    let gateway = Gateway::start(&plane.kubeconfig(), &["--watch-namespace=default-web", &file]);
    gateway.expect_https(&authority, host, &first.certificate);

    fs::write(&settings, "default-ssl-certificate: default-certs/second\n").unwrap();
    create_secret(plane, "default-certs", "second", &second);
    gateway.expect_https(&authority, host, &second.certificate);
    plane.kubectl(&["-n", "default-certs", "delete", "secret", "second"]);
    create_secret(plane, "default-certs", "second", &renewed);
    gateway.expect_https(&authority, host, &renewed.certificate);
}
