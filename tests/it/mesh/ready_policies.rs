//! Policies that were compiled elsewhere and lie in the folder of the gateway as documents: a pod that lists one that is
//! not there is closed, and said to be; one that appears decides.

use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use portcullis::testing::backend::Backend;
use portcullis::testing::eventually_async;
use portcullis::testing::hbone::NodeProxy;

use super::setup::{Mesh, NOTHING, WEB, pod};

const KEY: &str = "default/converted_peer_authentication_p";

/// What `portcullis policy compile` makes of a workload that is STRICT but for one port.
fn strict_but_for(port: u16) -> String {
    let object = format!(
        "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {{name: p, namespace: default}}\n\
         spec: {{selector: {{matchLabels: {{app: web}}}}, mtls: {{mode: STRICT}}, portLevelMtls: {{{port}: {{mode: PERMISSIVE}}}}}}\n"
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
    let piped = command.args(["policy", "compile"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    child.stdin.take().unwrap().write_all(object.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

fn has_metric(mesh: &Mesh, line: &str) -> bool {
    mesh.gateway.admin("/metrics").lines().any(|found| found == line)
}

async fn tunnel_of_nobody(mesh: &Mesh, to: SocketAddr) -> u16 {
    NodeProxy::connect(mesh.hbone, None).await.unwrap().tunnel(to).await.status
}

#[tokio::test]
async fn a_strict_policy_that_is_not_there_refuses_plaintext_until_it_is() {
    let backend = Backend::echo();
    let lists =
        format!("labels: {{app: web}}, annotations: {{portcullis.dev/authorization-policies: \"{KEY}\"}}}}");
    let listing = pod("web", "127.0.0.1").replace("labels: {app: web}}", &lists);
    let mesh = Mesh::before_pod(&listing, backend.address(), &["hbone-client-certificate: false"]);
    let web = mesh.ca.issue(WEB);

    let refused = mesh.plain().get("a.example", "/");
    assert_eq!((refused.status, mesh.anonymous().get("a.example", "/").status), (403, 403));
    // A connection of the moment in which the pod becomes known is refused for that.
    let says_why = || {
        let text = mesh.plain().get("a.example", "/").text();
        text.contains("the workload asks for a client certificate of the mesh")
    };
    eventually_async("the refusal says why", says_why).await;
    assert_eq!(tunnel_of_nobody(&mesh, backend.address()).await, 401);
    assert!(backend.requests().is_empty(), "nothing reaches the workload");
    assert_eq!(mesh.as_(&web).get("a.example", "/").status, 200);
    let mut proxy = NodeProxy::connect(mesh.hbone, Some(&web)).await.unwrap();
    assert_eq!(proxy.tunnel(backend.address()).await.status, 200);

    assert!(has_metric(&mesh, "portcullis_policy_dangling_keys 1"));
    let policies = mesh.gateway.admin("/api/v1/policies");
    assert!(policies.contains(&format!(r#""dangling":["{KEY}"]"#)), "{policies}");
    let decided = format!(r#"{{"policy":"{KEY}","reason":"dangling_strict","count":"#);
    eventually_async("the decision is counted", || mesh.gateway.admin("/api/v1/policies").contains(&decided))
        .await;
    let told = format!("1 keys that name no policy, each denies: {KEY}");
    assert!(mesh.status().contains(&told), "{}", mesh.status());
    let findings = mesh.gateway.admin("/api/v1/diagnostics");
    assert!(findings.contains("PolicyNotFound") && findings.contains("default"), "{findings}");

    // The document comes, and exempts the port of the workload.
    mesh.policy(&strict_but_for(backend.address().port()));
    mesh.waits_for("the policy", 200, || mesh.plain());
    assert_eq!(tunnel_of_nobody(&mesh, backend.address()).await, 200);
    assert!(has_metric(&mesh, "portcullis_policy_dangling_keys 0"));
    assert!(!mesh.status().contains("dangling"), "{}", mesh.status());
    assert!(!mesh.gateway.admin("/api/v1/diagnostics").contains("PolicyNotFound"));

    // One that cannot be read leaves it in force.
    mesh.policy(&strict_but_for(9).replace("- 9\n", "- 65616\n"));
    eventually_async("the refusal is counted", || has_metric(&mesh, "portcullis_policies_rejected 1")).await;
    let policies = mesh.gateway.admin("/api/v1/policies");
    assert!(
        policies.contains(r#""in_force":"last-good""#) && policies.contains("notDestinationPorts[0]"),
        "{policies}"
    );
    assert_eq!(mesh.plain().get("a.example", "/").status, 200);

    mesh.policy(&strict_but_for(9));
    let denied = mesh.waits_for("STRICT for this port", 403, || mesh.plain());
    assert!(denied.text().contains("a policy of the workload denies this client"), "{}", denied.text());
    assert!(has_metric(&mesh, "portcullis_policies_rejected 0"));
    assert_eq!(mesh.as_(&web).get("a.example", "/").status, 200);

    mesh.policy(NOTHING);
    eventually_async("it dangles again", || has_metric(&mesh, "portcullis_policy_dangling_keys 1")).await;
    assert_eq!(
        (mesh.plain().get("a.example", "/").status, mesh.as_(&web).get("a.example", "/").status),
        (403, 200)
    );
}
