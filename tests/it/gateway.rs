//! The gateway under test: the real binary in a process of its own, with a folder of manifests, until the test
//! ends. Its log is printed when the test fails.

use std::fs::{self, File};
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use portcullis::testing::backend::Backend;
use portcullis::testing::certificates::{Authority, PemPair};
use portcullis::testing::client::Client;
use portcullis::testing::frames::Frames;
use portcullis::testing::http2::Http2;
use portcullis::testing::ports;
use portcullis::testing::{PATIENCE, eventually};
use tempfile::TempDir;

use crate::manifests::{Ingress, secret, service};

/// What a gateway is started with.
pub struct Setup {
    folder: TempDir,
    settings: String,
    files: usize,
    address: &'static str,
    manifests: PathBuf,
}

impl Setup {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let manifests = folder.path().join("manifests");
        fs::create_dir(&manifests).unwrap();
        let settings = "workers: 1\nlog-level: debug\n".into();
        Self { folder, settings, files: 0, address: "127.0.0.1", manifests }
    }

    /// What `--manifests` says; `manifests` in the folder that the gateway is started in unless told otherwise.
    pub fn manifests_at(mut self, path: impl Into<PathBuf>) -> Self {
        self.manifests = path.into();
        self
    }

    /// Where to listen; a loopback address unless told otherwise.
    pub fn listening_at(mut self, address: &'static str) -> Self {
        self.address = address;
        self
    }

    /// A line of the settings file.
    pub fn setting(mut self, line: &str) -> Self {
        self.settings += &format!("{line}\n");
        self
    }

    /// More than one worker.
    pub fn workers(mut self, number: usize) -> Self {
        self.settings = self.settings.replace("workers: 1\n", &format!("workers: {number}\n"));
        self
    }

    /// A file of manifests.
    pub fn manifest(mut self, yaml: impl AsRef<str>) -> Self {
        self.files += 1;
        let file = self.folder.path().join(format!("manifests/{}.yaml", self.files));
        fs::write(file, yaml.as_ref()).unwrap();
        self
    }

    /// A file of manifests with this name, by which a test can write it anew.
    pub fn named(self, name: &str, yaml: &str) -> Self {
        fs::write(self.folder.path().join("manifests").join(name), yaml).unwrap();
        self
    }

    pub fn service(self, name: &str, endpoints: &[SocketAddr]) -> Self {
        self.manifest(service(name, endpoints))
    }

    pub fn ingress(self, ingress: &Ingress) -> Self {
        self.manifest(ingress.yaml())
    }

    pub fn secret(self, name: &str, pair: &PemPair) -> Self {
        self.manifest(secret(name, pair))
    }

    pub fn start(self) -> Gateway {
        let settings = self.folder.path().join("settings.yaml");
        fs::write(&settings, &self.settings).unwrap();
        let proxied = self.settings.contains("use-proxy-protocol: true");
        let ports = ports::free();
        let log = self.folder.path().join("log");
        let process = Command::new(env!("CARGO_BIN_EXE_portcullis"))
            .arg("serve")
            .arg("--settings")
            .arg(settings)
            .arg("--manifests")
            .arg(&self.manifests)
            .current_dir(self.folder.path())
            .args(["--bind-address", self.address, "--http-port", &ports[0].to_string()])
            .args(["--https-port", &ports[1].to_string(), "--admin-port", &ports[2].to_string()])
            .stdin(Stdio::null())
            // Both append: one would write over the other's lines.
            .stdout(File::options().create(true).append(true).open(&log).unwrap())
            .stderr(File::options().append(true).open(&log).unwrap())
            .spawn()
            .unwrap();
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let [http, https, admin] = ports.map(at);
        let mut gateway = Gateway { process, http, https, admin, log, folder: self.folder };
        gateway.wait_until_it_answers(proxied);
        gateway
    }
}

/// A running gateway.
pub struct Gateway {
    process: Child,
    pub http: SocketAddr,
    pub https: SocketAddr,
    pub admin: SocketAddr,
    log: PathBuf,
    folder: TempDir,
}

impl Gateway {
    /// One host, `a.example`, with a certificate, all of whose requests go to `backend`; plain HTTP too.
    pub fn before(backend: &Backend) -> Self {
        Self::with(backend, &[])
    }

    /// As [`before`](Self::before), with these settings.
    pub fn with(backend: &Backend, settings: &[&str]) -> Self {
        Self::in_front_of(backend.address(), &[], settings)
    }

    /// As [`with`](Self::with), for any backend and with annotations.
    pub fn in_front_of(address: SocketAddr, annotations: &[(&str, &str)], settings: &[&str]) -> Self {
        let mut ingress = Ingress::new("a", "a.example").path("Prefix", "/", "web").tls("a-tls");
        ingress = ingress.annotation("ssl-redirect", "false");
        for (name, value) in annotations {
            ingress = ingress.annotation(name, value);
        }
        let pair = Authority::new("test").leaf(&["a.example"]).issue();
        let setup = Setup::new().service("web", &[address]).secret("a-tls", &pair).ingress(&ingress);
        settings.iter().fold(setup, |setup, line| setup.setting(line)).start()
    }

    pub fn client(&self) -> Client {
        Client::plain(self.http)
    }

    /// HTTP/1.1 under TLS.
    pub fn tls_client(&self, sni: &str) -> Client {
        Client::tls(self.https, Some(sni))
    }

    /// HTTP/2 frames by hand.
    pub fn frames(&self) -> Frames {
        Frames::connect(self.https, "a.example", &[])
    }

    pub async fn http2(&self, sni: &str) -> Http2 {
        Http2::connect(self.https, sni).await
    }

    /// Replaces or adds a file of manifests, as a careful writer does.
    pub fn write(&self, name: &str, yaml: &str) {
        let staged = self.folder.path().join(format!(".{name}"));
        fs::write(&staged, yaml).unwrap();
        fs::rename(staged, self.folder.path().join("manifests").join(name)).unwrap();
    }

    /// Adds a line to the settings file, as a careful writer does.
    pub fn set(&self, line: &str) {
        let file = self.folder.path().join("settings.yaml");
        let staged = self.folder.path().join(".settings.yaml");
        fs::write(&staged, fs::read_to_string(&file).unwrap() + line + "\n").unwrap();
        fs::rename(staged, file).unwrap();
    }

    /// A path in the folder that it was started in.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What the admin port answers.
    pub fn admin(&self, path: &str) -> String {
        Client::plain(self.admin).get("localhost", path).text()
    }

    pub fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    /// Waits for the process to end by itself.
    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("the end of the gateway", || {
            status = self.process.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Resident memory in KiB.
    pub fn resident(&self) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// How often the worker has gone to sleep, which it does once for each time that it is woken.
    pub fn worker_sleeps(&self) -> u64 {
        let supervisor = self.process.id();
        let children = fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children")).unwrap();
        let threads = children
            .split_whitespace()
            .flat_map(|child| fs::read_dir(format!("/proc/{child}/task")).unwrap())
            .map(|thread| thread.unwrap().path());
        let read = |path: PathBuf| fs::read_to_string(path).unwrap();
        let workers: Vec<_> =
            threads.filter(|thread| read(thread.join("comm")).starts_with("worker-")).collect();
        let [worker] = &workers[..] else { panic!("{workers:?}") };
        let status = read(worker.join("status"));
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
        line.trim().parse().unwrap()
    }

    /// The sum of a metric over its labels.
    pub fn metric(&self, name: &str) -> f64 {
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let answer = Client::plain(self.admin).ask(request);
        let text = String::from_utf8(answer.body).unwrap();
        let samples = text
            .lines()
            .filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])));
        samples.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    }

    /// Everything it has logged.
    pub fn log(&self) -> String {
        let mut text = String::new();
        File::open(&self.log).unwrap().read_to_string(&mut text).unwrap();
        text
    }

    fn wait_until_it_answers(&mut self, proxied: bool) {
        let begun = Instant::now();
        while TcpStream::connect(self.http).is_err() {
            if let Some(status) = self.process.try_wait().unwrap() {
                panic!("the gateway ended with {status}:\n{}", self.log());
            }
            assert!(begun.elapsed() < PATIENCE, "the gateway does not listen:\n{}", self.log());
            thread::sleep(Duration::from_millis(10));
        }
        // Until it is ready the kernel queues what comes; the answer is the sign.
        let mut client = Client::plain(self.http);
        if proxied {
            client.send("PROXY UNKNOWN\r\n");
        }
        client.get("readiness.invalid", "/");
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if thread::panicking() {
            eprintln!("--- log of the gateway ---\n{}", self.log());
        }
    }
}
