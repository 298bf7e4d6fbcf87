//! Tunnels in a cluster: the workload CA publishes the roots and makes the certificates, pods and policies come from the
//! API server, and bytes go through the gateway to a pod at a real address, in both directions of the mesh.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use portcullis::testing::certificates::PemPair;
use portcullis::testing::hbone::{Answer, NodeProxy};
use portcullis::testing::ports;
use portcullis::testing::tcp::{TcpBackend, echo};
use tokio::runtime::{Builder, Runtime};

use super::backend::Backend;
use super::ca::{RBAC, Service, kubeconfig};
use super::control_plane::ControlPlane;
use super::eventually;
use super::gateway::Gateway;
use super::policies::{apply_crds, apply_pod};
use super::secrets::ingress;

const HOST: &str = "mesh.example.com";
/// Where node proxies take tunnels.
const HBONE: u16 = 15008;

/// A gateway with a port for tunnels, and a CA, in front of the pod `mesh/web-0` that a node proxy takes tunnels for.
struct Mesh {
    // Before the control plane, which they speak with.
    gateway: Gateway,
    _ca: Service,
    plane: ControlPlane,
    runtime: Runtime,
    tunnels: SocketAddr,
    /// The one that the Ingress leads to.
    web: Backend,
    /// In the same pod, at another port.
    echo: TcpBackend,
}

impl Mesh {
    fn start() -> Option<Self> {
        let plane = ControlPlane::start()?;
        for namespace in ["istio-system", "ingress", "mesh"] {
            plane.namespace(namespace);
        }
        apply_crds(&plane);
        plane.apply(RBAC);
        let ca = Service::start(&plane, &kubeconfig(&plane), &[]);
        for (namespace, account) in [("ingress", "gateway"), ("mesh", "web"), ("mesh", "client")] {
            plane.kubectl(&["-n", namespace, "create", "serviceaccount", account]);
        }
        let web = Backend::start("through");
        let echo = TcpBackend::serve(TcpListener::bind((web.address(), 0)).unwrap(), echo);
        plane.apply(&web.manifest("mesh", "web"));
        plane.apply(
            &ingress("mesh", "web", HOST, "none")
                .replace("  tls: [{ hosts: [mesh.example.com], secretName: none }]\n", ""),
        );
        apply_pod(&plane, "ambient.istio.io/redirection: enabled", web.address());
        let [port] = ports::free();
        let gateway =
            Gateway::start(&plane.kubeconfig(), &[&settings(&plane, port, "ingress/istio.gateway")]);
        let tunnels = (Ipv4Addr::LOCALHOST, port).into();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        Some(Self { gateway, _ca: ca, plane, runtime, tunnels, web, echo })
    }

    /// What the CA made for an account of namespace `mesh`.
    fn identity(&self, account: &str) -> PemPair {
        let secret = format!("istio.{account}");
        let read = |key: &str| {
            let path = format!("jsonpath={{.data.{}}}", key.replace('.', "\\."));
            let text = self.plane.try_kubectl(&["-n", "mesh", "get", "secret", &secret, "-o", &path], "")?;
            let bytes = BASE64_STANDARD.decode(text).map_err(|error| error.to_string())?;
            String::from_utf8(bytes).map_err(|error| error.to_string())
        };
        eventually("the CA makes no certificate", || {
            Ok(PemPair {
                leaf_pem: read("cert-chain.pem")?,
                chain_pem: String::new(),
                key_pem: read("key.pem")?,
            })
        })
    }

    /// Asks for a tunnel over a connection of its own.
    fn connect(&self, pair: Option<&PemPair>, authority: &str) -> Result<(NodeProxy, Answer), String> {
        self.runtime.block_on(async {
            let mut proxy =
                NodeProxy::connect(self.tunnels, pair).await.map_err(|error| error.to_string())?;
            let answer = proxy.open(authority).await.map_err(|error| error.to_string())?;
            Ok((proxy, answer))
        })
    }

    /// Waits until a tunnel to the pod is answered with this status.
    #[track_caller]
    fn expect(&self, pair: &PemPair, status: u16) -> (NodeProxy, Answer) {
        let authority = self.echo.address.to_string();
        eventually(&format!("a tunnel is not answered with {status}"), || {
            match self.connect(Some(pair), &authority)? {
                (proxy, answer) if answer.status == status => Ok((proxy, answer)),
                (_, answer) => Err(answer.status.to_string()),
            }
        })
    }

    fn echoes(&self, tunnel: &mut Answer, text: &str) {
        self.runtime.block_on(tunnel.echo(text)).unwrap();
    }

    /// The connections that the pod has taken: all that were opened so far, for they come in order and the last one, by
    /// `pair`, has been answered.
    fn accepted(&self, pair: &PemPair) -> usize {
        let (_connection, mut tunnel) = self.expect(pair, 200);
        self.echoes(&mut tunnel, "the last");
        self.echo.accepted()
    }

    fn policy(&self, kind: &str, spec: &str) {
        self.plane.apply(&format!(
            "apiVersion: security.istio.io/v1\nkind: {kind}\nmetadata: {{ namespace: mesh, name: p }}\nspec: {spec}\n"
        ));
    }

    fn denies(&self, account: &str) {
        let principal = format!("cluster.local/ns/mesh/sa/{account}");
        let from = format!("from: [{{ source: {{ principals: [\"{principal}\"] }} }}]");
        self.policy("AuthorizationPolicy", &format!("{{ action: DENY, rules: [{{ {from} }}] }}"));
    }
}

#[test]
fn a_node_proxy_reaches_a_pod_for_as_long_as_policy_lets_it() {
    let Some(mesh) = Mesh::start() else { return };
    let (client, other) = (mesh.identity("client"), mesh.identity("web"));
    let (_connection, mut tunnel) = mesh.expect(&client, 200);
    mesh.echoes(&mut tunnel, "there and back");
    let (_other, mut stays) = mesh.expect(&other, 200);

    // Whoever may not goes, and nobody else does.
    mesh.denies("client");
    mesh.expect(&client, 401);
    assert!(mesh.runtime.block_on(tunnel.rest()).is_err(), "a tunnel that is denied is reset");
    mesh.echoes(&mut stays, "still there");
    let before = mesh.accepted(&other);
    mesh.expect(&client, 401);
    assert_eq!(mesh.echo.accepted(), before, "nothing reaches the pod");
    mesh.plane.kubectl(&["-n", "mesh", "delete", "authorizationpolicy", "p"]);
    let (_connection, mut tunnel) = mesh.expect(&client, 200);
    mesh.echoes(&mut tunnel, "again");

    // No pod is there; ports of proxies are none of a pod.
    let (pod, port) = (mesh.echo.address.ip(), mesh.echo.address.port());
    let elsewhere = SocketAddr::new(Ipv4Addr::new(198, 51, 100, 7).into(), port);
    for target in [elsewhere, SocketAddr::new(pod, HBONE), SocketAddr::new(pod, 15001)] {
        let (_, answer) = mesh.connect(Some(&client), &target.to_string()).unwrap();
        assert_eq!(answer.status, 400, "{target}");
    }

    // STRICT is nothing to who has an identity, and nobody else is let in here.
    mesh.policy("PeerAuthentication", "{ mtls: { mode: STRICT } }");
    mesh.gateway.expect_http(HOST, 403);
    mesh.expect(&client, 200);
    let before = mesh.accepted(&other);
    assert!(mesh.connect(None, &mesh.echo.address.to_string()).is_err());
    assert_eq!(mesh.echo.accepted(), before);
    mesh.echoes(&mut tunnel, "all the while");
}

#[test]
fn a_backend_that_a_node_proxy_takes_tunnels_for_is_reached_by_one() {
    let Some(mesh) = Mesh::start() else { return };
    // While there is no node proxy the pod is not reached another way.
    mesh.gateway.expect_http(HOST, 502);
    let node = node_proxy(&mesh.plane, mesh.web.address());
    let answer = eventually("the pod is not reached", || match mesh.gateway.http(HOST)? {
        answer if answer.status == 200 => Ok(answer),
        answer => Err(format!("{answer:?}")),
    });
    assert_eq!(answer.body, "through");
    let opened = |node: &Gateway| {
        let metrics = node.admin("/metrics").unwrap().body;
        metrics.contains("portcullis_hbone_tunnels_total{result=\"opened\"} 1\n")
    };
    assert!(opened(&node), "the request went through one tunnel");

    // Whom the node proxy sees is the gateway, not the client, who has no identity that a policy could deny. The tunnel
    // that is open goes, and another is not to be had.
    let principal = "cluster.local/ns/ingress/sa/gateway";
    mesh.policy(
        "AuthorizationPolicy",
        &format!("{{ action: DENY, rules: [{{ from: [{{ source: {{ principals: [{principal}] }} }}] }}] }}"),
    );
    eventually("the node proxy lets the gateway in", || match mesh.gateway.http(HOST)? {
        answer if answer.status == 502 && answer.body.contains("upstream_tunnel_refused") => Ok(()),
        answer => Err(format!("{answer:?}")),
    });
    let opened = |line: &str| line.contains("CONNECT") && line.contains(" 200 ") && line.contains(principal);
    eventually("the tunnel is not in the log", || match node.log() {
        log if log.lines().any(opened) => Ok(()),
        log => Err(log),
    });
    mesh.plane.kubectl(&["-n", "mesh", "delete", "authorizationpolicy", "p"]);
    mesh.gateway.expect_http(HOST, 200);
}

/// The argument that names a settings file with this port for tunnels and this Secret.
fn settings(plane: &ControlPlane, port: u16, certificate: &str) -> String {
    let file = plane.path().join(format!("settings-{port}.yaml"));
    fs::write(&file, format!("hbone-port: {port}\nhbone-certificate: {certificate}\n")).unwrap();
    format!("--settings={}", file.display())
}

/// Another gateway in the place of the pod's node proxy: at its address, with the identity of its account.
fn node_proxy(plane: &ControlPlane, pod: IpAddr) -> Gateway {
    let ports: [u16; 3] = ports::free();
    let [http, https, admin] = ports;
    let arguments = [
        "--source=kubernetes".to_owned(),
        "--workers=1".to_owned(),
        format!("--bind-address={pod}"),
        format!("--http-port={http}"),
        format!("--https-port={https}"),
        format!("--admin-port={admin}"),
        settings(plane, HBONE, "mesh/istio.web"),
    ];
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let node = Gateway::start_as_told(&plane.kubeconfig(), &arguments, ports);
    node.wait_until_ready();
    node
}
