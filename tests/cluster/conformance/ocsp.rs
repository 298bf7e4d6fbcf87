//! Row E21: a certificate in a Secret is stapled with what its responder says.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use portcullis::tls::ocsp::testing::Ca;

use super::{Site, eventually};

/// `openssl ocsp`, which says "good" about the certificate with serial number 112233; killed when dropped.
struct Responder {
    child: Child,
    url: String,
    _folder: tempfile::TempDir,
}

impl Responder {
    fn start(ca: &Ca) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("index.txt", "V\t351231235959Z\t\t112233\tunknown\t/CN=leaf\n");
        write("ca.pem", &pem(&ca.der));
        write("ca.key", &ca.key.serialize_pem());
        let mut child = Command::new("openssl")
            .current_dir(folder.path())
            .args(["ocsp", "-port", "0", "-index", "index.txt", "-CA", "ca.pem"])
            .args(["-rsigner", "ca.pem", "-rkey", "ca.key", "-nmin", "60"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // It prints "ACCEPT 0.0.0.0:12345 PID=6789".
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port: u16 = loop {
            let line = lines.next().expect("openssl announces its port").unwrap();
            if let Some(rest) = line.strip_prefix("ACCEPT ") {
                let address = rest.split(' ').next().unwrap();
                break address.rsplit(':').next().unwrap().parse().unwrap();
            }
        };
        Self { child, url: format!("http://127.0.0.1:{port}/"), _folder: folder }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

/// What a client of OpenSSL that asks for a staple is shown.
fn status(site: &Site, host: &str) -> String {
    let mut client = Command::new("openssl")
        .args(["s_client", "-status", "-servername", host])
        .args(["-connect", &site.gateway.https_address().to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    client.stdin.take().unwrap().write_all(b"Q\n").unwrap();
    String::from_utf8_lossy(&client.wait_with_output().unwrap().stdout).into_owned()
}

#[test]
fn e21_the_first_client_is_shown_a_staple_that_says_good() {
    let settings = [("ocsp-allowed-cidrs", "127.0.0.0/8")];
    let Some(site) = Site::start("e21", &settings, &[]) else { return };
    let ca = Ca::new("issuer");
    let responder = Responder::start(&ca);
    let leaf =
        ca.leaf().serial(&[0x11, 0x22, 0x33]).names(&["e21.example.com"]).urls(&[&responder.url]).issue();
    let folder = tempfile::tempdir().unwrap();
    let [chain, key] = ["chain.pem", "key.pem"].map(|name| folder.path().join(name));
    std::fs::write(&chain, pem(&leaf.der) + &pem(&ca.der)).unwrap();
    std::fs::write(&key, leaf.key.serialize_pem()).unwrap();
    let files = [format!("--cert={}", chain.display()), format!("--key={}", key.display())];
    site.kubectl(&["create", "secret", "tls", "tls", &files[0], &files[1]]);
    site.secured("web", "e21.example.com", "tls");
    eventually("the staple is not fetched", || {
        let certificates = site.gateway.admin_json("/api/v1/certificates");
        let found = certificates["certificates"].as_array().unwrap().iter();
        match found.clone().any(|it| it["secret"] == "e21/tls" && it["ocsp"]["state"] == "good") {
            true => Ok(()),
            false => Err(certificates.to_string()),
        }
    });
    let first = status(&site, "e21.example.com");
    assert!(
        first.contains("OCSP Response Status: successful") && first.contains("Cert Status: good"),
        "{first}"
    );
    assert!(first.contains("112233"), "{first}");
}
