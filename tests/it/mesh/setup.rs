//! A gateway of the mesh with its certificates, before a workload.

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use portcullis::testing::certificates::{Authority, PemPair};
use portcullis::testing::client::Client;
use portcullis::testing::eventually;
use portcullis::testing::message::Response;
use portcullis::testing::ports;
use portcullis::testing::wire::Wire;

use crate::gateway::{Gateway, Setup};
use crate::manifests::{Ingress, secret};

pub const WEB: &str = "spiffe://cluster.local/ns/shop/sa/web";
pub const JOB: &str = "spiffe://cluster.local/ns/batch/sa/job";
pub const GATEWAY: &str = "spiffe://cluster.local/ns/ingress/sa/portcullis";
pub const NOTHING: &str = "# no policy\n";

/// The workload CA, by its command.
pub struct Ca(tempfile::TempDir);

impl Ca {
    pub fn new() -> Self {
        let ca = Self(tempfile::tempdir().unwrap());
        ca.run(&["init"]);
        ca
    }

    fn run(&self, arguments: &[&str]) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
        command.args(["ca", "--state-dir"]).arg(self.0.path().join("state")).args(arguments);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    pub fn issue(&self, id: &str) -> PemPair {
        let folder = self.folder();
        self.run(&["issue", "--spiffe", id, "--out", folder.to_str().unwrap()]);
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        PemPair { leaf_pem: read("cert-chain.pem"), chain_pem: String::new(), key_pem: read("key.pem") }
    }

    /// Where the last certificate was issued to, in the layout of Citadel.
    pub fn folder(&self) -> PathBuf {
        self.0.path().join("issued")
    }

    pub fn root(&self) -> String {
        self.issue(WEB);
        std::fs::read_to_string(self.folder().join("root-cert.pem")).unwrap()
    }
}

fn indented(pem: &str) -> String {
    pem.lines().map(|line| format!("    {line}\n")).collect()
}

/// The ConfigMap that the gateway reads roots from, and revocation lists where there are any.
pub fn bundle(roots: &str, lists: &str) -> String {
    let lists = match lists {
        "" => String::new(),
        lists => format!("  ca-crl.pem: |\n{}", indented(lists)),
    };
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: istio-ca-root-cert, namespace: istio-system}}\n\
         data:\n  root-cert.pem: |\n{}{lists}",
        indented(roots)
    )
}

/// A workload in namespace `default` whose pod has the label `app: NAME`.
pub fn pod(name: &str, address: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}-0, namespace: default, labels: {{app: {name}}}}}\n\
         spec: {{serviceAccountName: {name}}}\nstatus: {{podIP: \"{address}\"}}\n"
    )
}

/// A gateway with a mesh port and an HBONE port in front of workload `web`.
pub struct Mesh {
    pub gateway: Gateway,
    pub port: SocketAddr,
    pub hbone: SocketAddr,
    pub ca: Ca,
}

impl Mesh {
    /// With roots, and a certificate of its own, from the workload CA.
    pub fn before(backend: SocketAddr, settings: &[&str]) -> Self {
        Self::before_pod(&pod("web", "127.0.0.1"), backend, settings)
    }

    /// As [`before`](Self::before), with another manifest of the pod.
    pub fn before_pod(pod: &str, backend: SocketAddr, settings: &[&str]) -> Self {
        let ca = Ca::new();
        let setup = Setup::new()
            .manifest(bundle(&ca.root(), ""))
            .manifest(secret("mesh", &ca.issue(GATEWAY)))
            .setting("hbone-certificate: default/mesh");
        Self::start_with(setup.manifest(pod), ca, backend, settings)
    }

    /// With whatever roots and certificate `setup` has.
    pub fn start(setup: Setup, ca: Ca, backend: SocketAddr, settings: &[&str]) -> Self {
        Self::start_with(setup.manifest(pod("web", "127.0.0.1")), ca, backend, settings)
    }

    /// With the pod of `setup`, too.
    pub fn start_with(setup: Setup, ca: Ca, backend: SocketAddr, settings: &[&str]) -> Self {
        let [port, hbone] = ports::free_addresses();
        let pair = Authority::new("public").leaf(&["a.example"]).issue();
        let ingress = Ingress::new("a", "a.example").path("Prefix", "/", "web").tls("a-tls");
        let setup = setup
            .service("web", &[backend])
            .secret("a-tls", &pair)
            .ingress(&ingress.annotation("ssl-redirect", "false"))
            .setting(&format!("mesh-port: {}", port.port()))
            .setting(&format!("hbone-port: {}", hbone.port()));
        let gateway = settings.iter().fold(setup, |setup, line| setup.setting(line)).start();
        Self { gateway, port, hbone, ca }
    }

    pub fn policy(&self, yaml: &str) {
        self.gateway.write("policy.yaml", yaml);
    }

    /// Writes `policy` and takes it back several times, faster than anybody can look; in the end it is in force for `pair`.
    pub fn flip(&self, policy: &str, pair: &PemPair) {
        for _ in 0..6 {
            self.policy(policy);
            thread::sleep(Duration::from_millis(150));
            self.policy(NOTHING);
            thread::sleep(Duration::from_millis(150));
        }
        self.policy(policy);
        self.waits_for("the last flip", 403, || self.as_(pair));
    }

    /// What `portcullis status` says.
    pub fn status(&self) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
        let output = command.args(["status", "--admin", &self.gateway.admin.to_string()]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn plain(&self) -> Client {
        Client::plain(self.gateway.http)
    }

    pub fn anonymous(&self) -> Client {
        Client::tls(self.port, Some("a.example"))
    }

    pub fn as_(&self, pair: &PemPair) -> Client {
        self.try_as(pair).unwrap()
    }

    /// Whether the certificate is accepted may show in the first exchange only.
    pub fn try_as(&self, pair: &PemPair) -> std::io::Result<Client> {
        let tcp = TcpStream::connect(self.port).unwrap();
        let wire = Wire::mutual(tcp, "a.example", &pair.certificates_pem(), &pair.key_pem)?;
        Ok(Client { wire })
    }

    pub fn waits_for(&self, what: &str, status: u16, client: impl Fn() -> Client) -> Response {
        let mut answer = None;
        eventually(what, || {
            let response = client().get("a.example", "/");
            let hit = response.status == status;
            answer = Some(response);
            hit
        });
        answer.unwrap()
    }
}

pub fn peer_authentication(mode: &str) -> String {
    format!(
        "---\napiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {{name: p, namespace: default}}\n\
         spec: {{selector: {{matchLabels: {{app: web}}}}, mtls: {{mode: {mode}}}}}\n"
    )
}

pub fn authorization(action: &str, principal: &str) -> String {
    authorization_rule(action, &format!("from: [{{source: {{principals: [\"{principal}\"]}}}}]"))
}

/// A policy of namespace `default` with one rule.
pub fn authorization_rule(action: &str, rule: &str) -> String {
    format!(
        "---\napiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {{name: a, namespace: default}}\n\
         spec: {{action: {action}, rules: [{{{rule}}}]}}\n"
    )
}
