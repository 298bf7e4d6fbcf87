//! Transport policy from a cluster: pods, policies and roots come from the API server, and what was made of a policy
//! is written to its status.

use std::net::{IpAddr, Ipv4Addr, TcpStream};

use portcullis::testing::ports;
use portcullis::testing::wire::Wire;

use super::backend::Backend;
use super::certificates::{Authority, Pair};
use super::control_plane::ControlPlane;
use super::eventually;
use super::gateway::Gateway;
use super::secrets::ingress;

const CRDS: &str = include_str!("crds.yaml");
const HOST: &str = "mesh.example.com";
const WEB: &str = "spiffe://cluster.local/ns/mesh/sa/web";

/// Brings the kinds of transport policy.
pub fn apply_crds(plane: &ControlPlane) {
    plane.apply(CRDS);
    for kind in ["peerauthentications", "authorizationpolicies"] {
        let crd = format!("crd/{kind}.security.istio.io");
        plane.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", &crd]);
    }
}

/// Makes the pod `mesh/web-0` with the label `app: web`, this annotation and this address.
pub fn apply_pod(plane: &ControlPlane, annotation: &str, address: IpAddr) {
    plane.apply(&format!(
        "apiVersion: v1\nkind: Pod\n\
         metadata: {{ namespace: mesh, name: web-0, labels: {{ app: web }}, annotations: {{ {annotation} }} }}\n\
         spec: {{ serviceAccountName: web, containers: [{{ name: web, image: web }}] }}\n"
    ));
    let status =
        format!(r#"{{"status":{{"phase":"Running","podIP":"{address}","podIPs":[{{"ip":"{address}"}}]}}}}"#);
    plane.patch_status("mesh", "pod", "web-0", &status);
}

/// A gateway with a mesh port in front of one workload, whose pod has the label `app: web`.
struct Mesh {
    plane: ControlPlane,
    gateway: Gateway,
    port: u16,
    web: Pair,
}

impl Mesh {
    fn start() -> Option<Self> {
        let plane = ControlPlane::start()?;
        let roots = Authority::new();
        let backend = Backend::start("mesh");
        plane.namespace("mesh");
        plane.namespace("istio-system");
        let indented: String = roots.pem().lines().map(|line| format!("    {line}\n")).collect();
        plane.apply(&format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{ namespace: istio-system, name: istio-ca-root-cert }}\n\
             data:\n  root-cert.pem: |\n{indented}"
        ));
        plane.apply(&backend.manifest("mesh", "web"));
        plane.apply(
            &ingress("mesh", "web", HOST, "none")
                .replace("  tls: [{ hosts: [mesh.example.com], secretName: none }]\n", ""),
        );
        // What a pod lists of policies by itself counts in folders only: anybody may annotate his pod.
        apply_pod(&plane, "portcullis.dev/authorization-policies: mesh/nothing", backend.address());
        let [port] = ports::free();
        let gateway = Gateway::start(&plane.kubeconfig(), &[&format!("--mesh-port={port}")]);
        Some(Self { plane, gateway, port, web: roots.issue_workload(WEB) })
    }

    fn with_policies() -> Option<Self> {
        let mesh = Self::start()?;
        apply_crds(&mesh.plane);
        Some(mesh)
    }

    fn policy(&self, kind: &str, name: &str, spec: &str) {
        self.plane.apply(&format!(
            "apiVersion: security.istio.io/v1\nkind: {kind}\nmetadata: {{ namespace: mesh, name: {name} }}\n\
             spec: {spec}\n"
        ));
    }

    /// The status of a request by a workload of the mesh.
    fn as_web(&self) -> Result<u16, String> {
        let failed = |error: std::io::Error| error.to_string();
        let tcp = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).map_err(failed)?;
        let mut wire =
            Wire::mutual(tcp, HOST, &self.web.certificate_pem, &self.web.key_pem).map_err(failed)?;
        wire.send(format!("GET / HTTP/1.1\r\nhost: {HOST}\r\n\r\n")).map_err(failed)?;
        if wire.fill().map_err(failed)? == 0 {
            return Err("no answer".into());
        }
        let answer = String::from_utf8_lossy(&wire.take(12)).into_owned();
        answer.get(9..12).and_then(|status| status.parse().ok()).ok_or(answer)
    }

    #[track_caller]
    fn expect(&self, anonymous: u16, web: u16) {
        eventually("policy", || {
            let found = (self.gateway.http(HOST)?.status, self.as_web()?);
            if found == (anonymous, web) { Ok(()) } else { Err(format!("{found:?}")) }
        });
    }

    /// The condition in the status of an AuthorizationPolicy: status, reason, generation and message.
    fn condition(&self, name: &str) -> String {
        let path = "jsonpath={range .status.conditions[?(@.type==\"ZtunnelAccepted\")]}\
            {.status} {.reason} {.observedGeneration} {.message}{end}";
        self.plane.kubectl(&["-n", "mesh", "get", "authorizationpolicy", name, "-o", path])
    }

    #[track_caller]
    fn expect_condition(&self, name: &str, expected: &str) {
        eventually("condition", || match self.condition(name) {
            found if found.starts_with(expected) => Ok(()),
            found => Err(format!("{found:?} instead of {expected:?}")),
        });
    }
}

#[test]
fn policies_are_enforced_from_the_moment_their_kinds_come_until_they_go() {
    let Some(mut mesh) = Mesh::start() else { return };
    mesh.expect(200, 200);
    assert_eq!(mesh.gateway.status()["policies"]["dangling"], 0);
    let findings = mesh.gateway.general_findings();
    let absent: Vec<_> = findings.iter().filter(|(_, reason, _)| reason == "KindNotFound").collect();
    assert_eq!(absent.len(), 2, "{findings:?}");
    assert!(absent.iter().all(|(severity, ..)| severity == "info"), "{absent:?}");

    apply_crds(&mesh.plane);
    mesh.policy(
        "PeerAuthentication",
        "strict",
        "{ selector: { matchLabels: { app: web } }, mtls: { mode: STRICT } }",
    );
    mesh.expect(403, 200);
    // Each kind is looked for by itself, and the other one may be found later.
    eventually("both kinds are there", || {
        let findings = mesh.gateway.general_findings();
        match findings.iter().any(|(_, reason, _)| reason == "KindNotFound") {
            true => Err(format!("{findings:?}")),
            false => Ok(()),
        }
    });

    let only = |principal: &str| {
        format!(
            "{{ action: ALLOW, rules: [{{ from: [{{ source: {{ principals: [\"{principal}\"] }} }}] }}] }}"
        )
    };
    mesh.policy("AuthorizationPolicy", "callers", &only("cluster.local/ns/mesh/sa/job"));
    mesh.expect(403, 403);
    mesh.policy("AuthorizationPolicy", "callers", &only("cluster.local/ns/mesh/sa/web"));
    mesh.expect(403, 200);

    // What is known holds while there is nobody to ask.
    mesh.plane.kill_api_server();
    eventually("the watch is not down", || {
        match mesh.gateway.general_findings().iter().any(|(_, reason, _)| reason == "NotWatched") {
            true => Ok(()),
            false => Err("it is up".into()),
        }
    });
    mesh.expect(403, 200);
    mesh.plane.start_api_server();

    // A pod with other labels is another workload.
    mesh.plane.kubectl(&["-n", "mesh", "label", "pod", "web-0", "app=other", "--overwrite"]);
    mesh.plane.kubectl(&["-n", "mesh", "delete", "authorizationpolicy", "callers"]);
    mesh.expect(200, 200);
    mesh.plane.kubectl(&["-n", "mesh", "label", "pod", "web-0", "app=web", "--overwrite"]);
    mesh.expect(403, 200);
    mesh.plane.kubectl(&["delete", "crd", "peerauthentications.security.istio.io"]);
    mesh.expect(200, 200);
}

#[test]
fn the_status_of_a_policy_says_what_was_made_of_it() {
    let Some(mesh) = Mesh::with_policies() else { return };
    mesh.policy("AuthorizationPolicy", "plain", "{ rules: [{ to: [{ operation: { ports: [\"80\"] } }] }] }");
    mesh.policy(
        "AuthorizationPolicy",
        "allow",
        "{ rules: [{ to: [{ operation: { methods: [GET], paths: [/a] } }] }] }",
    );
    mesh.policy(
        "AuthorizationPolicy",
        "deny",
        "{ action: DENY, rules: [{ from: [{ source: { namespaces: [bad] } }], to: [{ operation: { methods: [GET], ports: [\"80\"] } }] }] }",
    );
    mesh.policy(
        "AuthorizationPolicy",
        "inert",
        "{ action: DENY, rules: [{ to: [{ operation: { methods: [GET] } }] }] }",
    );
    mesh.expect_condition("plain", "True Accepted 1 attached to ztunnel");
    let http = |attributes: &str| {
        format!(
            "True UnsupportedValue 1 ztunnel does not support HTTP attributes (found: {attributes}). In ambient \
             mode you must use a waypoint proxy to enforce HTTP rules. "
        )
    };
    let allow = "Within an ALLOW policy, rules matching HTTP attributes are omitted.";
    mesh.expect_condition("allow", &(http("methods, paths") + allow));
    let deny = "DENY policy with HTTP attributes is enforced without the HTTP rules.";
    mesh.expect_condition("deny", &(http("methods") + deny));
    let inert =
        "After omitting unsupported HTTP attributes, this DENY policy has no enforceable rules at ztunnel";
    mesh.expect_condition("inert", &(http("methods") + inert));

    mesh.policy("AuthorizationPolicy", "allow", "{ rules: [{ to: [{ operation: { ports: [\"80\"] } }] }] }");
    mesh.expect_condition("allow", "True Accepted 2 attached to ztunnel");
    let managers = "jsonpath={.metadata.managedFields[?(@.subresource==\"status\")].manager}";
    let get = ["-n", "mesh", "get", "authorizationpolicy", "allow", "--show-managed-fields", "-o", managers];
    assert_eq!(mesh.plane.kubectl(&get), "portcullis");
}

#[test]
fn conditions_that_somebody_else_writes_are_left_alone() {
    let Some(mesh) = Mesh::with_policies() else { return };
    mesh.policy("AuthorizationPolicy", "theirs", "{ rules: [{}] }");
    mesh.expect_condition("theirs", "True Accepted 1 attached to ztunnel");
    let theirs = r#"{"status":{"conditions":[{"type":"ZtunnelAccepted","status":"True","reason":"Accepted","message":"theirs"}]}}"#;
    mesh.plane.kubectl(&[
        "-n",
        "mesh",
        "patch",
        "authorizationpolicy",
        "theirs",
        "--subresource=status",
        "--type=merge",
        "--field-manager=istiod",
        "-p",
        theirs,
    ]);
    // By the time that this one is written, the other one was looked at again.
    mesh.policy("AuthorizationPolicy", "ours", "{ rules: [{}] }");
    mesh.expect_condition("ours", "True Accepted 1 attached to ztunnel");
    assert_eq!(mesh.condition("theirs"), "True Accepted  theirs");
}
