//! Transport policy through the real binary, with certificates of the workload CA: who is let to a workload, what
//! it is told about the client, and what becomes of open exchanges when policies change.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use portcullis::testing::backend::{After, Backend};
use portcullis::testing::certificates::Authority;
use portcullis::testing::client::Client;
use portcullis::testing::eventually;
use portcullis::testing::message::Response;
use portcullis::testing::wire::Wire;

use crate::gateway::{Gateway, Setup};
use crate::manifests::Ingress;

const WEB: &str = "spiffe://cluster.local/ns/shop/sa/web";
const JOB: &str = "spiffe://cluster.local/ns/batch/sa/job";

/// The workload CA, by its command.
struct Ca(tempfile::TempDir);

/// A certificate with its key.
struct Identity {
    chain: String,
    key: String,
}

impl Ca {
    fn new() -> Self {
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

    fn issue(&self, id: &str) -> Identity {
        let folder = self.folder();
        self.run(&["issue", "--spiffe", id, "--out", folder.to_str().unwrap()]);
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        Identity { chain: read("cert-chain.pem"), key: read("key.pem") }
    }

    fn folder(&self) -> PathBuf {
        self.0.path().join("issued")
    }

    /// The ConfigMap that the gateway reads roots from.
    fn roots(&self) -> String {
        self.issue(WEB);
        let pem = std::fs::read_to_string(self.folder().join("root-cert.pem")).unwrap();
        let indented: String = pem.lines().map(|line| format!("    {line}\n")).collect();
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: istio-ca-root-cert, namespace: istio-system}}\n\
             data:\n  root-cert.pem: |\n{indented}"
        )
    }
}

/// A gateway with a mesh port in front of one workload, whose pod has the label `app: web`.
struct Mesh {
    gateway: Gateway,
    port: SocketAddr,
    ca: Ca,
}

impl Mesh {
    fn before(backend: &Backend, settings: &[&str]) -> Self {
        let ca = Ca::new();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap();
        drop(listener);
        let pair = Authority::new("public").leaf(&["a.example"]).issue();
        let ingress = Ingress::new("a", "a.example").path("Prefix", "/", "web").tls("a-tls");
        let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web-0, namespace: default, labels: {app: web}}\n\
                   spec: {serviceAccountName: web}\nstatus: {podIP: 127.0.0.1}\n";
        let setup = Setup::new()
            .service("web", &[backend.address()])
            .secret("a-tls", &pair)
            .ingress(&ingress.annotation("ssl-redirect", "false"))
            .manifest(ca.roots())
            .manifest(pod)
            .setting(&format!("mesh-port: {}", port.port()));
        let gateway = settings.iter().fold(setup, |setup, line| setup.setting(line)).start();
        Self { gateway, port, ca }
    }

    fn policy(&self, yaml: &str) {
        self.gateway.write("policy.yaml", yaml);
    }

    fn plain(&self) -> Client {
        Client::plain(self.gateway.http)
    }

    fn anonymous(&self) -> Client {
        Client::tls(self.port, Some("a.example"))
    }

    fn as_(&self, identity: &Identity) -> Client {
        let tcp = TcpStream::connect(self.port).unwrap();
        Client { wire: Wire::mutual(tcp, "a.example", &identity.chain, &identity.key).unwrap() }
    }

    fn waits_for(&self, what: &str, status: u16, client: impl Fn() -> Client) -> Response {
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

fn peer_authentication(mode: &str) -> String {
    format!(
        "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {{name: p, namespace: default}}\n\
         spec: {{selector: {{matchLabels: {{app: web}}}}, mtls: {{mode: {mode}}}}}\n"
    )
}

fn authorization(action: &str, principal: &str) -> String {
    format!(
        "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {{name: a, namespace: default}}\n\
         spec: {{action: {action}, rules: [{{from: [{{source: {{principals: [\"{principal}\"]}}}}]}}]}}\n"
    )
}

const NOTHING: &str = "# no policy\n";

#[test]
fn strict_refuses_who_shows_no_certificate_and_permissive_does_not() {
    let backend = Backend::echo();
    let mesh = Mesh::before(&backend, &[]);
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
}

#[test]
fn policies_tell_identities_apart() {
    let backend = Backend::echo();
    let mesh = Mesh::before(&backend, &[]);
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
    let mut public = Client { wire: Wire::mutual(tcp, "a.example", &web.chain, &web.key).unwrap() };
    assert_eq!(public.get("a.example", "/").status, 403);
}

#[test]
fn foreign_certificates_are_turned_away_in_the_handshake() {
    let backend = Backend::echo();
    let mesh = Mesh::before(&backend, &[]);
    let other = Ca::new();
    for (identity, what) in [
        (mesh.ca.issue("spiffe://partner.example/ns/shop/sa/web"), "another trust domain"),
        (other.issue(WEB), "another authority"),
    ] {
        let tcp = TcpStream::connect(mesh.port).unwrap();
        let Ok(mut wire) = Wire::mutual(tcp, "a.example", &identity.chain, &identity.key) else { continue };
        let _ = wire.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
        assert!(matches!(wire.fill(), Err(_) | Ok(0)), "{what}");
    }
    assert!(backend.requests().is_empty());
}

#[test]
fn the_workload_is_told_who_was_verified_and_nothing_else() {
    let backend = Backend::echo();
    let mesh = Mesh::before(&backend, &[]);
    let web = mesh.ca.issue(WEB);
    let request = "GET / HTTP/1.1\r\nHost: a.example\r\nX-Forwarded-Client-Cert: By=a;Hash=b\r\n\
                   x-forwarded-client-cert: By=c\r\nx_forwarded_client_cert: By=d\r\n\r\n";
    mesh.plain().ask(request);
    mesh.anonymous().ask(request);
    mesh.as_(&web).ask(request);
    let requests = backend.requests();
    let [plain, anonymous, mutual] = &requests[..] else { panic!("{requests:#?}") };
    let elements = |request: &portcullis::testing::message::Request| {
        request.fields.all("x-forwarded-client-cert").map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(elements(plain).is_empty() && elements(anonymous).is_empty());
    let [element] = &elements(mutual)[..] else { panic!("{mutual:#?}") };
    assert!(element.starts_with("Hash=") && element.contains(&format!("URI={WEB}")), "{element}");
    assert!(!element.contains("By="), "{element}");
}

#[test]
fn what_came_is_appended_to_where_the_peer_is_trusted() {
    let backend = Backend::echo();
    let settings = ["forward-client-cert: append-forward", "forward-client-cert-cidr: 127.0.0.0/8"];
    let mesh = Mesh::before(&backend, &settings);
    let web = mesh.ca.issue(WEB);
    let request = "GET / HTTP/1.1\r\nHost: a.example\r\nx-forwarded-client-cert: By=a;Hash=b\r\n\r\n";
    mesh.as_(&web).ask(request);
    let value = backend.only_request().field("x-forwarded-client-cert").unwrap().to_owned();
    assert!(value.starts_with("By=a;Hash=b,Hash="), "{value}");
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
    let mesh = Mesh::before(&backend, &[]);
    let (web, job) = (mesh.ca.issue(WEB), mesh.ca.issue(JOB));
    let open = |identity: &Identity| {
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
    let mesh = Mesh::before(&backend, &[]);
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
        for _ in 0..6 {
            mesh.policy(&deny);
            thread::sleep(Duration::from_millis(150));
            mesh.policy(NOTHING);
            thread::sleep(Duration::from_millis(150));
        }
        mesh.policy(&deny);
        mesh.waits_for("the last flip", 403, || mesh.as_(&job));
        stop.store(true, Ordering::Relaxed);
    });
    assert!(opened.load(Ordering::Relaxed) > 10);
    assert!(backend.requests().iter().any(|request| request.target == "/endless"), "some were admitted");
}
