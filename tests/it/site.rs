//! A folder of manifests with the real gateway in front of it, and clients that look at certificates: openssl, and
//! a ClientHello made by hand for what no library sends.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use portcullis::testing::certificates::{Authority, PemPair};
use portcullis::testing::ports;
use serde_json::Value;
use tempfile::TempDir;

/// How long anything may take before it counts as never.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// What a gateway is started with.
pub struct Plan {
    folder: TempDir,
    settings: String,
    variables: Vec<(&'static str, String)>,
}

impl Plan {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("manifests")).unwrap();
        Self {
            folder,
            settings: "workers: 2\nlog-level: info\nworker-shutdown-timeout: 2s\n".into(),
            variables: Vec::new(),
        }
    }

    /// A line of the settings file.
    pub fn setting(mut self, line: &str) -> Self {
        self.settings += &format!("{line}\n");
        self
    }

    /// A variable of the environment.
    pub fn variable(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.variables.push((name, value.into()));
        self
    }

    pub fn file(self, name: &str, text: impl AsRef<str>) -> Self {
        let path = self.folder.path().join("manifests").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text.as_ref()).unwrap();
        self
    }

    pub fn secret(self, name: &str, pair: &PemPair) -> Self {
        self.file(&format!("{name}.secret.yaml"), secret(name, &pair.certificates_pem(), &pair.key_pem))
    }

    /// Starts the gateway and a backend behind Service `web`; comes back when it is ready.
    pub fn start(self) -> Site {
        let backend = start_backend();
        let plan = self.file("web.yaml", web(backend));
        let settings = plan.folder.path().join("settings.yaml");
        fs::write(&settings, &plan.settings).unwrap();
        let log = plan.folder.path().join("log");
        let [http, https, admin] = ports::free_addresses();
        let process = Command::new(env!("CARGO_BIN_EXE_portcullis"))
            .args(["serve", "--bind-address", "127.0.0.1"])
            .arg("--settings")
            .arg(settings)
            .arg("--manifests")
            .arg(plan.folder.path().join("manifests"))
            .args(["--http-port", &http.port().to_string(), "--https-port", &https.port().to_string()])
            .args(["--admin-port", &admin.port().to_string()])
            .envs(plan.variables)
            .stdin(Stdio::null())
            .stdout(File::create(&log).unwrap())
            .stderr(File::options().append(true).open(&log).unwrap())
            .spawn()
            .unwrap();
        let mut site = Site { process, http, https, admin, folder: plan.folder };
        let begun = Instant::now();
        while !matches!(get(admin, "admin", "/readyz"), Some((200, _))) {
            assert_eq!(site.process.try_wait().unwrap(), None, "the gateway ended:\n{}", site.log());
            assert!(begun.elapsed() < PATIENCE, "the gateway is not ready:\n{}", site.log());
            thread::sleep(Duration::from_millis(10));
        }
        site
    }
}

/// A running gateway and its folder.
pub struct Site {
    process: Child,
    pub http: SocketAddr,
    pub https: SocketAddr,
    pub admin: SocketAddr,
    folder: TempDir,
}

impl Site {
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("manifests").join(name)
    }

    /// A place outside of the manifests.
    pub fn scratch(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Replaces or adds a file at once, as a careful writer does.
    pub fn write(&self, name: &str, text: impl AsRef<str>) {
        replace(&self.path(name), text.as_ref());
    }

    pub fn write_secret(&self, name: &str, pair: &PemPair) {
        self.write(&format!("{name}.secret.yaml"), secret(name, &pair.certificates_pem(), &pair.key_pem));
    }

    pub fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).unwrap();
    }

    /// Changes a setting in the settings file.
    pub fn set(&self, key: &str, value: &str) {
        let path = self.folder.path().join("settings.yaml");
        let before = fs::read_to_string(&path).unwrap();
        let others = before.lines().filter(|line| !line.starts_with(&format!("{key}:")));
        let mut lines: Vec<_> = others.map(str::to_owned).collect();
        lines.push(format!("{key}: {value}\n"));
        replace(&path, &lines.join("\n"));
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    pub fn status(&self) -> Value {
        self.api("status")
    }

    /// Process id of the generation that answers, if one does.
    pub fn worker(&self) -> Option<u64> {
        let (_, body) = get(self.admin, "admin", "/api/v1/status")?;
        serde_json::from_str::<Value>(&body).ok()?["pid"].as_u64()
    }

    pub fn generation(&self) -> u64 {
        self.status()["generation"].as_u64().unwrap()
    }

    pub fn api(&self, what: &str) -> Value {
        serde_json::from_str(&self.admin_text(&format!("/api/v1/{what}"))).unwrap()
    }

    /// What the admin port answers.
    pub fn admin_text(&self, path: &str) -> String {
        get(self.admin, "admin", path).expect("the admin port answers").1
    }

    /// The page of all metrics.
    pub fn metrics(&self) -> String {
        get(self.admin, "admin", "/metrics").expect("the admin port answers").1
    }

    /// The reasons of all diagnostics.
    pub fn reasons(&self) -> Vec<String> {
        let all = self.api("diagnostics");
        let all = all["diagnostics"].as_array().unwrap();
        all.iter().map(|it| it["reason"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits until one of the diagnostics has this reason.
    pub fn until_reason(&self, reason: &str) {
        eventually(&format!("{reason} in {:?}", self.reasons()), || {
            self.reasons().iter().any(|it| it == reason)
        });
    }

    /// Waits until clients of this name get the certificate with this serial number.
    #[track_caller]
    pub fn until_served(&self, sni: &str, serial: u64) {
        let mut last = None;
        let begun = Instant::now();
        while last != Some(serial) {
            assert!(
                begun.elapsed() < PATIENCE,
                "{sni}: served {last:x?}, not {serial:x}; {:#}\n{}",
                self.api("diagnostics"),
                self.log()
            );
            last = self.served(sni);
        }
    }

    /// The serial number of the certificate that a client with this server name gets; `None` for the generated
    /// one.
    pub fn served(&self, sni: &str) -> Option<u64> {
        self.hello(Hello::new().name(sni)).serial()
    }

    /// What the gateway answers to a ClientHello made by hand.
    pub fn hello(&self, hello: Hello) -> Answer {
        self.send_records(&[record(&hello.message())], Duration::ZERO)
    }

    /// Sends these bytes, with a pause after each part.
    pub fn send_records(&self, parts: &[Vec<u8>], pause: Duration) -> Answer {
        let mut tcp = TcpStream::connect(self.https).unwrap();
        tcp.set_nodelay(true).unwrap();
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        for part in parts {
            // It may have closed already; what it said before is there to be read.
            if tcp.write_all(part).is_err() {
                break;
            }
            thread::sleep(pause);
        }
        Answer::read(tcp)
    }

    /// Runs `openssl s_client` with these arguments.
    pub fn openssl(&self, arguments: &[&str]) -> Handshake {
        let output = Command::new("openssl")
            .args(["s_client", "-connect", &self.https.to_string()])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .expect("openssl is installed");
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        Handshake { done: output.status.success(), text: text.into_owned() }
    }

    /// A plain request: status and body.
    pub fn get(&self, host: &str, path: &str) -> (u16, String) {
        get(self.http, host, path).expect("an answer")
    }

    /// Resident memory in KiB.
    pub fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What `openssl s_client` printed.
pub struct Handshake {
    pub done: bool,
    pub text: String,
}

impl Handshake {
    pub fn serial(&self) -> Option<u64> {
        let begin = self.text.find("-----BEGIN CERTIFICATE-----").expect(&self.text);
        let pem = x509_parser::pem::parse_x509_pem(&self.text.as_bytes()[begin..]).unwrap().1;
        serial_of(&pem.contents)
    }

    #[track_caller]
    pub fn assert_says(&self, words: &str) {
        assert!(self.text.contains(words), "not {words:?} but:\n{}", self.text);
    }
}

/// A ClientHello of TLS 1.2, in which the server's certificate comes in the clear.
pub struct Hello {
    name: Option<Vec<u8>>,
    schemes: Vec<u16>,
    padding: usize,
}

impl Hello {
    pub fn new() -> Self {
        Self { name: None, schemes: vec![0x0403, 0x0804, 0x0401, 0x0503, 0x0807], padding: 0 }
    }

    /// A server name of any bytes.
    pub fn name(mut self, name: impl AsRef<[u8]>) -> Self {
        self.name = Some(name.as_ref().to_vec());
        self
    }

    /// Signature schemes by their TLS numbers.
    pub fn schemes(mut self, schemes: &[u16]) -> Self {
        self.schemes = schemes.to_vec();
        self
    }

    /// Bytes of padding (RFC 7685).
    pub fn padding(mut self, padding: usize) -> Self {
        self.padding = padding;
        self
    }

    /// The handshake message.
    pub fn message(&self) -> Vec<u8> {
        let mut extensions = Vec::new();
        let mut add = |kind: u16, content: Vec<u8>| {
            extensions.extend(kind.to_be_bytes());
            extensions.extend(counted(2, &content));
        };
        if let Some(name) = &self.name {
            add(0, counted(2, &[&[0][..], &counted(2, name)].concat()));
        }
        add(10, counted(2, &[0, 29, 0, 23]));
        add(11, counted(1, &[0]));
        let schemes: Vec<u8> = self.schemes.iter().flat_map(|scheme| scheme.to_be_bytes()).collect();
        add(13, counted(2, &schemes));
        add(23, Vec::new());
        if self.padding > 0 {
            add(21, vec![0; self.padding]);
        }
        let suites = [0xc0, 0x2b, 0xc0, 0x2f, 0xc0, 0x2c, 0xc0, 0x30];
        let body = [
            &[3, 3][..],
            &[7; 32],
            &counted(1, &[]),
            &counted(2, &suites),
            &counted(1, &[0]),
            &counted(2, &extensions),
        ];
        [&[1][..], &counted(3, &body.concat())].concat()
    }
}

/// Content after its length in `size` bytes.
fn counted(size: usize, content: &[u8]) -> Vec<u8> {
    [&content.len().to_be_bytes()[size_of::<usize>() - size..], content].concat()
}

/// A TLS record with (a part of) a handshake message.
pub fn record(content: &[u8]) -> Vec<u8> {
    [&[22, 3, 1][..], &counted(2, content)].concat()
}

/// What comes back for a ClientHello.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// The DER of the leaf.
    Certificate(Vec<u8>),
    /// Level and description.
    Alert(u8, u8),
    Closed,
}

impl Answer {
    /// The serial number; `None` for the certificate that the gateway makes itself.
    #[track_caller]
    pub fn serial(&self) -> Option<u64> {
        match self {
            Self::Certificate(leaf) => serial_of(leaf),
            other => panic!("no certificate but {other:?}"),
        }
    }

    fn read(mut tcp: TcpStream) -> Self {
        let mut messages = Vec::new();
        loop {
            let mut head = [0; 5];
            if tcp.read_exact(&mut head).is_err() {
                return Self::Closed;
            }
            let mut content = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
            if tcp.read_exact(&mut content).is_err() {
                return Self::Closed;
            }
            match head[0] {
                21 => return Self::Alert(content[0], content[1]),
                22 => messages.extend(content),
                other => panic!("a record of type {other}"),
            }
            if let Some(leaf) = leaf_in(&messages) {
                return Self::Certificate(leaf);
            }
        }
    }
}

/// The first certificate of a complete Certificate message.
fn leaf_in(mut messages: &[u8]) -> Option<Vec<u8>> {
    let length = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| (number << 8) | usize::from(*byte));
    loop {
        let size = length(messages.get(1..4)?);
        let body = messages.get(4..4 + size)?;
        if messages[0] == 11 {
            return Some(body[6..6 + length(&body[3..6])].to_vec());
        }
        messages = &messages[4 + size..];
    }
}

fn serial_of(leaf: &[u8]) -> Option<u64> {
    use x509_parser::prelude::{FromDer, X509Certificate};
    let (_, certificate) = X509Certificate::from_der(leaf).unwrap();
    if certificate.subject().to_string().contains("Kubernetes Ingress Controller Fake Certificate") {
        assert!(certificate.subject().to_string().contains("Acme Co"));
        return None;
    }
    Some(certificate.raw_serial().iter().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
}

/// A pair for `names` with this serial number, from an authority of its own.
pub fn pair(serial: u64, names: &[&str]) -> PemPair {
    Authority::new("test").leaf(names).serial(serial).issue()
}

pub fn secret(name: &str, certificate: &str, key: &str) -> String {
    let indented = |pem: &str| pem.lines().map(|line| format!("    {line}\n")).collect::<String>();
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, namespace: default}}\n\
         stringData:\n  tls.crt: |\n{}  tls.key: |\n{}",
        indented(certificate),
        indented(key)
    )
}

/// An Ingress for `host` whose paths go to Service `web`, with these `tls` entries in YAML.
pub fn ingress(name: &str, host: &str, tls: &[&str]) -> String {
    let host = if host.is_empty() { String::new() } else { format!("host: \"{host}\", ") };
    format!(
        "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{name: {name}, namespace: default}}\n\
         spec:\n  tls: [{}]\n  rules:\n  - {{{host}http: {{paths: [{{path: /, pathType: Prefix, \
         backend: {{service: {{name: web, port: {{number: 80}}}}}}}}]}}}}\n",
        tls.join(", ")
    )
}

/// An Ingress for `host` with its certificate in the Secret `name`.
pub fn bound(name: &str, host: &str) -> String {
    ingress(name, host, &[&format!("{{hosts: [\"{host}\"], secretName: {name}}}")])
}

fn web(backend: SocketAddr) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: web, namespace: default}}\nspec: {{ports: [{{name: http, \
         port: 80}}]}}\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: web-1, \
         namespace: default, labels: {{kubernetes.io/service-name: web}}}}\naddressType: IPv4\nports: [{{name: \
         http, port: {}}}]\nendpoints: [{{addresses: [{}]}}]\n",
        backend.port(),
        backend.ip()
    )
}

/// A backend that answers every request with 200 and, asked for WebSocket, sends back what it gets.
fn start_backend() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for tcp in listener.incoming().flatten() {
            thread::spawn(move || answer_all(tcp));
        }
    });
    address
}

fn answer_all(mut tcp: TcpStream) {
    tcp.set_nodelay(true).unwrap();
    let mut input = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        while let Some(end) = input.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&input[..end]).to_ascii_lowercase();
            input.drain(..end + 4);
            if head.contains("upgrade: websocket") {
                let _ = tcp.write_all(
                    b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
                );
                let mut reader = tcp.try_clone().unwrap();
                let _ = std::io::copy(&mut reader, &mut tcp);
                return;
            }
            if tcp.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                return;
            }
        }
        match tcp.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(read) => input.extend(&buffer[..read]),
        }
    }
}

/// Status and body of a GET on a connection of its own; `None` where nobody answers.
fn get(address: SocketAddr, host: &str, path: &str) -> Option<(u16, String)> {
    // The admin port answers to its address alone.
    let host = if host == "admin" { address.to_string() } else { host.to_owned() };
    let mut tcp = TcpStream::connect(address).ok()?;
    tcp.set_read_timeout(Some(PATIENCE)).ok()?;
    tcp.write_all(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes())
        .ok()?;
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).ok()?;
    let status = answer.get(9..12)?.parse().ok()?;
    Some((status, answer.split_once("\r\n\r\n")?.1.to_owned()))
}

fn replace(path: &Path, text: &str) {
    let staged = path.with_file_name(".staged");
    fs::write(&staged, text).unwrap();
    fs::rename(staged, path).unwrap();
}

#[track_caller]
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "never came true: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}
