//! Certificates from Secrets, made and changed with kubectl as people do.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::backend::Backend;
use super::certificates::{Authority, Pair};
use super::control_plane::ControlPlane;
use super::gateway::{Answer, Gateway};

/// An Ingress of our class for one host, with the Secret of its certificate.
pub fn ingress(namespace: &str, name: &str, host: &str, secret: &str) -> String {
    format!(
        r#"
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{ namespace: {namespace}, name: {name} }}
spec:
  ingressClassName: portcullis
  tls: [{{ hosts: [{host}], secretName: {secret} }}]
  rules:
  - host: {host}
    http: {{ paths: [{{ path: /, pathType: Prefix, backend: {{ service: {{ name: web, port: {{ number: 80 }} }} }} }}] }}
"#
    )
}

pub fn create_secret(plane: &ControlPlane, namespace: &str, name: &str, pair: &Pair) {
    let files = pair.write(plane.path(), &format!("{namespace}-{name}"));
    plane.kubectl(&["-n", namespace, "create", "secret", "tls", name, &files[0], &files[1]]);
}

/// As in the documentation of every certificate tool: `kubectl create --dry-run=client -o yaml | kubectl apply`.
pub fn rotate_secret(plane: &ControlPlane, namespace: &str, name: &str, pair: &Pair) {
    let files = pair.write(plane.path(), &format!("{namespace}-{name}"));
    let dry = ["--dry-run=client", "-o", "yaml"];
    let create = ["-n", namespace, "create", "secret", "tls", name, &files[0], &files[1]];
    plane.apply(&plane.kubectl(&[&create[..], &dry].concat()));
}

#[test]
fn objects_may_come_in_any_order() {
    let Some(plane) = ControlPlane::shared() else { return };
    plane.namespace("orders");
    let authority = Authority::new();
    let backend = Backend::start("orders");
    let gateway = Gateway::start(&plane.kubeconfig(), &["--watch-namespace=orders"]);
    for (index, order) in ["sib", "sbi", "isb", "ibs", "bsi", "bis"].iter().enumerate() {
        let host = format!("order{index}.example.com");
        let name = format!("order{index}");
        let pair = authority.issue(&host);
        for object in order.chars() {
            match object {
                's' => create_secret(plane, "orders", &name, &pair),
                'i' => plane.apply(
                    &ingress("orders", &name, &host, &name).replace("name: web", &format!("name: {name}")),
                ),
                _ => plane.apply(&backend.manifest("orders", &name)),
            }
        }
        gateway.expect_https(&authority, &host, &pair.certificate);
        assert_eq!(gateway.https(&authority, &host).unwrap().body, "orders");
    }
    let diagnostics = gateway.admin_json("/api/v1/diagnostics");
    let errors = diagnostics["diagnostics"].as_array().unwrap().iter().filter(|it| it["severity"] == "error");
    assert_eq!(errors.count(), 0, "{diagnostics}");
}

#[test]
fn a_rotation_loses_no_handshake() {
    let Some(plane) = ControlPlane::shared() else { return };
    plane.namespace("rotation");
    let authority = Authority::new();
    let host = "rotation.example.com";
    let pairs: Vec<_> = (0..8).map(|_| authority.issue(host)).collect();
    plane.apply(&Backend::start("rotation").manifest("rotation", "web"));
    create_secret(plane, "rotation", "tls", &pairs[0]);
    plane.apply(&ingress("rotation", "web", host, "tls"));
    let gateway = Gateway::start(&plane.kubeconfig(), &["--watch-namespace=rotation"]);
    gateway.expect_https(&authority, host, &pairs[0].certificate);

    let (stop, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let answer = gateway.https(&authority, host).unwrap();
                    let known =
                        pairs.iter().any(|pair| answer.certificate.as_ref() == Some(&pair.certificate));
                    assert!(known && answer.status == 200, "{answer:?}");
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for pair in &pairs[1..] {
            rotate_secret(plane, "rotation", "tls", pair);
            gateway.expect_https(&authority, host, &pair.certificate);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(asked.into_inner() > 8, "there was load all along");
}

#[test]
fn a_secret_that_is_made_anew_is_never_missed() {
    let Some(plane) = ControlPlane::shared() else { return };
    plane.namespace("anew");
    let authority = Authority::new();
    let host = "anew.example.com";
    let (old, new) = (authority.issue(host), authority.issue(host));
    plane.apply(&Backend::start("anew").manifest("anew", "web"));
    create_secret(plane, "anew", "tls", &old);
    plane.apply(&ingress("anew", "web", host, "tls"));
    let gateway = Gateway::start(&plane.kubeconfig(), &["--watch-namespace=anew"]);
    gateway.expect_https(&authority, host, &old.certificate);

    plane.kubectl(&["-n", "anew", "delete", "secret", "tls"]);
    super::eventually("nobody says that the Secret is gone", || match gateway.reasons("anew", "web") {
        reasons if reasons.is_empty() => Err("no findings".into()),
        _ => Ok(()),
    });
    assert_eq!(gateway.https(&authority, host).unwrap().certificate, Some(old.certificate));
    create_secret(plane, "anew", "tls", &new);
    gateway.expect_https(&authority, host, &new.certificate);
    super::eventually("the finding stays", || match gateway.reasons("anew", "web") {
        reasons if reasons.is_empty() => Ok(()),
        reasons => Err(format!("{reasons:?}")),
    });
}

#[test]
fn a_secret_of_another_type_serves_and_one_that_is_broken_harms_nobody() {
    let Some(plane) = ControlPlane::shared() else { return };
    plane.namespace("kinds");
    let authority = Authority::new();
    let (opaque, neighbour) = (authority.issue("opaque.example.com"), authority.issue("fine.example.com"));
    plane.apply(&Backend::start("kinds").manifest("kinds", "web"));
    plane.apply(&ingress("kinds", "opaque", "opaque.example.com", "opaque"));
    plane.apply(&ingress("kinds", "broken", "broken.example.com", "broken"));
    plane.apply(&ingress("kinds", "fine", "fine.example.com", "fine"));
    let gateway = Gateway::start(&plane.kubeconfig(), &["--watch-namespace=kinds"]);

    // The API server takes any bytes for a certificate.
    let garbage = "apiVersion: v1\nkind: Secret\nmetadata: { namespace: kinds, name: broken }\n\
        type: kubernetes.io/tls\nstringData: { tls.crt: certificate, tls.key: key }\n";
    plane.apply(garbage);
    create_secret(plane, "kinds", "fine", &neighbour);
    let files = opaque.write(plane.path(), "opaque").map(|file| file.split_once('=').unwrap().1.to_owned());
    let [certificate, key] = files.each_ref().map(String::as_str);
    let from_files = [format!("--from-file=tls.crt={certificate}"), format!("--from-file=tls.key={key}")];
    plane.kubectl(&["-n", "kinds", "create", "secret", "generic", "opaque", &from_files[0], &from_files[1]]);

    gateway.expect_https(&authority, "fine.example.com", &neighbour.certificate);
    gateway.expect_https(&authority, "opaque.example.com", &opaque.certificate);
    super::eventually("the broken pair is not reported", || match gateway.reasons("kinds", "broken") {
        reasons if reasons.is_empty() => Err("no findings".into()),
        _ => Ok(()),
    });
    let refused = gateway.https(&authority, "broken.example.com");
    assert!(refused.is_err(), "only the generated certificate is left, which nobody trusts: {refused:?}");
    let Answer { status, .. } = gateway.http("broken.example.com").unwrap();
    assert_ne!(status, 404, "its routes are served all the same");

    plane.kubectl(&["-n", "kinds", "delete", "secret", "opaque"]);
    let renewed = authority.issue("opaque.example.com");
    create_secret(plane, "kinds", "opaque", &renewed);
    gateway.expect_https(&authority, "opaque.example.com", &renewed.certificate);
}
