//! Row L9, as far as `super::super::classes` does not have it.

use super::super::backend::Backend;
use super::super::control_plane::ControlPlane;
use super::super::gateway::Gateway;
use super::super::rights::kubeconfig_of;
use super::{Site, plain};

#[test]
fn l09_annotation_and_field_may_be_given_together() {
    let Some(site) = Site::start("l09-both", &[], &[]) else { return };
    site.plain("web", "both.l09.example.com", "");
    site.gateway.expect_http("both.l09.example.com", 200);
    // The API server refuses both at once when an Ingress is made.
    site.kubectl(&["annotate", "ingress", "web", "kubernetes.io/ingress.class=portcullis"]);
    site.plain("later", "later.l09.example.com", "");
    site.gateway.expect_http("later.l09.example.com", 200);
    assert_eq!(site.gateway.http("both.l09.example.com").unwrap().status, 200);
    // The field is what counts.
    site.kubectl(&["annotate", "--overwrite", "ingress", "web", "kubernetes.io/ingress.class=other"]);
    site.plain("last", "last.l09.example.com", "");
    site.gateway.expect_http("last.l09.example.com", 200);
    assert_eq!(site.gateway.http("both.l09.example.com").unwrap().status, 200);
}

#[test]
fn l09_without_the_right_to_see_classes_the_name_of_ours_counts() {
    let Some(plane) = ControlPlane::shared() else { return };
    plane.namespace("l09");
    plane.apply(&Backend::start("l09").manifest("l09", "web"));
    plane.apply(
        r#"
apiVersion: v1
kind: ServiceAccount
metadata: { namespace: l09, name: gateway }
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: { namespace: l09, name: gateway }
rules:
- { apiGroups: ["", networking.k8s.io, discovery.k8s.io], resources: [ingresses, services, endpointslices, secrets], verbs: [list, watch] }
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: { namespace: l09, name: gateway }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: Role, name: gateway }
subjects: [{ kind: ServiceAccount, name: gateway, namespace: l09 }]
"#,
    );
    plane.apply(&plain("l09", "field", "field.l09.example.com", "web", ""));
    let other = plain("l09", "other", "other.l09.example.com", "web", "");
    plane.apply(&other.replace("ingressClassName: portcullis", "ingressClassName: other"));
    let annotation = "kubernetes.io/ingress.class: portcullis";
    let annotated = plain("l09", "annotated", "annotated.l09.example.com", "web", annotation);
    plane.apply(&annotated.replace("  ingressClassName: portcullis\n", ""));
    let gateway = Gateway::start(&kubeconfig_of(plane, "l09", "gateway"), &["--watch-namespace=l09"]);
    for (host, status) in [("field", 200), ("annotated", 200), ("other", 404)] {
        gateway.expect_http(&format!("{host}.l09.example.com"), status);
    }
}
