//! What is written to the API server, and by whom.

use super::backend::Backend;
use super::control_plane::ControlPlane;
use super::eventually;
use super::gateway::Gateway;
use super::secrets::ingress;

fn addresses(plane: &ControlPlane, namespace: &str, name: &str) -> String {
    let path = "jsonpath={range .status.loadBalancer.ingress[*]}{.ip}{.hostname} {end}";
    plane.kubectl(&["-n", namespace, "get", "ingress", name, "-o", path]).trim().to_owned()
}

fn expect_addresses(plane: &ControlPlane, namespace: &str, name: &str, expected: &str) {
    eventually("status", || match addresses(plane, namespace, name) {
        found if found == expected => Ok(()),
        found => Err(format!("{found:?} instead of {expected:?}")),
    });
}

fn is_leader(gateway: &Gateway) -> bool {
    gateway.admin_json("/api/v1/status")["leader"] == true
}

#[test]
fn one_replica_writes_and_another_takes_over() {
    let Some(plane) = ControlPlane::start() else { return };
    plane.namespace("status");
    plane.apply(&Backend::start("status").manifest("status", "web"));
    plane.apply(&ingress("status", "web", "status.example.com", "tls"));
    let foreign = ingress("status", "foreign", "foreign.example.com", "tls");
    plane.apply(&foreign.replace("ingressClassName: portcullis", "ingressClassName: other"));
    let flags = ["--publish-status-address=lb.example.com,203.0.113.9,203.0.113.7"];
    let mut first = Gateway::start(&plane.kubeconfig(), &flags);
    expect_addresses(&plane, "status", "web", "203.0.113.7 203.0.113.9 lb.example.com");
    assert!(is_leader(&first));
    assert_eq!(addresses(&plane, "status", "foreign"), "", "not ours to write");
    let managers = "jsonpath={.metadata.managedFields[?(@.subresource==\"status\")].manager}";
    let manager =
        plane.kubectl(&["-n", "status", "get", "ingress", "web", "--show-managed-fields", "-o", managers]);
    assert_eq!(manager, "portcullis");

    // Somebody else's idea of the status does not last.
    let patch = r#"{"status":{"loadBalancer":{"ingress":[{"ip":"198.51.100.1"}]}}}"#;
    plane.patch_status("status", "ingress", "web", patch);
    expect_addresses(&plane, "status", "web", "203.0.113.7 203.0.113.9 lb.example.com");

    let second = Gateway::start(&plane.kubeconfig(), &["--publish-status-address=203.0.113.50"]);
    assert!(!is_leader(&second), "there is one already");
    first.end();
    eventually("nobody leads", || if is_leader(&second) { Ok(()) } else { Err("not yet".into()) });
    expect_addresses(&plane, "status", "web", "203.0.113.50");
}

#[test]
fn the_addresses_of_a_service_are_published() {
    let Some(plane) = ControlPlane::start() else { return };
    plane.namespace("publish");
    plane.apply(
        "apiVersion: v1\nkind: Service\nmetadata: { namespace: publish, name: edge }\n\
         spec: { type: LoadBalancer, ports: [{ port: 443 }] }\n",
    );
    plane.apply(&ingress("publish", "web", "publish.example.com", "tls"));
    let _gateway = Gateway::start(&plane.kubeconfig(), &["--publish-service=publish/edge"]);
    let patch = r#"{"status":{"loadBalancer":{"ingress":[{"ip":"203.0.113.30"}]}}}"#;
    plane.patch_status("publish", "service", "edge", patch);
    expect_addresses(&plane, "publish", "web", "203.0.113.30");
}

/// A node with an internal and an external address, and a pod of the gateway that runs on it.
fn pod_on_node(plane: &ControlPlane, pod: &str, node: &str, last: u8) {
    plane.apply(&format!("apiVersion: v1\nkind: Node\nmetadata: {{ name: {node} }}\n"));
    let status = format!(
        r#"{{"status":{{"addresses":[{{"type":"InternalIP","address":"10.0.0.{last}"}},{{"type":"ExternalIP","address":"203.0.113.{last}"}}]}}}}"#
    );
    plane.kubectl(&["patch", "node", node, "--subresource=status", "--type=merge", "-p", &status]);
    plane.apply(&format!(
        "apiVersion: v1\nkind: Pod\n\
         metadata: {{ namespace: nodes, name: {pod}, labels: {{ app: gateway, pod-template-hash: h{last} }} }}\n\
         spec: {{ nodeName: {node}, terminationGracePeriodSeconds: 0, containers: [{{ name: a, image: a }}] }}\n"
    ));
    let running = r#"{"status":{"phase":"Running"}}"#;
    plane.patch_status("nodes", "pod", pod, running);
}

#[test]
fn without_other_addresses_those_of_our_nodes_are_published() {
    let Some(plane) = ControlPlane::start() else { return };
    plane.namespace("nodes");
    pod_on_node(&plane, "gateway-1", "node-1", 1);
    pod_on_node(&plane, "gateway-2", "node-2", 2);
    plane.apply(&ingress("nodes", "web", "nodes.example.com", "tls"));
    let mut gateway = Gateway::start_in_pod(&plane.kubeconfig(), "nodes", "gateway-1", &[]);
    expect_addresses(&plane, "nodes", "web", "203.0.113.1 203.0.113.2");
    plane.kubectl(&["-n", "nodes", "delete", "pod", "gateway-2", "--force", "--grace-period=0"]);
    expect_addresses(&plane, "nodes", "web", "203.0.113.1");
    gateway.end();
    let flags = ["--report-node-internal-ip-address"];
    let _gateway = Gateway::start_in_pod(&plane.kubeconfig(), "nodes", "gateway-1", &flags);
    expect_addresses(&plane, "nodes", "web", "10.0.0.1");
}

#[test]
fn the_status_outlives_a_gateway_unless_the_last_one_is_to_clear_it() {
    let Some(plane) = ControlPlane::start() else { return };
    plane.namespace("nodes");
    pod_on_node(&plane, "gateway-1", "node-1", 1);
    pod_on_node(&plane, "gateway-2", "node-2", 2);
    plane.apply(&ingress("nodes", "web", "last.example.com", "tls"));
    let start = |flags: &[&str]| {
        let all = [&["--publish-status-address=203.0.113.7"], flags].concat();
        let gateway = Gateway::start_in_pod(&plane.kubeconfig(), "nodes", "gateway-1", &all);
        eventually("nobody leads", || if is_leader(&gateway) { Ok(()) } else { Err("not yet".into()) });
        expect_addresses(&plane, "nodes", "web", "203.0.113.7");
        gateway
    };
    start(&[]).end();
    assert_eq!(addresses(&plane, "nodes", "web"), "203.0.113.7");
    start(&["--update-status-on-shutdown"]).end();
    assert_eq!(addresses(&plane, "nodes", "web"), "203.0.113.7", "another replica is left");
    plane.kubectl(&["-n", "nodes", "delete", "pod", "gateway-2", "--force", "--grace-period=0"]);
    start(&[]).end();
    assert_eq!(addresses(&plane, "nodes", "web"), "203.0.113.7", "not asked for");
    start(&["--update-status-on-shutdown"]).end();
    assert_eq!(addresses(&plane, "nodes", "web"), "");
}

#[test]
fn a_finding_becomes_one_event() {
    let Some(plane) = ControlPlane::start() else { return };
    plane.namespace("events");
    plane.apply(&ingress("events", "web", "events.example.com", "nowhere"));
    let count = || {
        let reasons = "jsonpath={range .items[?(@.reason==\"SecretNotFound\")]}{.regarding.name}{.involvedObject.name} {end}";
        let found = plane.kubectl(&["-n", "events", "get", "events", "-o", reasons]);
        found.split_whitespace().filter(|name| *name == "web").count()
    };
    let mut gateway = Gateway::start(&plane.kubeconfig(), &[]);
    eventually("no Event", || if count() == 0 { Err("none".into()) } else { Ok(()) });
    gateway.end();

    // Another replica has nothing to add. What it says about the Service shows that it has had its say.
    let _gateway = Gateway::start(&plane.kubeconfig(), &[]);
    plane.apply(&ingress("events", "late", "late.example.com", "nowhere"));
    eventually("no Event of the second replica", || {
        match plane.kubectl(&["-n", "events", "describe", "ingress", "late"]).contains("SecretNotFound") {
            true => Ok(()),
            false => Err("none".into()),
        }
    });
    assert_eq!(count(), 1);
}

#[test]
fn an_object_that_is_made_anew_has_events_of_its_own() {
    let Some(plane) = ControlPlane::start() else { return };
    plane.namespace("anew");
    let manifest = ingress("anew", "web", "anew.example.com", "nowhere");
    let _gateway = Gateway::start(&plane.kubeconfig(), &[]);
    // The second has another uid, which `kubectl describe` goes by, and the same to say of it.
    for turn in ["first", "second"] {
        plane.kubectl_with(&["create", "-f", "-"], &manifest);
        eventually(&format!("no Event of the {turn}"), || {
            match plane.kubectl(&["-n", "anew", "describe", "ingress", "web"]).contains("SecretNotFound") {
                true => Ok(()),
                false => Err("none".into()),
            }
        });
        plane.kubectl(&["-n", "anew", "delete", "ingress", "web"]);
    }
}
