//! Which Ingresses are ours: by class, by controller, by the annotation of old, and as each of them changes.

use super::backend::Backend;
use super::control_plane::ControlPlane;
use super::gateway::Gateway;

/// An Ingress without TLS, whose class is given by these lines of its metadata and its spec.
fn ingress(namespace: &str, host: &str, annotations: &str, class: &str) -> String {
    let name = host.split('.').next().unwrap();
    format!(
        r#"
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{ namespace: {namespace}, name: {name}, annotations: {{ {annotations} }} }}
spec:
  {class}
  rules:
  - host: {host}
    http: {{ paths: [{{ path: /, pathType: Prefix, backend: {{ service: {{ name: web, port: {{ name: http }} }} }} }}] }}
"#
    )
}

fn class(name: &str, controller: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata: {{ name: {name} }}\n\
         spec: {{ controller: {controller} }}\n"
    )
}

#[test]
fn a_class_is_ours_by_its_controller_live() {
    let Some(plane) = ControlPlane::shared() else { return };
    plane.namespace("classes");
    plane.apply(&Backend::start("classes").manifest("classes", "web"));
    plane.apply(&class("classes-ours", "portcullis.dev/ingress-controller"));
    plane.apply(&class("classes-other", "example.com/other"));
    for (host, annotations, class) in [
        ("ours.classes.example.com", "", "ingressClassName: classes-ours"),
        ("other.classes.example.com", "", "ingressClassName: classes-other"),
        ("old.classes.example.com", "kubernetes.io/ingress.class: portcullis", ""),
        ("old-other.classes.example.com", "kubernetes.io/ingress.class: nginx", ""),
        ("none.classes.example.com", "", ""),
        ("late.classes.example.com", "", "ingressClassName: classes-late"),
    ] {
        plane.apply(&ingress("classes", host, annotations, class));
    }
    let gateway = Gateway::start(&plane.kubeconfig(), &["--watch-namespace=classes"]);
    for (host, status) in
        [("ours", 200), ("other", 404), ("old", 200), ("old-other", 404), ("none", 404), ("late", 404)]
    {
        gateway.expect_http(&format!("{host}.classes.example.com"), status);
    }

    // A class that comes later, and one whose Ingress moves to it and away from it.
    plane.apply(&class("classes-late", "portcullis.dev/ingress-controller"));
    gateway.expect_http("late.classes.example.com", 200);
    plane.apply(&ingress("classes", "other.classes.example.com", "", "ingressClassName: classes-ours"));
    gateway.expect_http("other.classes.example.com", 200);
    plane.apply(&ingress("classes", "ours.classes.example.com", "", "ingressClassName: classes-other"));
    gateway.expect_http("ours.classes.example.com", 404);
    plane.kubectl(&["delete", "ingressclass", "classes-late"]);
    gateway.expect_http("late.classes.example.com", 404);
    plane.kubectl(&["-n", "classes", "delete", "ingress", "old"]);
    gateway.expect_http("old.classes.example.com", 404);
    plane.apply(&ingress(
        "classes",
        "old.classes.example.com",
        "kubernetes.io/ingress.class: portcullis",
        "",
    ));
    gateway.expect_http("old.classes.example.com", 200);
}

#[test]
fn manifests_for_ingress_nginx_are_taken_over_by_flags() {
    let Some(plane) = ControlPlane::shared() else { return };
    plane.namespace("takeover");
    plane.apply(&Backend::start("takeover").manifest("takeover", "web"));
    plane.apply(&class("takeover-nginx", "k8s.io/ingress-nginx"));
    plane.apply(&ingress("takeover", "field.takeover.example.com", "", "ingressClassName: takeover-nginx"));
    plane.apply(&ingress("takeover", "old.takeover.example.com", "kubernetes.io/ingress.class: nginx", ""));
    plane.apply(&ingress(
        "takeover",
        "mine.takeover.example.com",
        "kubernetes.io/ingress.class: portcullis",
        "",
    ));
    let flags =
        ["--watch-namespace=takeover", "--ingress-class=nginx", "--controller-class=k8s.io/ingress-nginx"];
    let gateway = Gateway::start(&plane.kubeconfig(), &flags);
    gateway.expect_http("field.takeover.example.com", 200);
    gateway.expect_http("old.takeover.example.com", 200);
    gateway.expect_http("mine.takeover.example.com", 404);
}

#[test]
fn other_namespaces_are_not_looked_at() {
    let Some(plane) = ControlPlane::shared() else { return };
    for namespace in ["scope-in", "scope-out"] {
        plane.namespace(namespace);
        plane.apply(&Backend::start("scope").manifest(namespace, "web"));
        let host = format!("{namespace}.example.com");
        plane.apply(&ingress(namespace, &host, "kubernetes.io/ingress.class: portcullis", ""));
    }
    let gateway = Gateway::start(&plane.kubeconfig(), &["--watch-namespace=scope-in"]);
    gateway.expect_http("scope-in.example.com", 200);
    gateway.expect_http("scope-out.example.com", 404);
    let everywhere = Gateway::start(&plane.kubeconfig(), &[]);
    everywhere.expect_http("scope-in.example.com", 200);
    everywhere.expect_http("scope-out.example.com", 200);
}
