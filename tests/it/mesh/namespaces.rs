//! Transport policy where addresses matter: a gateway, workloads and clients on machines of their own.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::mpsc;

use portcullis::testing::certificates::PemPair;
use portcullis::testing::client::Client;
use portcullis::testing::eventually;
use portcullis::testing::hbone::NodeProxy;
use portcullis::testing::tcp::{TcpBackend, echo};

use super::setup::{
    Ca, GATEWAY, JOB, WEB, authorization, authorization_rule, bundle, peer_authentication, pod,
};
use crate::gateway::{Gateway, Setup};
use crate::manifests::{Ingress, secret};
use crate::network::Network;

const HBONE: u16 = 15008;

/// Machines `gateway`, `web`, `db`, `client` and `other`; the second and the third are workloads.
struct Cluster {
    // Before the network, which its process lives in.
    gateway: Gateway,
    network: Network,
    ca: Ca,
}

impl Cluster {
    fn new(setup: Setup) -> Self {
        Self::with_web(setup, &pod("web", "10.77.0.2"))
    }

    /// With this pod `web`.
    fn with_web(setup: Setup, web: &str) -> Self {
        let network = Network::new(&["gateway", "web", "db", "client", "other"]);
        let ca = Ca::new();
        let setup = setup
            .listening_at("::")
            .manifest(bundle(&ca.root(), ""))
            .manifest(secret("mesh", &ca.issue(GATEWAY)))
            .manifest(web.to_owned() + &pod("web6", "fd77::2"))
            .manifest(pod("db", "10.77.0.3"))
            .setting("hbone-certificate: default/mesh")
            .setting(&format!("hbone-port: {HBONE}"));
        let gateway = network.on("gateway", || setup.start());
        Self { gateway, network, ca }
    }

    fn echo_on(&self, machine: &str, port: u16) -> TcpBackend {
        let listener = self.network.on(machine, || TcpListener::bind(("::", port)).unwrap());
        TcpBackend::serve(listener, echo)
    }

    /// The answer to a CONNECT from a machine; a tunnel is tried out.
    fn ask(&self, machine: &str, pair: &PemPair, authority: &str) -> u16 {
        self.network.on(machine, || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let gateway = SocketAddr::from(([10, 77, 0, 1], HBONE));
                let mut proxy = NodeProxy::connect(gateway, Some(pair)).await.unwrap();
                let mut answer = proxy.open(authority).await.unwrap();
                if answer.status == 200 {
                    answer.echo("through the tunnel").await.unwrap();
                }
                answer.status
            })
        })
    }

    fn policy(&self, yaml: &str) {
        self.gateway.write("policy.yaml", yaml);
    }

    fn waits_for(&self, machine: &str, pair: &PemPair, authority: &str, status: u16) {
        eventually(&format!("{status} for {authority}"), || self.ask(machine, pair, authority) == status);
    }
}

#[test]
fn a_tunnel_leads_to_the_workload_that_it_names_and_nowhere_else() {
    let cluster = Cluster::new(
        Setup::new().manifest(pod("node", "10.77.0.5").replace("spec: {", "spec: {hostNetwork: true, ")),
    );
    let web = cluster.ca.issue(WEB);
    let backends: Vec<_> = ["web", "db", "other"].map(|machine| cluster.echo_on(machine, 8080)).into();
    let proxies: Vec<_> = [15001, 15006, 15008].map(|port| cluster.echo_on("web", port)).into();
    assert_eq!(cluster.ask("client", &web, "10.77.0.2:8080"), 200);
    assert_eq!(cluster.ask("client", &web, "[fd77::2]:8080"), 200);
    assert_eq!(cluster.ask("client", &web, "10.77.0.3:8080"), 200);
    assert_eq!((backends[0].accepted(), backends[1].accepted()), (2, 1));
    for authority in [
        // No workload, a machine with workloads on it, the client itself, the gateway itself.
        "10.77.0.9:8080",
        "10.77.0.5:8080",
        "10.77.0.4:8080",
        "10.77.0.1:8080",
        "127.0.0.1:8080",
        "[fd77::3]:8080",
        "10.77.0.2:15001",
        "10.77.0.2:15006",
        "10.77.0.2:15008",
        "10.77.0.1:15008",
    ] {
        assert_eq!(cluster.ask("client", &web, authority), 400, "{authority}");
    }
    // Nobody listens there.
    assert_eq!(cluster.ask("client", &web, "10.77.0.2:9"), 503);
    assert!(proxies.iter().chain(&backends[2..]).all(|backend| backend.accepted() == 0));
    // In the clear, the port of tunnels says nothing and passes nothing on.
    let said = cluster.network.on("client", || {
        let mut plain = Client::plain(SocketAddr::from(([10, 77, 0, 1], HBONE)));
        plain.send("CONNECT 10.77.0.2:8080 HTTP/1.1\r\nHost: 10.77.0.2:8080\r\n\r\n");
        plain.wire.take_all()
    });
    assert!(!said.starts_with(b"HTTP"), "{:?}", String::from_utf8_lossy(&said));
    assert_eq!(backends[0].accepted(), 2);
}

#[test]
fn only_the_waypoint_gets_through_where_policy_says_so() {
    let cluster = Cluster::new(Setup::new());
    let (waypoint, job) = (cluster.ca.issue(WEB), cluster.ca.issue(JOB));
    let backend = cluster.echo_on("web", 8080);
    cluster.policy(&authorization("ALLOW", "cluster.local/ns/shop/sa/web"));
    cluster.waits_for("client", &job, "10.77.0.2:8080", 401);
    let before = backend.accepted();
    assert_eq!(cluster.ask("client", &job, "10.77.0.2:8080"), 401);
    assert_eq!(backend.accepted(), before, "nothing reaches the workload");
    assert_eq!(cluster.ask("client", &waypoint, "10.77.0.2:8080"), 200);
    eventually("the reason in the log", || {
        cluster.gateway.log().contains("tunnel denied: allow policies exist, but none allowed")
    });
}

#[test]
fn policies_see_the_addresses_of_client_and_workload() {
    let cluster = Cluster::new(Setup::new());
    let web = cluster.ca.issue(WEB);
    let _backends = ["web", "db"].map(|machine| cluster.echo_on(machine, 8080));
    // The client's own address, as IPv4 although the gateway listens on IPv6 sockets.
    cluster.policy(&authorization_rule("ALLOW", "from: [{source: {ipBlocks: [\"10.77.0.4/32\"]}}]"));
    cluster.waits_for("other", &web, "10.77.0.2:8080", 401);
    assert_eq!(cluster.ask("client", &web, "10.77.0.2:8080"), 200);
    // The workload's address and port, never those of the tunnel.
    cluster.policy(&authorization_rule("DENY", "when: [{key: destination.ip, values: [\"10.77.0.3\"]}]"));
    cluster.waits_for("client", &web, "10.77.0.3:8080", 401);
    assert_eq!(cluster.ask("other", &web, "10.77.0.2:8080"), 200);
    cluster.policy(&authorization_rule("DENY", "to: [{operation: {ports: [\"8080\"]}}]"));
    cluster.waits_for("client", &web, "10.77.0.2:8080", 401);
    cluster.policy(&authorization_rule("DENY", "to: [{operation: {ports: [\"15008\"]}}]"));
    cluster.waits_for("client", &web, "10.77.0.2:8080", 200);
}

#[test]
fn plaintext_reaches_a_permissive_workload_and_not_a_strict_one() {
    let slices = |name: &str, address: &str| {
        crate::manifests::service(name, &[SocketAddr::new(address.parse().unwrap(), 8080)])
    };
    let ingress = |name: &str| {
        let host = format!("{name}.example");
        Ingress::new(name, &host).path("Prefix", "/", name).annotation("ssl-redirect", "false")
    };
    let cluster = Cluster::new(
        Setup::new()
            .manifest(slices("web", "10.77.0.2"))
            .manifest(slices("db", "10.77.0.3"))
            .manifest(crate::manifests::service("proxy", &["10.77.0.2:15006".parse().unwrap()]))
            .ingress(&ingress("proxy"))
            .ingress(&ingress("web"))
            .ingress(&ingress("db")),
    );
    let http: Vec<_> = ["web", "db"]
        .map(|machine| {
            let listener = cluster.network.on(machine, || TcpListener::bind(("::", 8080)).unwrap());
            TcpBackend::serve(listener, |mut connection| {
                let mut head = [0; 4096];
                let read = connection.read(&mut head).unwrap_or(0);
                if read > 0 {
                    let _ = connection
                        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                }
            })
        })
        .into();
    let port = cluster.gateway.http.port();
    let get = |host: &str| {
        cluster
            .network
            .on("client", || Client::plain(SocketAddr::from(([10, 77, 0, 1], port))).get(host, "/").status)
    };
    assert_eq!((get("web.example"), get("db.example")), (200, 200));
    // A port of the pod's own proxy is none of the pod, whatever a Service says.
    let proxy = cluster.echo_on("web", 15006);
    assert_eq!((get("proxy.example"), proxy.accepted()), (403, 0));
    cluster.policy(&peer_authentication("STRICT"));
    eventually("STRICT", || get("web.example") == 403);
    let before = http[0].accepted();
    assert_eq!((get("web.example"), get("db.example")), (403, 200));
    assert_eq!(http[0].accepted(), before);
}

#[test]
fn a_backend_in_the_mesh_is_reached_through_a_tunnel() {
    let to_web = crate::manifests::service("web", &["10.77.0.2:8080".parse().unwrap()]);
    let ambient = pod("web", "10.77.0.2").replace(
        "labels: {app: web}}",
        "labels: {app: web}, annotations: {ambient.istio.io/redirection: enabled}}",
    );
    let ingress =
        Ingress::new("web", "web.example").path("Prefix", "/", "web").annotation("ssl-redirect", "false");
    let cluster = Cluster::with_web(Setup::new().manifest(to_web).ingress(&ingress), &ambient);
    let (came, peers) = mpsc::channel::<IpAddr>();
    let listener = cluster.network.on("web", || TcpListener::bind(("::", 8080)).unwrap());
    let came = std::sync::Mutex::new(came);
    let backend = TcpBackend::serve(listener, move |mut connection| {
        came.lock().unwrap().send(connection.peer_addr().unwrap().ip().to_canonical()).unwrap();
        let mut head = [0; 4096];
        while connection.read(&mut head).is_ok_and(|length| length > 0) {
            let _ = connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });

    // Another gateway plays the node proxy of the workload; first it is somebody else.
    let folder = tempfile::tempdir().unwrap();
    let place = |pair: &PemPair| {
        std::fs::write(folder.path().join("tls.crt"), pair.certificates_pem()).unwrap();
        std::fs::write(folder.path().join("tls.key"), &pair.key_pem).unwrap();
    };
    place(&cluster.ca.issue(JOB));
    let setup = Setup::new()
        .listening_at("::")
        .manifest(bundle(&cluster.ca.root(), ""))
        .manifest(pod("web", "10.77.0.2"))
        .setting(&format!("hbone-certificate: {}", folder.path().display()))
        .setting(&format!("hbone-port: {HBONE}"));
    let node = cluster.network.on("web", || setup.start());
    let port = cluster.gateway.http.port();
    let get = || {
        cluster
            .network
            .on("client", || Client::plain(SocketAddr::from(([10, 77, 0, 1], port))).get("web.example", "/"))
    };
    let refused = get();
    assert_eq!(refused.status, 502);
    assert!(refused.text().contains("upstream_cert_wrong_name"), "{}", refused.text());
    assert_eq!(backend.accepted(), 0, "nor is it reached directly");

    place(&cluster.ca.issue("spiffe://cluster.local/ns/default/sa/web"));
    eventually("a tunnel to the workload", || get().status == 200);
    for _ in 0..5 {
        assert_eq!(get().text(), "ok");
    }
    let peers: Vec<_> = peers.try_iter().collect();
    assert!(peers.iter().all(|peer| *peer == IpAddr::from([10, 77, 0, 2])), "{peers:?}");
    assert_eq!(peers.len(), 1, "connections are kept, as directly");

    // What the node proxy refuses is the gateway's failure, not the client's.
    node.write("policy.yaml", &authorization("ALLOW", "cluster.local/ns/nowhere/sa/nobody"));
    eventually("the refusal", || {
        let refused = get();
        refused.status == 502 && refused.text().contains("upstream_tunnel_refused")
    });
    eventually("the gateway's name in the log of the node", || {
        node.log().lines().any(|line| line.contains("CONNECT") && line.contains("ns/ingress/sa/portcullis"))
    });
    node.write("policy.yaml", "# no policy\n");
    eventually("another tunnel", || get().status == 200);
}
