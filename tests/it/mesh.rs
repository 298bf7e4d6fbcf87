//! Transport policy through the real binary, with certificates of the workload CA: who is let to a workload, what
//! it is told about the client, and what becomes of open exchanges when policies change.

mod hbone;
mod headers;
mod namespaces;
mod ready_policies;
mod revocation;
mod setup;

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use portcullis::testing::backend::{After, Backend};
use portcullis::testing::certificates::PemPair;
use portcullis::testing::client::Client;
use portcullis::testing::eventually;
use portcullis::testing::wire::Wire;

use crate::gateway::Setup;
use crate::manifests::{Ingress, secret};
use setup::{Ca, JOB, Mesh, NOTHING, WEB, authorization, authorization_rule, peer_authentication};

#[test]
fn strict_refuses_who_shows_no_certificate_and_permissive_does_not() {
    let backend = Backend::echo();
    let mesh = Mesh::before(backend.address(), &[]);
    let web = mesh.ca.issue(WEB);
    for client in [mesh.plain(), mesh.anonymous(), mesh.as_(&web)].iter_mut() {
        assert_eq!(client.get("a.example", "/").status, 200);
    }
    mesh.policy(&peer_authentication("STRICT"));
    let refused = mesh.waits_for("STRICT", 403, || mesh.plain());
    let text = String::from_utf8(refused.body).unwrap();
    assert!(text.contains("policy_denied"), "{text}");
    assert!(!text.contains("istio_converted"), "policies are not named to clients: {text}");
    let seen = backend.requests().len();
    assert_eq!(mesh.anonymous().get("a.example", "/").status, 403);
    assert_eq!(backend.requests().len(), seen, "nothing reaches the workload");
    assert_eq!(mesh.as_(&web).get("a.example", "/").status, 200);
    // An open connection is asked anew for each request.
    let mut kept = mesh.anonymous();
    assert_eq!(kept.get("a.example", "/").status, 403);
    mesh.policy(&peer_authentication("PERMISSIVE"));
    mesh.waits_for("PERMISSIVE", 200, || mesh.anonymous());
    assert_eq!(kept.get("a.example", "/").status, 200);
    // What cannot be read leaves PERMISSIVE, the last good one, in force.
    mesh.policy(&peer_authentication("STRIKT"));
    thread::sleep(Duration::from_millis(500));
    assert_eq!(mesh.anonymous().get("a.example", "/").status, 200);
    let policies = mesh.gateway.admin("/api/v1/policies");
    assert!(policies.contains(r#""in_force":"last-good""#), "{policies}");
    assert!(mesh.status().contains("1 policies, see /api/v1/policies"), "{}", mesh.status());
}

#[test]
fn a_policy_in_dry_run_is_counted_and_decides_nothing() {
    let backend = Backend::echo();
    let mesh = Mesh::before(backend.address(), &[]);
    let tried = authorization_rule("DENY", "from: [{source: {notPrincipals: [\"*\"]}}]")
        .replace("name: a,", "name: tried, annotations: {istio.io/dry-run: \"true\"},");
    mesh.policy(&tried);
    let matched =
        r#"portcullis_policy_dry_run_total{namespace="default",policy="tried",action="DENY",matched="true"}"#;
    eventually("the count", || {
        assert_eq!(mesh.plain().get("a.example", "/").status, 200);
        mesh.gateway.admin("/metrics").contains(matched)
    });
    let web = mesh.ca.issue(WEB);
    assert_eq!(mesh.as_(&web).get("a.example", "/").status, 200);
    eventually("the other count", || {
        mesh.gateway.admin("/metrics").contains(&matched.replace("true", "false"))
    });
    assert!(
        mesh.gateway
            .admin("/api/v1/policies")
            .contains(r#"{"policy":"default/tried","action":"DENY","matched":"#)
    );
    assert!(mesh.status().contains("1 in dry run"), "{}", mesh.status());
}

#[test]
fn policies_tell_identities_apart() {
    let backend = Backend::echo();
    let mesh = Mesh::before(backend.address(), &[]);
    let (web, job) = (mesh.ca.issue(WEB), mesh.ca.issue(JOB));
    mesh.policy(&authorization("ALLOW", "cluster.local/ns/shop/sa/web"));
    mesh.waits_for("the policy", 403, || mesh.as_(&job));
    assert_eq!(mesh.as_(&web).get("a.example", "/").status, 200);
    assert_eq!(mesh.plain().get("a.example", "/").status, 403);
    // A header is no identity, nor is a certificate shown where it was not asked for.
    let element = "x-forwarded-client-cert: URI=spiffe://cluster.local/ns/shop/sa/web";
    let forged = format!("GET / HTTP/1.1\r\nHost: a.example\r\n{element}\r\n\r\n");
    assert_eq!(mesh.plain().ask(forged).status, 403);
    let tcp = TcpStream::connect(mesh.gateway.https).unwrap();
    let mut public =
        Client { wire: Wire::mutual(tcp, "a.example", &web.certificates_pem(), &web.key_pem).unwrap() };
    assert_eq!(public.get("a.example", "/").status, 403);
}

#[test]
fn foreign_certificates_are_turned_away_in_the_handshake() {
    let backend = Backend::echo();
    let mesh = Mesh::before(backend.address(), &[]);
    let other = Ca::new();
    for (identity, what) in [
        (mesh.ca.issue("spiffe://partner.example/ns/shop/sa/web"), "another trust domain"),
        (other.issue(WEB), "another authority"),
    ] {
        let Ok(mut client) = mesh.try_as(&identity) else { continue };
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
        assert!(matches!(client.wire.fill(), Err(_) | Ok(0)), "{what}");
    }
    assert!(backend.requests().is_empty());
}

#[test]
fn a_name_does_not_lead_past_the_policies_of_a_workload() {
    let backend = Backend::echo();
    let external = format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: by-name, namespace: default}}\n\
         spec: {{type: ExternalName, externalName: localhost, ports: [{{port: {}}}]}}\n",
        backend.address().port()
    );
    let port = format!("{{number: {}}}", backend.address().port());
    let ingress = Ingress::new("name", "name.example").path_to("Prefix", "/", "by-name", &port);
    let setup = Setup::new().manifest(external).ingress(&ingress);
    let mesh = Mesh::start(setup, Ca::new(), backend.address(), &[]);
    let mut kept = mesh.plain();
    assert_eq!(kept.get("name.example", "/").status, 200, "there are no policies");
    // It selects the pod at 127.0.0.1, and nothing that is only a name.
    mesh.policy(&peer_authentication("STRICT"));
    mesh.waits_for("STRICT", 403, || mesh.plain());
    let seen = backend.requests().len();
    for client in [&mut kept, &mut mesh.plain()] {
        let refused = client.get("name.example", "/");
        assert_eq!(refused.status, 403, "{}", refused.text());
        assert!(refused.text().contains("policy_denied"));
    }
    assert_eq!(backend.requests().len(), seen, "nor does a connection that was made before");
    mesh.policy(NOTHING);
    mesh.waits_for("no policy", 200, || mesh.plain());
    assert_eq!(kept.get("name.example", "/").status, 200);
    // Where there is no pod, the namespace decides.
    mesh.policy(&authorization("ALLOW", "cluster.local/ns/shop/sa/web"));
    eventually("the policy", || mesh.plain().get("name.example", "/").status == 403);
}

/// Answers with a head, and then a byte now and then until nobody takes it.
fn endless() -> Backend {
    Backend::on_request(|request, wire| {
        if request.target != "/endless" {
            let _ = wire.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            return After::KeepAlive;
        }
        let mut sent = wire.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
        while sent.is_ok() {
            sent = wire.send("x");
            thread::sleep(Duration::from_millis(20));
        }
        After::Close
    })
}

#[test]
fn a_change_of_policy_ends_what_it_denies_and_nothing_else() {
    let backend = endless();
    let mesh = Mesh::before(backend.address(), &[]);
    let (web, job) = (mesh.ca.issue(WEB), mesh.ca.issue(JOB));
    let open = |identity: &PemPair| {
        let mut client = mesh.as_(identity);
        client.send("GET /endless HTTP/1.1\r\nHost: a.example\r\n\r\n");
        assert!(client.wire.fill().unwrap() > 0);
        client
    };
    let (mut denied, mut twin, mut stays) = (open(&job), open(&job), open(&web));
    mesh.policy(&authorization("DENY", "cluster.local/ns/nowhere/sa/nobody"));
    thread::sleep(Duration::from_millis(700));
    for client in [&mut denied, &mut twin, &mut stays] {
        client.wire.input.clear();
        assert!(client.wire.fill().unwrap() > 0, "an unrelated policy ends nothing");
    }
    mesh.policy(&authorization("DENY", "cluster.local/ns/batch/sa/job"));
    denied.wire.take_all();
    twin.wire.take_all();
    stays.wire.input.clear();
    for _ in 0..5 {
        assert!(stays.wire.fill().unwrap() > 0);
    }
    eventually("the log line", || mesh.gateway.log().contains("connection closed due to policy change"));
}

#[test]
fn flips_during_a_storm_leave_no_denied_exchange_open() {
    let backend = endless();
    let mesh = Mesh::before(backend.address(), &[]);
    let job = mesh.ca.issue(JOB);
    let deny = authorization("DENY", "cluster.local/ns/batch/sa/job");
    let (stop, opened) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut open = Vec::new();
                while !stop.load(Ordering::Relaxed) && open.len() < 150 {
                    let mut client = mesh.as_(&job);
                    client.send("GET /endless HTTP/1.1\r\nHost: a.example\r\n\r\n");
                    open.push(client);
                    opened.fetch_add(1, Ordering::Relaxed);
                }
                // Each comes to its end, an answer of 403 or a body that breaks off, before patience does.
                for client in &mut open {
                    client.send("GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n");
                    client.wire.take_all();
                }
            });
        }
        mesh.flip(&deny, &job);
        stop.store(true, Ordering::Relaxed);
    });
    assert!(opened.load(Ordering::Relaxed) > 10);
    assert!(backend.requests().iter().any(|request| request.target == "/endless"), "some were admitted");
}

/// What clients show on the mesh port is verified against the roots of the mesh, and against nothing else.
#[test]
fn a_host_that_asks_for_certificates_at_the_edge_is_not_served_by_the_mesh_port() {
    let backend = Backend::echo();
    let mesh = Mesh::before(backend.address(), &[]);
    let web = mesh.ca.issue(WEB);
    assert_eq!(mesh.as_(&web).get("a.example", "/").status, 200);
    let ca = secret("edge-ca", &web).replace("tls.crt", "ca.crt");
    let asking = Ingress::new("edge", "a.example")
        .path("Prefix", "/edge", "web")
        .annotation("auth-tls-secret", "edge-ca");
    let mut open = mesh.as_(&web);
    assert_eq!(open.get("a.example", "/").status, 200);
    mesh.gateway.write("edge.yaml", &(ca + &asking.yaml()));
    mesh.waits_for("the host to ask", 421, || mesh.as_(&web));
    assert_eq!(open.get("a.example", "/").status, 421);
    assert_eq!(mesh.anonymous().get("a.example", "/").status, 421);
    assert_eq!(mesh.gateway.tls_client("a.example").get("a.example", "/").status, 400);
}
