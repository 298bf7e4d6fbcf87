//! The gateway as clients that look at staples see it: the real binary with a folder of Secrets and Ingresses.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use portcullis::testing::openssl::certificate_pem;
use portcullis::tls::ocsp::testing::{Ca, Issued};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use serde_json::Value;
use tempfile::TempDir;

/// How long anything here may take before it counts as never.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `condition` holds; says `what` was awaited where it never does.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "never came true: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A gateway with its folder, which outlives the process.
pub struct Site {
    folder: TempDir,
    process: Option<Child>,
    https: SocketAddr,
    admin: SocketAddr,
}

/// What a client was shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub leaf: CertificateDer<'static>,
    pub staple: Option<Vec<u8>>,
}

impl Site {
    /// Not started yet. The loopback address is allowed for responders unless `settings` say otherwise.
    pub fn new(settings: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("manifests")).unwrap();
        let site = Self { folder, process: None, https: loopback(0), admin: loopback(0) };
        site.set(settings);
        site
    }

    /// Replaces the settings.
    pub fn set(&self, settings: &[&str]) {
        let mut text = "workers: 1\nlog-level: debug\n".to_owned();
        if !settings.iter().any(|line| line.starts_with("ocsp-allowed-cidrs")) {
            text += "ocsp-allowed-cidrs: [127.0.0.0/8]\n";
        }
        settings.iter().for_each(|line| text += &format!("{line}\n"));
        self.write("settings.yaml", &text);
    }

    /// Puts a Secret with this leaf and an Ingress for it into the folder, in one file and at once.
    pub fn serve(&self, host: &str, leaf: &Issued, ca: &Ca) {
        self.serve_chain(host, leaf, &[&ca.der]);
    }

    pub fn serve_chain(&self, host: &str, leaf: &Issued, chain: &[&CertificateDer<'_>]) {
        let name = host.replace('.', "-");
        let chain: String = chain.iter().map(|der| certificate_pem(der)).collect();
        let chain = indented(&(certificate_pem(&leaf.der) + &chain));
        let key = indented(&leaf.key.serialize_pem());
        let yaml = format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, namespace: shop}}\ntype: kubernetes.io/tls\n\
             stringData:\n  tls.crt: |\n{chain}  tls.key: |\n{key}---\n\
             apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{name: {name}, namespace: shop}}\n\
             spec:\n  tls: [{{hosts: [{host}], secretName: {name}}}]\n  rules:\n  - host: {host}\n    http: \
             {{paths: [{{path: /, pathType: Prefix, backend: {{service: {{name: web, port: {{number: 80}}}}}}}}]}}\n"
        );
        self.write(&format!("manifests/{name}.yaml"), &yaml);
    }

    fn write(&self, name: &str, text: &str) {
        let staged = self.folder.path().join("staged");
        fs::write(&staged, text).unwrap();
        fs::rename(staged, self.folder.path().join(name)).unwrap();
    }

    /// Starts the process and waits until it is ready.
    pub fn start(mut self) -> Self {
        let ports = [(); 3].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let [http, https, admin] = ports.map(|listener| listener.local_addr().unwrap().port());
        (self.https, self.admin) = (loopback(https), loopback(admin));
        let at = |name: &str| self.folder.path().join(name);
        let log = File::options().create(true).append(true).open(at("log")).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_portcullis"))
            .args(["serve", "--bind-address", "127.0.0.1", "--http-port", &http.to_string()])
            .args(["--https-port", &https.to_string(), "--admin-port", &admin.to_string()])
            .arg("--settings")
            .arg(at("settings.yaml"))
            .arg("--manifests")
            .arg(at("manifests"))
            .arg("--state-dir")
            .arg(at("state"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.process = Some(process);
        eventually("readiness", || self.get("/readyz").is_some_and(|answer| answer.contains(" 200 ")));
        self
    }

    /// Ends the process as a crash would; the folder stays.
    pub fn kill(mut self) -> Self {
        let mut process = self.process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
        self
    }

    /// A full handshake of a client that asks for a staple.
    pub fn handshake(&self, host: &str) -> Seen {
        let witness = Arc::new(Witness::default());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(witness.clone())
            .with_no_client_auth();
        let name = ServerName::try_from(host.to_owned()).unwrap();
        let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut stream = TcpStream::connect(self.https).unwrap();
        while client.is_handshaking() {
            client.complete_io(&mut stream).unwrap();
        }
        let seen = witness.0.lock().unwrap().take();
        seen.expect("the server shows a certificate")
    }

    /// What `openssl s_client` prints.
    pub fn s_client(&self, host: &str, arguments: &[&str]) -> String {
        let output = Command::new("openssl")
            .args(["s_client", "-connect", &self.https.to_string(), "-servername", host])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The list of `/api/v1/certificates`.
    pub fn certificates(&self) -> Vec<Value> {
        let answer = self.get("/api/v1/certificates").expect("the admin port answers");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let parsed: Value = serde_json::from_str(body).unwrap();
        parsed["certificates"].as_array().unwrap().clone()
    }

    /// The `ocsp` of the certificate that `host` has.
    pub fn ocsp(&self, host: &str) -> Value {
        let all = self.certificates();
        let of_host = |row: &&Value| row["hosts"].as_array().unwrap().iter().any(|name| name == host);
        all.iter().find(of_host).map_or(Value::Null, |row| row["ocsp"].clone())
    }

    pub fn eventually_in(&self, host: &str, state: &str) {
        eventually(&format!("{host} is {state}"), || self.ocsp(host)["state"] == state);
    }

    /// The sum of a metric over its labels.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").expect("the admin port answers");
        let samples = text
            .lines()
            .filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])));
        samples.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    }

    /// Reasons of the current findings.
    pub fn findings(&self) -> Vec<String> {
        let answer = self.get("/api/v1/diagnostics").expect("the admin port answers");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let parsed: Value = serde_json::from_str(body).unwrap();
        let list = parsed["diagnostics"].as_array().unwrap();
        list.iter().map(|found| found["reason"].as_str().unwrap().to_owned()).collect()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.admin).ok()?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
        if thread::panicking() {
            eprintln!("--- log of the gateway ---\n{}", self.log());
        }
    }
}

/// Takes any certificate and remembers what it was shown.
#[derive(Debug, Default)]
struct Witness(Mutex<Option<Seen>>);

impl ServerCertVerifier for Witness {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        staple: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let staple = (!staple.is_empty()).then(|| staple.to_vec());
        *self.0.lock().unwrap() = Some(Seen { leaf: leaf.clone().into_owned(), staple });
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}
