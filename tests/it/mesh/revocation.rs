//! Revocation lists of the mesh, and roots from other places than the ConfigMap.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use portcullis::testing::backend::Backend;
use portcullis::testing::certificates::{Authority, PemPair};
use portcullis::testing::eventually;
use portcullis::testing::hbone::NodeProxy;
use portcullis::testing::tcp::TcpBackend;

use super::setup::{Ca, GATEWAY, JOB, Mesh, WEB, bundle};
use crate::gateway::Setup;
use crate::manifests::secret;

/// A gateway that trusts `authority`, with its bundle in a file of its own.
fn trusting(authority: &Authority, backend: SocketAddr) -> Mesh {
    let setup = Setup::new()
        .manifest(secret("mesh", &authority.workload(GATEWAY).issue()))
        .setting("hbone-certificate: default/mesh");
    let mesh = Mesh::start(setup, Ca::new(), backend, &[]);
    mesh.gateway.write("roots.yaml", &bundle(&authority.pem(), ""));
    let client = authority.workload(WEB).issue();
    eventually("the roots", || is_served(&mesh, &client));
    mesh
}

fn is_served(mesh: &Mesh, client: &PemPair) -> bool {
    let Ok(mut connection) = mesh.try_as(client) else { return false };
    connection.send("GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n");
    // What turns a client away is an alert, which is an error to read.
    while connection.wire.fill().is_ok_and(|length| length > 0) {}
    connection.wire.input.starts_with(b"HTTP/1.1 200")
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn a_revoked_client_is_turned_away_and_what_it_has_open_is_closed() {
    let (root, backend) = (Authority::new("mesh"), Backend::echo());
    let mesh = trusting(&root, backend.address());
    let (good, bad) = (root.workload(WEB).serial(7).issue(), root.workload(JOB).serial(8).issue());
    let (mut idle_good, mut idle_bad) = (mesh.as_(&good), mesh.as_(&bad));
    for client in [&mut idle_good, &mut idle_bad] {
        assert_eq!(client.get("a.example", "/").status, 200);
    }
    let raw = TcpBackend::echo();
    runtime().block_on(async {
        let mut proxies = Vec::new();
        for pair in [&good, &bad] {
            proxies.push(NodeProxy::connect(mesh.hbone, Some(pair)).await.unwrap());
        }
        let mut of_good = proxies[0].tunnel(raw.address).await;
        let mut of_bad = proxies[1].tunnel(raw.address).await;
        of_bad.echo("open").await.unwrap();
        mesh.gateway.write("roots.yaml", &bundle(&root.pem(), &root.revocation_list(&[8])));
        assert!(of_bad.rest().await.is_err(), "its tunnel is closed");
        of_good.echo("others are not touched").await.unwrap();
        assert!(proxies[1].open(&raw.address.to_string()).await.is_err(), "and its connection");
        assert_eq!(proxies[0].tunnel(raw.address).await.status, 200);
    });
    idle_bad.assert_closed();
    assert_eq!(idle_good.get("a.example", "/").status, 200);
    assert!(!is_served(&mesh, &bad));
    assert!(is_served(&mesh, &good));
    let metrics = mesh.gateway.admin("/metrics");
    assert!(metrics.contains("reason=\"revoked\""), "{metrics}");
}

#[test]
fn a_certificate_that_does_not_say_who_it_is_for_is_turned_away() {
    let (root, backend) = (Authority::new("mesh"), Backend::echo());
    let mesh = trusting(&root, backend.address());
    let seen = backend.requests().len();
    for (what, leaf) in [
        ("a foreign name first", root.workload("spiffe://partner.example/ns/a/sa/b").uri(WEB)),
        ("our name first", root.workload(WEB).uri("https://shop.example")),
        ("the same name twice", root.workload(WEB).uri(WEB)),
        ("no URI", root.leaf(&["web.shop.example"]).for_clients()),
        ("no SPIFFE identity", root.leaf(&[]).uri("https://cluster.local/ns/shop/sa/web").for_clients()),
        ("not for clients", root.leaf(&[]).uri(WEB)),
    ] {
        assert!(!is_served(&mesh, &leaf.issue()), "{what}");
    }
    assert_eq!(backend.requests().len(), seen);
    assert!(is_served(&mesh, &root.workload(WEB).issue()));
}

#[test]
fn a_revoked_intermediate_takes_its_clients_along() {
    let (root, backend) = (Authority::new("mesh"), Backend::echo());
    let mesh = trusting(&root, backend.address());
    let below = root.intermediate_with_serial("cluster one", 21);
    let beside = root.intermediate_with_serial("cluster two", 22);
    let (bad, good) = (below.workload(WEB).issue(), beside.workload(WEB).issue());
    let mut open = mesh.as_(&bad);
    assert_eq!(open.get("a.example", "/").status, 200);
    mesh.gateway.write("roots.yaml", &bundle(&root.pem(), &root.revocation_list(&[21])));
    open.assert_closed();
    assert!(!is_served(&mesh, &bad));
    assert!(is_served(&mesh, &good));
}

#[test]
fn what_is_open_ends_with_its_root_and_with_its_certificate() {
    let (root, next, backend) = (Authority::new("mesh"), Authority::new("next"), Backend::echo());
    let mesh = trusting(&root, backend.address());
    mesh.gateway.write("roots.yaml", &bundle(&(root.pem() + &next.pem()), ""));
    let (old, new) = (root.workload(WEB).issue(), next.workload(WEB).issue());
    eventually("both roots", || is_served(&mesh, &new));
    let (mut of_old, mut of_new) = (mesh.as_(&old), mesh.as_(&new));
    for client in [&mut of_old, &mut of_new] {
        assert_eq!(client.get("a.example", "/").status, 200);
    }
    mesh.gateway.write("roots.yaml", &bundle(&next.pem(), ""));
    of_old.assert_closed();
    assert_eq!(of_new.get("a.example", "/").status, 200);
    assert!(!is_served(&mesh, &old));

    let now = i64::try_from(UNIX_EPOCH.elapsed().unwrap().as_secs()).unwrap();
    let short = next.workload(WEB).valid(now - 60, now + 3).issue();
    let mut of_short = mesh.as_(&short);
    of_short.assert_closed();
    assert!(!is_served(&mesh, &short), "it has ended");
    assert_eq!(of_new.get("a.example", "/").status, 200);
}

#[test]
fn a_bundle_that_cannot_be_used_leaves_the_last_good_one_in_force() {
    let (root, backend) = (Authority::new("mesh"), Backend::echo());
    let mesh = trusting(&root, backend.address());
    let (good, bad) = (root.workload(WEB).issue(), root.workload(JOB).serial(8).issue());
    mesh.gateway.write("roots.yaml", &bundle(&root.pem(), &root.revocation_list(&[8])));
    eventually("the list", || !is_served(&mesh, &bad));
    // Of another authority with the same name: every handshake would fail.
    let forged = Authority::new("mesh").revocation_list(&[1]);
    for broken in [bundle(&root.pem(), &forged), bundle("nothing", ""), bundle(&root.pem(), BROKEN_LIST)] {
        mesh.gateway.write("roots.yaml", &broken);
        let reported = || {
            let findings = mesh.gateway.admin("/api/v1/diagnostics");
            findings.contains("InvalidTrustBundle") && findings.contains("the last good roots stay")
        };
        eventually("a finding", reported);
        assert!(is_served(&mesh, &good));
        assert!(!is_served(&mesh, &bad), "what was revoked stays so");
        mesh.gateway.write("roots.yaml", &bundle(&root.pem(), &root.revocation_list(&[8])));
        eventually("the repair", || {
            !mesh.gateway.admin("/api/v1/diagnostics").contains("InvalidTrustBundle")
        });
    }
    mesh.gateway.write("roots.yaml", &bundle(&root.pem(), ""));
    eventually("the list is gone", || is_served(&mesh, &bad));
}

const BROKEN_LIST: &str = "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n";

#[test]
fn roots_come_from_a_secret_as_well() {
    let (root, next, backend) = (Authority::new("mesh"), Authority::new("next"), Backend::echo());
    let roots = |roots: String, lists: &str| {
        let text = |pem: &str| pem.lines().map(|line| format!("    {line}\n")).collect::<String>();
        format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: roots, namespace: mesh}}\n\
             stringData:\n  ca.crt: |\n{}  ca.crl: |\n{}",
            text(&roots),
            text(lists)
        )
    };
    let setup = Setup::new().manifest("# nothing\n").setting("mesh-trust-bundle: secret:mesh/roots");
    let mesh = Mesh::start(setup, Ca::new(), backend.address(), &[]);
    let (old, new) = (root.workload(WEB).serial(5).issue(), next.workload(WEB).issue());
    assert!(!is_served(&mesh, &old), "nobody is verified against nothing");
    mesh.gateway.write("roots.yaml", &roots(root.pem(), ""));
    eventually("the roots", || is_served(&mesh, &old));
    assert!(!is_served(&mesh, &new));
    mesh.gateway.write("roots.yaml", &roots(root.pem() + &next.pem(), ""));
    eventually("the second root", || is_served(&mesh, &new));
    assert!(is_served(&mesh, &old));
    mesh.gateway.write("roots.yaml", &roots(root.pem() + &next.pem(), &root.revocation_list(&[5])));
    eventually("the list", || !is_served(&mesh, &old));
    assert!(is_served(&mesh, &new));
}

#[test]
fn roots_in_a_file_are_followed_through_links() {
    let (root, next, backend) = (Authority::new("mesh"), Authority::new("next"), Backend::echo());
    let folder = tempfile::tempdir().unwrap();
    let version = |name: &str, pem: String| {
        let version = folder.path().join(name);
        std::fs::create_dir(&version).unwrap();
        std::fs::write(version.join("root-cert.pem"), pem).unwrap();
        // As kubelet does it: a link beside, then renamed over the old one.
        std::os::unix::fs::symlink(name, folder.path().join("..data_tmp")).unwrap();
        std::fs::rename(folder.path().join("..data_tmp"), folder.path().join("..data")).unwrap();
    };
    version("..one", root.pem());
    std::os::unix::fs::symlink("..data/root-cert.pem", folder.path().join("root-cert.pem")).unwrap();
    let file = folder.path().join("root-cert.pem");
    let setup = Setup::new().setting(&format!("mesh-trust-bundle: {}", file.display()));
    let mesh = Mesh::start(setup, Ca::new(), backend.address(), &[]);
    let (old, new) = (root.workload(WEB).issue(), next.workload(WEB).issue());
    assert!(is_served(&mesh, &old), "from the first handshake on");
    version("..two", root.pem() + &next.pem());
    eventually("the new root", || is_served(&mesh, &new));
    std::fs::remove_file(folder.path().join("..data")).unwrap();
    eventually("a finding", || mesh.gateway.admin("/api/v1/diagnostics").contains("Unreadable"));
    thread::sleep(Duration::from_millis(100));
    assert!(is_served(&mesh, &new), "the last good roots stay");
}
