//! The real binary on free ports of the loopback address, with a site that leads to one backend.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use portcullis::testing::ports;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustix::process::{Pid, Signal, kill_process};
use rustls_pki_types::CertificateDer;
use serde_json::Value;
use tempfile::TempDir;

pub const HOST: &str = "app.example.com";
/// Nothing here takes so long on an idle machine; a busy one may.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Gateway {
    pub folder: TempDir,
    pub root: CertificateDer<'static>,
    pub http: SocketAddr,
    pub https: SocketAddr,
    pub admin: SocketAddr,
    pub process: Child,
    settings: Vec<(String, String)>,
}

/// What is started: the site, ready to be served.
pub struct Plan {
    pub folder: TempDir,
    pub root: CertificateDer<'static>,
    pub ports: [SocketAddr; 3],
    program: PathBuf,
    settings: Vec<(String, String)>,
}

impl Plan {
    pub fn new(backend: SocketAddr) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let leaf =
            CertificateParams::new(vec![HOST.to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
        let manifests = folder.path().join("manifests");
        fs::create_dir(&manifests).unwrap();
        fs::write(manifests.join("app.crt"), leaf.pem()).unwrap();
        fs::write(manifests.join("app.key"), key.serialize_pem()).unwrap();
        let root = authority.der().clone();
        let ports = ports::free_addresses();
        let settings = [("workers", "2"), ("access-log", "false"), ("worker-shutdown-timeout", "60s")];
        let settings = settings.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
        let plan = Self { folder, root, ports, program: env!("CARGO_BIN_EXE_portcullis").into(), settings };
        plan.write_site(backend, "first");
        plan
    }

    pub fn with(mut self, key: &str, value: &str) -> Self {
        set(&mut self.settings, key, value);
        self
    }

    /// Runs a copy of the binary, that can be replaced.
    pub fn with_program(mut self) -> Self {
        self.program = self.folder.path().join("portcullis");
        fs::copy(env!("CARGO_BIN_EXE_portcullis"), &self.program).unwrap();
        self
    }

    fn write_site(&self, backend: SocketAddr, mark: &str) {
        write_site(&self.folder, backend, mark);
    }

    /// The command, for tests that start it in a way of their own.
    pub fn command(&self) -> Command {
        write_settings(&self.folder, &self.settings);
        let [http, https, admin] = self.ports.map(|address| address.port().to_string());
        let mut command = Command::new(&self.program);
        command.arg("serve").arg("--settings").arg(self.folder.path().join("settings.yaml"));
        command.arg("--manifests").arg(self.folder.path().join("manifests"));
        command.args(["--admin-port", &admin]);
        command.env("PORTCULLIS_HTTP_PORT", http).env("PORTCULLIS_HTTPS_PORT", https);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let log = fs::File::create(self.folder.path().join("log")).unwrap();
        command.stderr(log);
        command
    }

    pub fn start(self) -> Gateway {
        let command = self.command();
        self.start_as(command)
    }

    pub fn start_as(mut self, mut command: Command) -> Gateway {
        if !self.settings.iter().any(|(key, _)| key == "bind-address") {
            set(&mut self.settings, "bind-address", "127.0.0.1");
            write_settings(&self.folder, &self.settings);
        }
        let process = command.spawn().unwrap();
        let Self { folder, root, ports: [http, https, admin], settings, .. } = self;
        let gateway = Gateway { folder, root, http, https, admin, process, settings };
        gateway.until("the gateway is ready", |status| status["ready"] == true);
        gateway
    }
}

impl Gateway {
    /// Changes a setting; the file is replaced at once.
    pub fn set(&mut self, key: &str, value: &str) {
        set(&mut self.settings, key, value);
        write_settings(&self.folder, &self.settings);
    }

    pub fn unset(&mut self, key: &str) {
        self.settings.retain(|(known, _)| known != key);
        write_settings(&self.folder, &self.settings);
    }

    pub fn write_raw_settings(&self, text: &str) {
        replace(&self.folder, "settings.yaml", text);
    }

    pub fn write_site(&self, backend: SocketAddr, mark: &str) {
        write_site(&self.folder, backend, mark);
    }

    /// The status; `None` in the moment when nobody answers.
    pub fn status(&self) -> Option<Value> {
        let mut stream = TcpStream::connect(self.admin).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET /api/v1/status HTTP/1.0\r\nHost: {}\r\n\r\n", self.admin).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
    }

    /// Waits until the status is as it should be, and returns it.
    pub fn until(&self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let started = Instant::now();
        let mut last = None;
        while started.elapsed() < PATIENCE {
            let status = self.status();
            if let Some(status) = status.as_ref().filter(|status| is(status)) {
                return status.clone();
            }
            last = status.or(last);
            sleep(Duration::from_millis(20));
        }
        panic!("not within {PATIENCE:?}: {what}; status {last:?}; log:\n{}", self.log());
    }

    /// The number of the generation that serves alone.
    pub fn serving(&self) -> u64 {
        let alone = |status: &Value| in_state(status, "serving").len() == 1;
        in_state(&self.until("one generation serves", alone), "serving")[0].0
    }

    /// Waits until a generation after `before` serves, and the one before no longer does.
    pub fn until_after(&self, before: u64) -> u64 {
        let later = |status: &Value| {
            let serving = in_state(status, "serving");
            serving.len() == 1 && serving[0].0 > before
        };
        in_state(&self.until("a new generation serves", later), "serving")[0].0
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.process.id(), signal);
    }

    /// Puts another program in the place of the one that runs.
    pub fn replace_program(&self, with: &str) {
        let staged = self.folder.path().join("portcullis.new");
        fs::copy(with, &staged).unwrap();
        fs::rename(staged, self.folder.path().join("portcullis")).unwrap();
    }

    /// Ends it as an operator does, and returns the exit code.
    pub fn stop(mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        self.wait()
    }

    pub fn wait(&mut self) -> Option<i32> {
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status.code();
            }
            sleep(Duration::from_millis(20));
        }
        panic!("the gateway has not ended; log:\n{}", self.log());
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

/// Number and process of the generations in this state.
pub fn in_state(status: &Value, state: &str) -> Vec<(u64, u32)> {
    let generations = status["generations"].as_array().into_iter().flatten();
    let of_state = generations.filter(|generation| generation["state"] == state);
    let number = |value: &Value| value.as_u64().unwrap();
    of_state.map(|g| (number(&g["generation"]), u32::try_from(number(&g["pid"])).unwrap())).collect()
}

pub fn kill(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// A process is there and no zombie.
pub fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// Memory of a process that is its own, in KiB.
pub fn own_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

fn set(settings: &mut Vec<(String, String)>, key: &str, value: &str) {
    settings.retain(|(known, _)| known != key);
    settings.push((key.into(), value.into()));
}

fn write_settings(folder: &TempDir, settings: &[(String, String)]) {
    let text: String = settings.iter().map(|(key, value)| format!("{key}: {value}\n")).collect();
    replace(folder, "settings.yaml", &text);
}

fn write_site(folder: &TempDir, backend: SocketAddr, mark: &str) {
    let site = format!(
        "apiVersion: v1
kind: Service
metadata: {{name: app, namespace: default}}
spec: {{ports: [{{name: http, port: 80}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: app, namespace: default, labels: {{kubernetes.io/service-name: app}}}}
addressType: IPv4
ports: [{{name: http, port: {}}}]
endpoints: [{{addresses: [{}]}}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{name: app, namespace: default}}
spec:
  rules:
  - host: {HOST}
    http:
      paths:
      - {{path: /, pathType: Prefix, backend: {{service: {{name: app, port: {{number: 80}}}}}}}}
      - {{path: /{mark}, pathType: Exact, backend: {{service: {{name: app, port: {{number: 80}}}}}}}}
",
        backend.port(),
        backend.ip()
    );
    replace(folder, "manifests/site.yaml", &site);
}

fn replace(folder: &TempDir, name: &str, text: &str) {
    let staged = folder.path().join("staged");
    fs::write(&staged, text).unwrap();
    fs::rename(staged, folder.path().join(name)).unwrap();
}
