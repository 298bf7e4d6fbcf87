//! OpenSSL on both sides of the gateway: `openssl s_client`, which keeps its session in a file, for tests that resume
//! elsewhere, and `openssl ocsp`, a responder that is not of our making.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use tempfile::TempDir;

/// How a handshake went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// The server sent its certificate.
    Full,
    /// Client and server went on with the session that the client had.
    Resumed,
}

/// One request to `host` at `address`, over `version` (`tls1_2` or `tls1_3`). Resumes the session in `from`, and
/// leaves the session it got in `to`.
///
/// # Errors
/// There was no handshake, or no answer: what openssl printed.
pub fn connect(
    address: SocketAddr,
    host: &str,
    version: &str,
    from: Option<&Path>,
    to: &Path,
) -> Result<Handshake, String> {
    let mut command = Command::new("openssl");
    command.arg("s_client").args(["-connect", &address.to_string(), "-servername", host]);
    command.arg(format!("-{version}")).arg("-ign_eof").arg("-sess_out").arg(to);
    if let Some(from) = from {
        command.arg("-sess_in").arg(from);
    }
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("openssl: {error}"))?;
    let request = format!("GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    if let Some(mut input) = child.stdin.take() {
        // Where openssl has given up already, what it prints says more than the error here.
        let _ = input.write_all(request.as_bytes());
    }
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let handshake = match (text.contains("\nReused, TLSv1"), text.contains("\nNew, TLSv1")) {
        (true, false) => Handshake::Resumed,
        (false, true) => Handshake::Full,
        _ => return Err(format!("{text}{}", String::from_utf8_lossy(&output.stderr))),
    };
    match text.contains("HTTP/1.1 ") {
        true => Ok(handshake),
        false => Err(format!("no answer: {text}")),
    }
}

/// `openssl ocsp`, which says "good" about the certificate with the serial number [`Responder::SERIAL`]; killed when
/// dropped.
pub struct Responder {
    child: Child,
    url: String,
    _folder: TempDir,
}

impl Responder {
    pub const SERIAL: [u8; 3] = [0x11, 0x22, 0x33];

    /// For certificates of `ca`, with answers signed by `signer`, whose key is in PEM.
    ///
    /// # Panics
    /// OpenSSL cannot be started.
    pub fn start(ca: &CertificateDer<'_>, signer: &CertificateDer<'_>, key: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("a file");
        write("index.txt", "V\t351231235959Z\t\t112233\tunknown\t/CN=leaf\n");
        write("ca.pem", &certificate_pem(ca));
        write("signer.pem", &certificate_pem(signer));
        write("signer.key", key);
        let mut child = Command::new("openssl")
            .current_dir(folder.path())
            .args(["ocsp", "-port", "0", "-index", "index.txt", "-CA", "ca.pem"])
            .args(["-rsigner", "signer.pem", "-rkey", "signer.key", "-nmin", "60"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl");
        // It prints "ACCEPT 0.0.0.0:12345 PID=6789".
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let mut ports = lines.map_while(Result::ok).filter_map(|line| {
            let address = line.strip_prefix("ACCEPT ")?.split(' ').next()?;
            address.rsplit(':').next()?.parse::<u16>().ok()
        });
        let port = ports.next().expect("openssl announces its port");
        Self { child, url: format!("http://127.0.0.1:{port}/"), _folder: folder }
    }

    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A certificate as OpenSSL reads it.
pub fn certificate_pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}
