//! The admission webhook as the API server asks it, with the rights of `config/kubernetes/rbac.yaml`.

use super::backend::Backend;
use super::control_plane::ControlPlane;
use super::eventually;
use super::gateway::Gateway;
use super::rights::{RBAC, kubeconfig};
use super::secrets::ingress;
use portcullis::testing::ports;

/// What is shipped, but for where it is asked and what happens where it is not there: a test has neither kube-proxy
/// nor DNS, and must see when nobody answers.
fn configuration(port: u16) -> String {
    let shipped = include_str!("../../config/kubernetes/admission.yaml");
    let (_, shipped) = shipped.split_once("---\n").unwrap();
    let (start, _) = shipped.split_once("    service:").unwrap();
    let start = start.replace("failurePolicy: Ignore", "failurePolicy: Fail");
    format!("{start}    url: https://127.0.0.1:{port}/networking/v1/ingresses\n")
}

fn start(plane: &ControlPlane, port: u16) -> Gateway {
    let webhook = format!("--validating-webhook=127.0.0.1:{port}");
    Gateway::start(&kubeconfig(plane, "portcullis"), &[&webhook])
}

/// Waits until the webhook answers.
fn expect_applied(plane: &ControlPlane, manifest: &str) -> String {
    eventually("the webhook does not answer", || plane.try_apply(manifest))
}

fn plain(name: &str, host: &str) -> String {
    let tls = format!("  tls: [{{ hosts: [{host}], secretName: none }}]\n");
    ingress("admission", name, host, "none").replace(&tls, "")
}

#[test]
fn what_takes_anothers_path_is_refused_and_what_will_not_work_is_warned_of() {
    let Some(plane) = ControlPlane::start() else { return };
    plane.namespace("portcullis");
    plane.apply(RBAC);
    plane.namespace("admission");
    plane.apply(&Backend::start("admission").manifest("admission", "web"));
    let [port, other] = ports::free();
    plane.apply(&configuration(port));
    let mut gateway = start(&plane, port);
    let said = expect_applied(&plane, &plain("web", "a.example.com"));
    assert!(!said.contains("Warning"), "{said}");
    gateway.expect_http("a.example.com", 200);

    // Of two of the same second the first by name is the older.
    let conflict = plain("young", "a.example.com");
    let refused = plane.try_apply(&conflict).unwrap_err();
    assert!(
        refused.contains("admission webhook \"ingresses.portcullis.dev\" denied the request"),
        "{refused}"
    );
    assert!(refused.contains("is served by the older Ingress admission/web"), "{refused}");
    let found = plane.kubectl(&["-n", "admission", "get", "ingress", "-o", "name"]);
    assert_eq!(found.trim(), "ingress.networking.k8s.io/web", "nothing was written");

    let annotation = "name: odd, annotations: { portcullis.dev/proxy-body-size: huge }";
    let odd = plain("odd", "odd.example.com").replacen("name: odd", annotation, 1);
    let refused = plane.try_apply(&odd).unwrap_err();
    assert!(refused.contains("proxy-body-size must be"), "{refused}");

    let early = ingress("admission", "early", "early.example.com", "late");
    let said = plane.try_apply(&early).unwrap();
    assert!(said.contains("Warning: spec.tls[0].secretName: there is no Secret admission/late"), "{said}");
    let foreign = conflict.replace("ingressClassName: portcullis", "ingressClassName: other");
    plane.try_apply(&foreign).unwrap();

    // Another replica answers for the same root, also when it is alone.
    plane.apply(&configuration(other));
    let _second = start(&plane, other);
    gateway.end();
    expect_applied(&plane, &plain("second", "second.example.com"));
    let refused = plane.try_apply(&plain("third", "a.example.com")).unwrap_err();
    assert!(refused.contains("is served by the older Ingress admission/web"), "{refused}");
    let secrets = plane.kubectl(&["-n", "portcullis", "get", "secrets", "-o", "name"]);
    assert_eq!(secrets.trim(), "secret/portcullis-admission");
}
