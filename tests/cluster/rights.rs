//! Run with the rights of `config/kubernetes/rbac.yaml` and nothing more, and with fewer.

use std::collections::BTreeSet;
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
use serde_json::Value;

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
fn rights_to_write_that_come_late_are_missed_until_then_and_used() {
    let Some(plane) = ControlPlane::start() else { return };
    plane.namespace("portcullis");
    plane.apply(RBAC);
    let written = ["ingresses/status", "authorizationpolicies/status", "events"];
    let role = plane.kubectl(&["get", "clusterrole", "portcullis", "-o", "json"]);
    let mut role: Value = serde_json::from_str(&role).unwrap();
    role["rules"].as_array_mut().unwrap().retain(|rule| {
        let resources = rule["resources"].as_array().unwrap();
        !resources.iter().any(|resource| written.contains(&resource.as_str().unwrap()))
    });
    plane.kubectl_with(&["replace", "-f", "-"], &role.to_string());
    apply_crds(&plane);
    plane.namespace("late");
    plane.apply(&ingress("late", "web", "late.example.com", "nowhere"));
    plane.apply(
        "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\n\
         metadata: { namespace: late, name: anyone }\nspec: { rules: [{}] }\n",
    );
    let [mesh] = ports::free();
    let flags = ["--publish-status-address=203.0.113.7", &format!("--mesh-port={mesh}")];
    let gateway = Gateway::start(&kubeconfig(&plane, "portcullis"), &flags);
    let missed = || {
        let findings = gateway.general_findings().into_iter().map(|(_, reason, _)| reason);
        findings.filter(|reason| reason.ends_with("Forbidden")).collect::<BTreeSet<_>>()
    };
    let all = ["ConditionsForbidden", "EventsForbidden", "StatusForbidden"].map(str::to_owned);
    eventually("not all is missed", || match missed() {
        reasons if reasons == BTreeSet::from(all.clone()) => Ok(()),
        reasons => Err(format!("{reasons:?}")),
    });

    plane.apply(RBAC);
    eventually("what is written late", || {
        let status =
            ["-n", "late", "get", "ingress", "web", "-o", "jsonpath={.status.loadBalancer.ingress[*].ip}"];
        let reason = [
            "-n",
            "late",
            "get",
            "authorizationpolicy",
            "anyone",
            "-o",
            "jsonpath={.status.conditions[*].reason}",
        ];
        let events = plane.kubectl(&["-n", "late", "describe", "ingress", "web"]).contains("SecretNotFound");
        match (&*plane.kubectl(&status), &*plane.kubectl(&reason), events) {
            ("203.0.113.7", "Accepted", true) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    eventually("something is still missed", || match missed() {
        reasons if reasons.is_empty() => Ok(()),
        reasons => Err(format!("{reasons:?}")),
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
