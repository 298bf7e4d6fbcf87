//! Run with the rights of `config/kubernetes/rbac.yaml` and nothing more, and with fewer.

use std::fs;
use std::path::PathBuf;

use super::backend::Backend;
use super::certificates::Authority;
use super::control_plane::ControlPlane;
use super::eventually;
use super::gateway::Gateway;
use super::policies::apply_crds;
use super::secrets::{create_secret, ingress};
use portcullis::testing::ports;

pub const RBAC: &str = include_str!("../../config/kubernetes/rbac.yaml");

/// A kubeconfig for the Service Account `portcullis` of `namespace`.
pub fn kubeconfig(plane: &ControlPlane, namespace: &str) -> PathBuf {
    kubeconfig_of(plane, namespace, "portcullis")
}

/// A kubeconfig for a Service Account.
pub fn kubeconfig_of(plane: &ControlPlane, namespace: &str, account: &str) -> PathBuf {
    let token = plane.kubectl(&["-n", namespace, "create", "token", account]);
    let admin = fs::read_to_string(plane.kubeconfig()).unwrap();
    let (head, _) = admin.split_once("users:").unwrap();
    let path = plane.path().join(format!("{namespace}-{account}.kubeconfig"));
    let user = format!(
        "users: [{{ name: gateway, user: {{ token: {} }} }}]\n\
         contexts: [{{ name: test, context: {{ cluster: test, user: gateway, namespace: {namespace} }} }}]\n\
         current-context: test\n",
        token.trim(),
    );
    fs::write(&path, head.to_owned() + &user).unwrap();
    path
}

#[test]
fn the_rights_that_are_shipped_are_enough() {
    let Some(plane) = ControlPlane::start() else { return };
    let authority = Authority::new();
    let pair = authority.issue("rights.example.com");
    plane.namespace("portcullis");
    plane.apply(RBAC);
    plane.namespace("rights");
    plane.apply(&Backend::start("rights").manifest("rights", "web"));
    create_secret(&plane, "rights", "tls", &pair);
    plane.apply(&ingress("rights", "web", "rights.example.com", "tls"));
    plane.apply(&ingress("rights", "missing", "missing.example.com", "nowhere"));
    apply_crds(&plane);
    plane.apply(
        "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\n\
         metadata: { namespace: rights, name: anyone }\nspec: { rules: [{}] }\n",
    );
    let config = kubeconfig(&plane, "portcullis");
    let [mesh] = ports::free();
    let flags = ["--publish-status-address=203.0.113.7", &format!("--mesh-port={mesh}")];
    let gateway = Gateway::start(&config, &flags);
    gateway.expect_https(&authority, "rights.example.com", &pair.certificate);
    let diagnostics = gateway.admin_json("/api/v1/diagnostics").to_string();
    assert!(!diagnostics.contains("NotWatched"), "{diagnostics}");

    eventually("no status, and so no Lease", || {
        let address = "jsonpath={.status.loadBalancer.ingress[*].ip}";
        match plane.kubectl(&["-n", "rights", "get", "ingress", "web", "-o", address]).trim() {
            "203.0.113.7" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    eventually("no condition of the policy", || {
        let reason = "jsonpath={.status.conditions[*].reason}";
        match plane.kubectl(&["-n", "rights", "get", "authorizationpolicy", "anyone", "-o", reason]).trim() {
            "Accepted" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    eventually("no Event", || match plane.kubectl(&["-n", "rights", "describe", "ingress", "missing"]) {
        text if text.contains("SecretNotFound") => Ok(()),
        text => Err(text),
    });
}

#[test]
fn a_lease_that_there_is_no_right_to_is_said() {
    let Some(plane) = ControlPlane::start() else { return };
    plane.namespace("portcullis");
    plane.apply(RBAC);
    let config = kubeconfig(&plane, "portcullis");
    let gateway = Gateway::start(&config, &["--election-id=other-leader"]);
    eventually("nothing is said of the Lease", || {
        match gateway.admin_json("/api/v1/diagnostics").to_string() {
            text if text.contains("NoLease") && text.contains("other-leader") => Ok(()),
            text => Err(text),
        }
    });
}

#[test]
fn rights_that_are_taken_away_are_missed_but_nothing_is_lost() {
    let Some(plane) = ControlPlane::start() else { return };
    let authority = Authority::new();
    let (pair, renewed) = (authority.issue("revoked.example.com"), authority.issue("revoked.example.com"));
    plane.namespace("portcullis");
    plane.namespace("revoked");
    plane.apply(RBAC);
    plane.apply(&Backend::start("revoked").manifest("revoked", "web"));
    create_secret(&plane, "revoked", "tls", &pair);
    let old = ingress("revoked", "web", "revoked.example.com", "tls");
    let old = old.replace("ingressClassName: portcullis", "");
    let annotation = "name: web, annotations: { kubernetes.io/ingress.class: portcullis }";
    plane.apply(&old.replacen("name: web", annotation, 1));

    // Without the right to see IngressClasses the annotation still works.
    plane.kubectl(&["delete", "clusterrolebinding", "portcullis"]);
    let role = ["--clusterrole=portcullis", "--serviceaccount=portcullis:portcullis"];
    let bind = || plane.kubectl(&["-n", "revoked", "create", "rolebinding", "portcullis", role[0], role[1]]);
    assert!(bind().contains("created"));
    let config = kubeconfig(&plane, "portcullis");
    let gateway = Gateway::start(&config, &["--watch-namespace=revoked"]);
    gateway.expect_https(&authority, "revoked.example.com", &pair.certificate);
    let diagnostics = gateway.admin_json("/api/v1/diagnostics").to_string();
    assert!(diagnostics.contains("NotWatched") && diagnostics.contains("ingressclasses"), "{diagnostics}");

    plane.kubectl(&["-n", "revoked", "delete", "rolebinding", "portcullis"]);
    gateway.expect_https(&authority, "revoked.example.com", &pair.certificate);
    bind();
    plane.kubectl(&["-n", "revoked", "delete", "secret", "tls"]);
    create_secret(&plane, "revoked", "tls", &renewed);
    gateway.expect_https(&authority, "revoked.example.com", &renewed.certificate);
}
