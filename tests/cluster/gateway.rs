//! The gateway itself, as a process, and a client of it.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use portcullis::testing::client::Client;
use portcullis::testing::ports;
use rustix::process::{Pid, Signal, kill_process};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

use super::certificates::Authority;
use super::eventually;

/// `portcullis serve --source kubernetes`.
pub struct Gateway {
    child: Child,
    http: u16,
    https: u16,
    admin: u16,
    log: PathBuf,
}

/// What a client got.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: String,
    /// Where a redirect leads.
    pub location: Option<String>,
    /// The certificate of the server, over HTTPS.
    pub certificate: Option<CertificateDer<'static>>,
}

impl Gateway {
    /// Starts it and waits until it is ready.
    pub fn start(kubeconfig: &Path, arguments: &[&str]) -> Self {
        let gateway = Self::start_only(kubeconfig, arguments);
        gateway.wait_until_ready();
        gateway
    }

    /// Starts it, ready or not.
    pub fn start_only(kubeconfig: &Path, arguments: &[&str]) -> Self {
        let ports = ports::free();
        let https = format!("--https-port={}", ports[1]);
        Self::start_on(kubeconfig, ports, &[&[&*https], arguments].concat())
    }

    /// Starts it in what it takes for this pod, and waits until it is ready.
    pub fn start_in_pod(kubeconfig: &Path, namespace: &str, pod: &str, arguments: &[&str]) -> Self {
        let ports = ports::free();
        let https = format!("--https-port={}", ports[1]);
        let variables = [("POD_NAMESPACE", namespace), ("POD_NAME", pod)];
        let arguments = [&[&*https], arguments].concat();
        let gateway = Self::launch(kubeconfig, &ours(ports, &arguments), ports, &variables);
        gateway.wait_until_ready();
        gateway
    }

    /// Starts it on these ports for HTTP and the admin; the one for HTTPS is for the settings to say.
    pub fn start_on(kubeconfig: &Path, ports: [u16; 3], arguments: &[&str]) -> Self {
        Self::launch(kubeconfig, &ours(ports, arguments), ports, &[])
    }

    /// Starts it with these arguments and no others but the kubeconfig; they name these ports, in the order HTTP,
    /// HTTPS, admin.
    pub fn start_as_told(kubeconfig: &Path, arguments: &[&str], ports: [u16; 3]) -> Self {
        let arguments: Vec<_> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        Self::launch(kubeconfig, &arguments, ports, &[])
    }

    fn launch(
        kubeconfig: &Path,
        arguments: &[String],
        [http, https, admin]: [u16; 3],
        variables: &[(&str, &str)],
    ) -> Self {
        let log = kubeconfig.with_file_name(format!("gateway-{admin}.log"));
        let child = Command::new(env!("CARGO_BIN_EXE_portcullis"))
            .arg("serve")
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .args(arguments)
            .envs(variables.iter().copied())
            .stdout(File::create(&log).unwrap())
            .stderr(File::options().append(true).open(&log).unwrap())
            .spawn()
            .unwrap();
        Self { child, http, https, admin, log }
    }

    pub fn wait_until_ready(&self) {
        eventually("the gateway is not ready", || match self.admin("/readyz") {
            Ok(Answer { status: 200, .. }) => Ok(()),
            Ok(answer) => Err(answer.body),
            Err(error) => Err(format!("{error}\n{}", fs::read_to_string(&self.log).unwrap_or_default())),
        });
    }

    /// GET over HTTPS, with `host` as SNI and Host, trusting `authority` and nobody else.
    pub fn https(&self, authority: &Authority, host: &str) -> Result<Answer, String> {
        let mut roots = RootCertStore::empty();
        roots.add(authority.der()).unwrap();
        let config =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth();
        let name = ServerName::try_from(host.to_owned()).unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut stream = StreamOwned::new(connection, connect(self.https)?);
        let mut answer = exchange(&mut stream, host, "/")?;
        answer.certificate =
            stream.conn.peer_certificates().and_then(|it| Some(it.first()?.clone().into_owned()));
        Ok(answer)
    }

    /// GET over plain HTTP.
    pub fn http(&self, host: &str) -> Result<Answer, String> {
        self.http_path(host, "/")
    }

    pub fn http_path(&self, host: &str, path: &str) -> Result<Answer, String> {
        exchange(&mut connect(self.http)?, host, path)
    }

    pub fn http_address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.http).into()
    }

    pub fn https_address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.https).into()
    }

    /// The certificate that a client gets which asks for `sni`, or for nothing, and trusts anybody.
    pub fn served(&self, sni: Option<&str>) -> CertificateDer<'static> {
        Client::tls(self.https_address(), sni).wire.certificate()
    }

    /// The process that serves: another one after every restart of the worker generation.
    pub fn worker(&self) -> i32 {
        i32::try_from(self.admin_json("/api/v1/status")["pid"].as_i64().unwrap()).unwrap()
    }

    /// All that it has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn admin(&self, path: &str) -> Result<Answer, String> {
        exchange(&mut connect(self.admin)?, "localhost", path)
    }

    pub fn admin_json(&self, path: &str) -> Value {
        // Between two worker generations the admin port may be closing a connection.
        let answer = eventually(path, || self.admin(path));
        serde_json::from_str(&answer.body).unwrap()
    }

    /// The reasons of findings about the object of this name.
    pub fn reasons(&self, namespace: &str, name: &str) -> Vec<String> {
        let answer = self.admin_json("/api/v1/diagnostics");
        let found = answer["diagnostics"].as_array().unwrap().iter();
        let found = found.filter(|it| it["object"]["namespace"] == namespace && it["object"]["name"] == name);
        found.map(|it| it["reason"].as_str().unwrap().to_owned()).collect()
    }

    /// Reasons and severities of findings that are about no object.
    pub fn general_findings(&self) -> Vec<(String, String, String)> {
        let answer = self.admin_json("/api/v1/diagnostics");
        let found = answer["diagnostics"].as_array().unwrap().iter().filter(|it| it["object"].is_null());
        let text = |it: &Value, key: &str| it[key].as_str().unwrap().to_owned();
        found.map(|it| (text(it, "severity"), text(it, "reason"), text(it, "message"))).collect()
    }

    /// Waits until plain HTTP for `host` is answered with this status.
    #[track_caller]
    pub fn expect_http(&self, host: &str, status: u16) {
        eventually(&format!("{host} over HTTP"), || match self.http(host)? {
            answer if answer.status == status => Ok(()),
            answer => Err(format!("{} instead of {status}", answer.status)),
        });
    }

    /// Waits until `host` is served over HTTPS with this certificate and answered with 200.
    #[track_caller]
    pub fn expect_https(&self, authority: &Authority, host: &str, certificate: &CertificateDer<'_>) {
        eventually(&format!("{host} over HTTPS"), || match self.https(authority, host)? {
            Answer { status: 200, certificate: Some(served), .. } if served == *certificate => Ok(()),
            Answer { status: 200, .. } => Err("served with another certificate".into()),
            answer => Err(format!("answered with {}", answer.status)),
        });
    }

    pub fn status(&self) -> Value {
        self.admin_json("/api/v1/status")
    }

    /// Waits until the status is as it should be.
    #[track_caller]
    pub fn until(&self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        eventually(what, || match serde_json::from_str(&self.admin("/api/v1/status")?.body) {
            Ok(status) if is(&status) => Ok(status),
            Ok(status) => Err(status.to_string()),
            Err(error) => Err(error.to_string()),
        })
    }

    /// The process of the generation that serves, and its number.
    pub fn serving(&self) -> (i32, u64) {
        let status = self.until("one generation serves", |status| {
            let generations = status["generations"].as_array();
            generations.is_some_and(|all| all.len() == 1 && all[0]["state"] == "serving")
        });
        let serving = &status["generations"][0];
        (i32::try_from(serving["pid"].as_i64().unwrap()).unwrap(), serving["generation"].as_u64().unwrap())
    }

    /// Ends the generation that serves as a crash would.
    pub fn kill_worker(&self) {
        let (pid, _) = self.serving();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    }

    /// Asks for a new generation.
    pub fn hang_up(&self) {
        kill_process(Pid::from_child(&self.child), Signal::HUP).unwrap();
    }

    /// Ends all of it as a crash would.
    pub fn kill(&mut self) {
        let (pid, _) = self.serving();
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        // Its generation ends by itself, and frees the ports.
        eventually("the generation outlives its supervisor", || {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            match stat.rsplit_once(") ") {
                Some((_, rest)) if !rest.starts_with('Z') => Err(stat),
                _ => Ok(()),
            }
        });
    }

    /// For HTTP, HTTPS and the admin.
    pub fn ports(&self) -> [u16; 3] {
        [self.http, self.https, self.admin]
    }

    pub fn https_flag(&self) -> String {
        format!("--https-port={}", self.https)
    }

    /// Expects HTTPS on another port from now on.
    pub fn moved_to(&mut self, https: u16) {
        self.https = https;
    }

    /// Tells it to end in order.
    pub fn terminate(&self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
    }

    /// Ends it as a power failure would: supervisor and worker at once.
    pub fn crash(&mut self) {
        let worker = Pid::from_raw(self.worker()).unwrap();
        let _ = self.child.kill();
        let _ = kill_process(worker, Signal::KILL);
        let _ = self.child.wait();
    }

    /// Stops its workers in their tracks, or lets them go on.
    pub fn freeze(&self, pids: &[i32], frozen: bool) {
        let signal = if frozen { Signal::STOP } else { Signal::CONT };
        for pid in pids {
            kill_process(Pid::from_raw(*pid).unwrap(), signal).unwrap();
        }
    }

    /// The process ids of its worker generations.
    pub fn workers(&self) -> Vec<i32> {
        let status = self.admin_json("/api/v1/status");
        let generations = status["generations"].as_array().unwrap().iter();
        generations.map(|generation| generation["pid"].as_i64().unwrap().try_into().unwrap()).collect()
    }

    /// Ends it in order.
    pub fn end(&mut self) {
        self.terminate();
        self.wait();
    }

    /// Waits for its end.
    pub fn wait(&mut self) {
        eventually("the gateway does not end", || match self.child.try_wait().unwrap() {
            Some(_) => Ok(()),
            None => Err("it still runs".into()),
        });
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- log of the gateway\n{}", fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}

/// The arguments of a gateway for these ports, and those beside them.
fn ours([http, _, admin]: [u16; 3], arguments: &[&str]) -> Vec<String> {
    let fixed = ["--source=kubernetes", "--workers=1", "--bind-address=127.0.0.1"];
    let ports = [format!("--http-port={http}"), format!("--admin-port={admin}")];
    fixed.iter().chain(arguments).map(|&argument| argument.to_owned()).chain(ports).collect()
}

fn connect(port: u16) -> Result<TcpStream, String> {
    let stream = TcpStream::connect(("127.0.0.1", port)).map_err(|error| error.to_string())?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    Ok(stream)
}

fn exchange(stream: &mut (impl Read + Write), host: &str, path: &str) -> Result<Answer, String> {
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(|error| error.to_string())?;
    let mut text = Vec::new();
    let read = stream.read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return Err(read.err().map_or_else(|| "no answer".into(), |error| error.to_string()));
    };
    let field = |line: &str| {
        line.split_once(':').map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
    };
    let mut fields = head.lines().filter_map(field);
    let location = fields.find(|(name, _)| name == "location").map(|(_, value)| value);
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let body = match head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        true => unchunk(body),
        false => body.to_owned(),
    };
    Ok(Answer { status: status.ok_or("no status")?, body, location, certificate: None })
}

fn unchunk(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap_or(0);
        whole.push_str(rest.get(..size).unwrap_or_default());
        body = rest.get(size + 2..).unwrap_or_default();
    }
    whole
}
