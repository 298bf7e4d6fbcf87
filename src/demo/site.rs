//! The demo's files: certificates, Kubernetes manifests and settings in a temporary folder, which goes away with
//! the value.

use std::fmt::Write;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::authority::{Authority, Key, Pair};

/// The host whose certificate is replaced again and again.
pub const ROTATED: &str = "shop.demo.test";
pub const RSA: &str = "rsa.demo.test";
/// Has a certificate of each kind.
pub const BOTH: &str = "both.demo.test";
/// A host below the wildcard.
pub const WILD: &str = "any.wild.demo.test";
pub const OCSP: &str = "ocsp.demo.test";
/// Its certificate is a pair of PEM files.
pub const FILES: &str = "files.demo.test";

/// The folder.
pub struct Site {
    folder: TempDir,
}

impl Site {
    /// Writes everything. `backends` are the endpoints of the one Service; `responder` is the URL of the OCSP
    /// responder.
    pub fn create(authority: &Authority, backends: &[SocketAddr], responder: &str) -> anyhow::Result<Self> {
        let site = Self { folder: tempfile::Builder::new().prefix("portcullis-demo-").tempdir()? };
        fs::create_dir_all(site.manifests().join("secrets"))?;
        fs::write(site.root_certificate(), authority.pem())?;
        fs::write(site.settings(), SETTINGS)?;
        fs::write(site.manifests().join("web.yaml"), service("web", backends))?;
        for (name, host, key, url) in [
            ("shop", ROTATED, Key::Ecdsa, None),
            ("rsa", RSA, Key::Rsa, None),
            ("both-ecdsa", BOTH, Key::Ecdsa, None),
            ("both-rsa", BOTH, Key::Rsa, None),
            ("wild", "*.wild.demo.test", Key::Ecdsa, None),
            ("ocsp", OCSP, Key::Ecdsa, Some(responder)),
        ] {
            site.write_secret(name, &authority.issue(host, key, url)?)?;
        }
        let ingresses = [
            ingress("shop", ROTATED, &["shop"]),
            ingress("rsa", RSA, &["rsa"]),
            ingress("both", BOTH, &["both-ecdsa", "both-rsa"]),
            ingress("wild", "*.wild.demo.test", &["wild"]),
            ingress("ocsp", OCSP, &["ocsp"]),
            ingress("files", FILES, &[]),
        ];
        fs::write(site.manifests().join("ingresses.yaml"), ingresses.concat())?;
        // As certbot lays them out.
        let pair = authority.issue(FILES, Key::Ecdsa, None)?;
        let folder = site.manifests().join(FILES);
        fs::create_dir(&folder)?;
        fs::write(folder.join("fullchain.pem"), pair.certificate)?;
        fs::write(folder.join("privkey.pem"), pair.key)?;
        Ok(site)
    }

    pub fn manifests(&self) -> PathBuf {
        self.folder.path().join("manifests")
    }

    pub fn root_certificate(&self) -> PathBuf {
        self.folder.path().join("ca.crt")
    }

    pub fn settings(&self) -> PathBuf {
        self.folder.path().join("settings.yaml")
    }

    pub fn log(&self) -> PathBuf {
        self.folder.path().join("gateway.log")
    }

    /// Replaces the certificate of [`ROTATED`].
    pub fn rotate(&self, pair: &Pair) -> io::Result<()> {
        self.write_secret("shop", pair)
    }

    /// Writes a Secret beside its place and moves it there, so that nobody reads half of it.
    fn write_secret(&self, name: &str, pair: &Pair) -> io::Result<()> {
        let staged = self.folder.path().join(name);
        fs::write(&staged, secret(name, pair))?;
        fs::rename(staged, self.manifests().join("secrets").join(name).with_extension("yaml"))
    }
}

/// The responder is on the loopback address, where OCSP requests don't go unless they may.
const SETTINGS: &str = "\
log-level: warn
access-log: false
ocsp-allowed-cidrs: [127.0.0.0/8]
worker-shutdown-timeout: 5s
";

fn service(name: &str, endpoints: &[SocketAddr]) -> String {
    let mut yaml = format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: demo}}\n\
         spec:\n  ports: [{{name: http, port: 80}}]\n"
    );
    for (number, endpoint) in endpoints.iter().enumerate() {
        let _ = write!(
            yaml,
            "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
             metadata:\n  name: {name}-{number}\n  namespace: demo\n  labels: {{kubernetes.io/service-name: {name}}}\n\
             addressType: IPv4\nports: [{{name: http, port: {}}}]\nendpoints: [{{addresses: [{}]}}]\n",
            endpoint.port(),
            endpoint.ip()
        );
    }
    yaml
}

fn ingress(name: &str, host: &str, secrets: &[&str]) -> String {
    let mut tls = String::new();
    for secret in secrets {
        let _ = writeln!(tls, "  - {{hosts: [\"{host}\"], secretName: {secret}}}");
    }
    if !tls.is_empty() {
        tls.insert_str(0, "  tls:\n");
    }
    format!(
        "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{name: {name}, namespace: demo}}\nspec:\n\
         {tls}  rules:\n  - host: \"{host}\"\n    http:\n      paths:\n      - path: /\n        pathType: Prefix\n        \
         backend: {{service: {{name: web, port: {{number: 80}}}}}}\n"
    )
}

fn secret(name: &str, pair: &Pair) -> String {
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, namespace: demo}}\ntype: kubernetes.io/tls\n\
         stringData:\n  tls.crt: |\n{}  tls.key: |\n{}",
        indented(&pair.certificate),
        indented(&pair.key)
    )
}

fn indented(pem: &str) -> String {
    pem.lines().map(|line| format!("    {line}\n")).collect()
}

/// A path as a shell takes it.
pub fn shell(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    match text.chars().all(plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}
