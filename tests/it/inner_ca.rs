//! The workload CA inside of the gateway: certificates for hosts, the gateway's own identity towards backends, its port
//! and its numbers, and all of it while everything is rotated.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use portcullis::testing::backend::Backend;
use portcullis::testing::certificates::{Authority, PemPair};
use portcullis::testing::client::Client;
use portcullis::testing::hbone::NodeProxy;
use portcullis::testing::ports;
use portcullis::testing::tcp::TcpBackend;
use portcullis::testing::{eventually, eventually_async};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use crate::gateway::{Gateway, Setup};
use crate::manifests::{Ingress, secret};

/// The state directory of a gateway, and commands on it.
struct State(tempfile::TempDir);

impl State {
    fn new() -> Self {
        let state = Self(tempfile::tempdir().unwrap());
        state.run(&["init"]);
        state
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, arguments: &[&str]) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
        command.args(["ca", "--state-dir"]).arg(self.path("state")).args(arguments);
        let output = command.current_dir(self.0.path()).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// cert-chain.pem, key.pem and root-cert.pem of an identity in a folder.
    fn issue(&self, id: &str, folder: &str) -> PathBuf {
        self.run(&["issue", "--spiffe", id, "--out", folder]);
        self.path(folder)
    }

    fn setup(&self, port: u16) -> Setup {
        Setup::new()
            .setting("ca: true")
            .setting(&format!("ca-port: {port}"))
            .setting(&format!("state-dir: {}", self.path("state").display()))
            .setting("ca-gateway-account: ingress/gateway")
    }
}

fn free_port() -> u16 {
    let [port] = ports::free();
    port
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn certificates(path: &Path) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_file_iter(path).unwrap().map(Result::unwrap).collect()
}

fn roots(path: &Path) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    certificates(path).into_iter().for_each(|root| roots.add(root).unwrap());
    roots
}

/// A client that trusts the CA alone.
struct Strict(Arc<ClientConfig>);

impl Strict {
    fn new(root_file: &Path) -> Self {
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots(root_file))
            .with_no_client_auth();
        Self(Arc::new(config))
    }

    /// One request on a new connection: status and certificate.
    fn get(&self, address: SocketAddr, host: &'static str) -> Result<(u16, CertificateDer<'static>), String> {
        let mut config = ClientConfig::clone(&self.0);
        // Each one a whole handshake.
        config.resumption = rustls::client::Resumption::disabled();
        let name = ServerName::try_from(host).unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let tcp = TcpStream::connect(address).map_err(|error| error.to_string())?;
        tcp.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut stream = StreamOwned::new(connection, tcp);
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).map_err(|error| error.to_string())?;
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        let text = String::from_utf8_lossy(&answer).into_owned();
        let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| format!("no answer: {read:?}"))?;
        Ok((status, stream.conn.peer_certificates().unwrap()[0].clone().into_owned()))
    }
}

/// A workload that answers only who shows a certificate of the CA, and remembers what was shown.
struct Workload {
    address: SocketAddr,
    shown: Arc<Mutex<BTreeSet<Vec<u8>>>>,
}

impl Workload {
    fn start(identity: &Path) -> Self {
        let trusted = Arc::new(roots(&identity.join("root-cert.pem")));
        let verifier = WebPkiClientVerifier::builder_with_provider(trusted, provider()).build().unwrap();
        let key = PrivateKeyDer::from_pem_file(identity.join("key.pem")).unwrap();
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(certificates(&identity.join("cert-chain.pem")), key)
            .unwrap();
        let (config, shown) = (Arc::new(config), Arc::<Mutex<BTreeSet<_>>>::default());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::clone(&shown);
        thread::spawn(move || {
            for tcp in listener.incoming().flatten() {
                let (config, seen) = (Arc::clone(&config), Arc::clone(&seen));
                thread::spawn(move || answer(tcp, config, &seen));
            }
        });
        Self { address, shown }
    }

    fn shown(&self) -> BTreeSet<Vec<u8>> {
        self.shown.lock().unwrap().clone()
    }
}

/// One request, then the end of the connection: so that each one is a handshake.
fn answer(tcp: TcpStream, config: Arc<ServerConfig>, seen: &Mutex<BTreeSet<Vec<u8>>>) {
    let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), tcp);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return,
        }
    }
    let leaf = stream.conn.peer_certificates().unwrap()[0].to_vec();
    seen.lock().unwrap().insert(leaf);
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi");
    stream.conn.send_close_notify();
    let _ = stream.flush();
}

/// A host whose certificate the CA makes, before a workload of the mesh.
fn host(workload: SocketAddr, state: &State, port: u16) -> Setup {
    let ingress = Ingress::new("a", "a.example").path("Prefix", "/", "web").tls("a-tls");
    let ingress = ingress.own_annotation("issue-certificate", "true").own_annotation("backend-mtls", "true");
    state.setup(port).service("web", &[workload]).ingress(&ingress)
}

#[test]
fn a_host_is_served_with_an_issued_certificate_before_a_workload_that_wants_ours() {
    let state = State::new();
    let identity = state.issue("spiffe://cluster.local/ns/default/sa/web", "web");
    let workload = Workload::start(&identity);
    let port = free_port();
    let account = "kind: ServiceAccount\nmetadata: {name: web, namespace: default}\n";
    let gateway = host(workload.address, &state, port).manifest(account).start();
    let client = Strict::new(&identity.join("root-cert.pem"));
    let mut answer = Err("never asked".to_owned());
    eventually("the host is served", || {
        answer = client.get(gateway.https, "a.example");
        matches!(answer, Ok((200, _)))
    });
    let shown = workload.shown().pop_last().unwrap();
    let (_, shown) = x509_parser::parse_x509_certificate(&shown).unwrap();
    let names = format!("{:?}", shown.subject_alternative_name().unwrap().unwrap().value.general_names);
    assert!(names.contains("spiffe://cluster.local/ns/ingress/sa/gateway"), "{names}");

    // The account's Secret, the CSR service on its port, and the numbers of the CA among those of the gateway.
    eventually("a Secret", || state.path("state/secrets/default/istio.web.json").exists());
    let address = format!("localhost:{port}");
    let renew =
        ["csr", "--address", &address, "--client-cert", "web/cert-chain.pem", "--client-key", "web/key.pem"];
    state.run(&[&renew[..], &["--out", "renewed"]].concat());
    state.run(&["verify", "renewed/cert-chain.pem"]);
    let metrics = Client::plain(gateway.admin).get("localhost", "/metrics");
    let metrics = String::from_utf8(metrics.body).unwrap();
    for line in
        ["citadel_server_success_cert_issuance_count 1", "citadel_server_root_cert_expiry_timestamp 2"]
    {
        assert!(metrics.contains(&format!("\n{line}")), "{line}");
    }
}

#[test]
fn a_backend_without_a_certificate_of_the_mesh_gets_nothing() {
    let state = State::new();
    let stranger = Backend::secured_echo(&Authority::new("stranger").leaf(&["a.example"]).issue());
    let gateway = host(stranger.address(), &state, free_port()).start();
    let identity = state.issue("spiffe://cluster.local/ns/default/sa/web", "web");
    let client = Strict::new(&identity.join("root-cert.pem"));
    let mut answer = Err("never asked".to_owned());
    eventually("the host is served", || {
        answer = client.get(gateway.https, "a.example");
        answer.is_ok()
    });
    assert_eq!(answer.unwrap().0, 502);
    assert!(stranger.requests().is_empty());
}

#[test]
fn a_ca_that_cannot_start_says_why_and_the_gateway_serves() {
    let state = State::new();
    let broken = state.path("broken");
    std::fs::create_dir(&broken).unwrap();
    std::fs::write(broken.join("ca-key.pem"), "key").unwrap();
    let backend = Backend::echo();
    let ingress = Ingress::new("a", "a.example").path("Prefix", "/", "web");
    let setup = state.setup(free_port()).service("web", &[backend.address()]).ingress(&ingress);
    let gateway = setup.setting(&format!("ca-dir: {}", broken.display())).start();
    assert_eq!(gateway.client().get("a.example", "/").status, 200);
    eventually("a finding", || {
        let answer = Client::plain(gateway.admin).get("localhost", "/api/v1/diagnostics");
        let text = String::from_utf8(answer.body).unwrap();
        text.contains("WorkloadCaDown") && text.contains("missing ca-cert.pem, root-cert.pem, cert-chain.pem")
    });
}

/// What the CA is for, all at once: root, leaf of the host and the gateway's own certificate change every second.
#[test]
fn rotation_every_second_under_load_fails_no_handshake() {
    let state = State::new();
    let identity = state.issue("spiffe://cluster.local/ns/default/sa/web", "web");
    let workload = Workload::start(&identity);
    let gateway = host(workload.address, &state, free_port()).start();
    // Who has the first root only must verify what comes later: the key stays.
    let client = Strict::new(&identity.join("root-cert.pem"));
    eventually("the host is served", || matches!(client.get(gateway.https, "a.example"), Ok((200, _))));
    let (served, asked) = load(&gateway, &client, &state);
    assert!(asked > 20, "the load was none: {asked} handshakes");
    assert!(served > 1, "{served} certificates of the host in {asked} handshakes");
    let shown = workload.shown().len();
    assert!(shown > 1, "{shown} certificates of the gateway in {asked} handshakes");
}

/// Certificates that were served, and handshakes, in eight seconds with a rotation in each.
fn load(gateway: &Gateway, client: &Strict, state: &State) -> (usize, usize) {
    let (stop, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    let served = Mutex::new(BTreeSet::new());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let answer = client.get(gateway.https, "a.example");
                    let Ok((200, certificate)) = answer else {
                        stop.store(true, Ordering::Relaxed);
                        panic!("{answer:?}");
                    };
                    served.lock().unwrap().insert(certificate.to_vec());
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let end = Instant::now() + Duration::from_secs(8);
        while Instant::now() < end && !stop.load(Ordering::Relaxed) {
            let next = Instant::now() + Duration::from_secs(1);
            state.run(&["rotate"]);
            // A Secret that is gone is made anew, with another key.
            let _ = std::fs::remove_file(state.path("state/secrets/default/a-tls.json"));
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        stop.store(true, Ordering::Relaxed);
    });
    (served.into_inner().unwrap().len(), asked.into_inner())
}

/// With what is in the Secret beside it, or without: each new certificate is served.
#[test]
fn any_change_of_a_tls_secret_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("public");
    let root = folder.path().join("root.pem");
    std::fs::write(&root, authority.pem()).unwrap();
    let client = Strict::new(&root);
    let backend = Backend::echo();
    let ingress = Ingress::new("a", "a.example").path("Prefix", "/", "web").tls("a-tls");
    let gateway = Setup::new().service("web", &[backend.address()]).ingress(&ingress).start();
    let bundle = |pem: &str| {
        let lines: String = pem.lines().map(|line| format!("    {line}\n")).collect();
        format!("  ca.crt: |\n{lines}")
    };
    let (one, other) = (bundle(&authority.pem()), bundle(&Authority::new("other").pem()));
    // The certificate alone changes; then what is beside it goes, comes back, and is another.
    for beside in [one.as_str(), one.as_str(), "", one.as_str(), other.as_str()] {
        let pair = authority.leaf(&["a.example"]).issue();
        gateway.write("secret.yaml", &(secret("a-tls", &pair) + beside));
        let wanted = CertificateDer::from_pem_slice(pair.leaf_pem.as_bytes()).unwrap();
        eventually("the new certificate", || {
            client
                .get(gateway.https, "a.example")
                .is_ok_and(|(status, served)| status == 200 && served == wanted)
        });
    }
}

/// Everything of the mesh from the CA within: the gateway's certificate, the roots, and the client's.
#[tokio::test]
async fn tunnels_are_taken_with_certificates_of_the_ca_within_and_of_nobody_else() {
    let (state, backend) = (State::new(), TcpBackend::echo());
    let hbone = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let account = |namespace: &str, name: &str| {
        format!("---\nkind: ServiceAccount\nmetadata: {{name: {name}, namespace: {namespace}}}\n")
    };
    let objects = [
        "kind: Namespace\nmetadata: {name: istio-system}\n".to_owned(),
        account("ingress", "gateway"),
        account("batch", "job"),
        "---\napiVersion: v1\nkind: Pod\nmetadata: {name: web-0, namespace: default, labels: {app: web}}\n\
         spec: {serviceAccountName: web}\nstatus: {podIP: 127.0.0.1}\n"
            .to_owned(),
        "---\napiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: jobs, namespace: default}\n\
         spec: {rules: [{from: [{source: {principals: [cluster.local/ns/batch/sa/job]}}]}]}\n"
            .to_owned(),
    ];
    let ingress = Ingress::new("a", "a.example").path("Prefix", "/", "web").tls("a-tls");
    let gateway = state
        .setup(free_port())
        .setting(&format!("hbone-port: {}", hbone.port()))
        .setting("hbone-certificate: ingress/istio.gateway")
        .manifest(objects.concat())
        .service("web", &[backend.address])
        .ingress(&ingress.own_annotation("issue-certificate", "true"))
        .start();
    let job = issued(&state, "batch", "job").await;
    // The first certificates may be younger than the first snapshot.
    let mut proxy = None;
    for _ in 0..1000 {
        match NodeProxy::connect(hbone, Some(&job)).await {
            Ok(connected) => {
                proxy = Some(connected);
                break;
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    let mut tunnel = proxy.expect("a node proxy is let in").tunnel(backend.address).await;
    assert_eq!(tunnel.status, 200);
    tunnel.echo("by the CA within").await.unwrap();

    let own = issued(&state, "ingress", "gateway").await;
    let refused = NodeProxy::connect(hbone, Some(&own)).await.unwrap().tunnel(backend.address).await;
    assert_eq!(refused.status, 401, "the policy admits jobs alone");
    let stranger = Authority::new("elsewhere").leaf(&["job"]).issue();
    // With TLS 1.3 the client may think itself welcome until it asks for something.
    let turned_away = match NodeProxy::connect(hbone, Some(&stranger)).await {
        Ok(mut proxy) => proxy.open(&backend.address.to_string()).await.is_err(),
        Err(_) => true,
    };
    assert!(turned_away, "of another CA");
    drop(gateway);
}

/// What is in the Secret of a ServiceAccount, once there is one.
async fn issued(state: &State, namespace: &str, account: &str) -> PemPair {
    let file = state.path(&format!("state/secrets/{namespace}/istio.{account}.json"));
    eventually_async("the Secret of an account", || file.exists()).await;
    let secret: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let read = |key: &str| {
        let bytes = base64::prelude::BASE64_STANDARD.decode(secret["data"][key].as_str().unwrap()).unwrap();
        String::from_utf8(bytes).unwrap()
    };
    PemPair { leaf_pem: read("cert-chain.pem"), chain_pem: String::new(), key_pem: read("key.pem") }
}
