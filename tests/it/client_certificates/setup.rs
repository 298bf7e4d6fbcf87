//! A gateway whose hosts ask for client certificates.

use std::net::TcpStream;
use std::process::Command;

use portcullis::testing::backend::Backend;
use portcullis::testing::certificates::{Authority, PemPair};
use portcullis::testing::client::Client;
use portcullis::testing::wire::Wire;
use serde_json::Value;

use crate::gateway::{Gateway, Setup};
use crate::manifests::Ingress;

pub const A: &str = "a.example";
pub const B: &str = "b.example";
pub const OPEN: &str = "open.example";
/// The serial number of every client.
pub const SERIAL: u64 = 4711;

/// A certificate for a client.
pub fn client(authority: &Authority, name: &str) -> PemPair {
    authority.leaf(&[]).common_name(name).serial(SERIAL).for_clients().issue()
}

/// A Secret with authorities.
pub fn ca(name: &str, certificates: &str, lists: Option<&str>) -> String {
    let indented = |pem: &str| pem.lines().map(|line| format!("    {line}\n")).collect::<String>();
    let lists = lists.map(|lists| format!("  ca.crl: |\n{}", indented(lists))).unwrap_or_default();
    format!(
        "---\napiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, namespace: default}}\nstringData:\n  ca.crt: |\n{}{lists}",
        indented(certificates)
    )
}

/// An Ingress with the certificate of all hosts.
pub fn web(name: &str, host: &str) -> Ingress {
    Ingress::new(name, host).tls("tls")
}

fn asking(host: &str, asks: &[(&str, &str)]) -> Ingress {
    let ingress = web(host, host).path("Prefix", "/", "web");
    asks.iter().fold(ingress, |ingress, (name, value)| ingress.annotation(&format!("auth-tls-{name}"), value))
}

pub struct Plan {
    setup: Setup,
    /// Written when it runs, under names to write them anew by.
    files: Vec<(String, String)>,
}

impl Plan {
    pub fn setting(mut self, line: &str) -> Self {
        self.setup = self.setup.setting(line);
        self
    }

    pub fn manifest(mut self, yaml: impl AsRef<str>) -> Self {
        self.setup = self.setup.manifest(yaml);
        self
    }

    pub fn ingress(self, ingress: Ingress) -> Self {
        self.manifest(ingress.yaml())
    }

    /// The Secret `ca`.
    pub fn authorities(mut self, certificates: &str) -> Self {
        self.files.push(("ca.yaml".into(), ca("ca", certificates, None)));
        self
    }

    /// A host that asks for this.
    pub fn host(mut self, host: &str, asks: &[(&str, &str)]) -> Self {
        self.files.push((format!("{host}.yaml"), asking(host, asks).yaml()));
        self
    }

    pub fn start(self) -> Edge {
        let Self { setup, files } = self;
        let setup = files.into_iter().fold(setup, |setup, (name, yaml)| setup.named(&name, &yaml));
        Edge { gateway: setup.start() }
    }
}

pub struct Edge {
    pub gateway: Gateway,
}

impl Edge {
    pub fn before(backend: &Backend) -> Plan {
        let names = [A, B, OPEN, "c.example"];
        let pair = Authority::new("server").leaf(&names).issue();
        let setup = Setup::new().service("web", &[backend.address()]).secret("tls", &pair);
        Plan { setup, files: Vec::new() }
    }

    /// Writes a host anew.
    pub fn rewrite(&self, host: &str, asks: &[(&str, &str)]) {
        self.rewrite_with(host, asks, |ingress| ingress);
    }

    pub fn rewrite_with(&self, host: &str, asks: &[(&str, &str)], more: impl FnOnce(Ingress) -> Ingress) {
        self.gateway.write(&format!("{host}.yaml"), &more(asking(host, asks)).yaml());
    }

    /// A client that shows a certificate.
    pub fn show(&self, sni: &str, pair: &PemPair) -> Client {
        let tcp = TcpStream::connect(self.gateway.https).unwrap();
        Client { wire: Wire::mutual(tcp, sni, &pair.certificates_pem(), &pair.key_pem).unwrap() }
    }

    /// The status that curl gets.
    pub fn curl(&self, host: &str, version: &str, http: &str, pair: Option<&PemPair>) -> u16 {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("curl");
        let port = self.gateway.https.port();
        command.args(["-sk", "-o", "/dev/null", "-w", "%{http_code} %{http_version} %{errormsg}", http]);
        command.args([&format!("--tlsv{version}"), "--tls-max", version]);
        command.args(["--resolve", &format!("{host}:{port}:127.0.0.1"), &format!("https://{host}:{port}/")]);
        if let Some(pair) = pair {
            let file = folder.path().join("pair.pem");
            std::fs::write(&file, pair.certificates_pem() + &pair.key_pem).unwrap();
            command.arg("--cert").arg(file);
        }
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let wanted = http.trim_start_matches("--http");
        assert!(text.contains(&format!(" {wanted} ")), "{text}");
        text[..3].parse().unwrap()
    }

    /// The reasons of all findings.
    pub fn reasons(&self) -> Vec<String> {
        let answer: Value = serde_json::from_str(&self.gateway.admin("/api/v1/diagnostics")).unwrap();
        let found = answer["diagnostics"].as_array().unwrap().iter();
        found.map(|it| it["reason"].as_str().unwrap().to_owned()).collect()
    }
}
