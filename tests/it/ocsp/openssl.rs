//! OpenSSL on both sides: its responder with a direct and a delegated signer, its client with TLS 1.2 and 1.3.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use portcullis::tls::ocsp::testing::{Ca, Issued};
use rustls_pki_types::CertificateDer;
use tempfile::TempDir;

use super::site::{Site, pem};

const SERIAL: [u8; 3] = [0x11, 0x22, 0x33];

/// `openssl ocsp`, which says "good" about the leaf with [`SERIAL`]; killed when dropped.
struct Openssl {
    child: Child,
    url: String,
    _folder: TempDir,
}

impl Openssl {
    fn start(ca: &Ca, signer: &CertificateDer<'_>, key: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).unwrap();
        write("index.txt", "V\t351231235959Z\t\t112233\tunknown\t/CN=leaf\n".into());
        write("ca.pem", pem("CERTIFICATE", &ca.der));
        write("signer.pem", pem("CERTIFICATE", signer));
        write("signer.key", key.into());
        let mut child = Command::new("openssl")
            .current_dir(folder.path())
            .args(["ocsp", "-port", "0", "-index", "index.txt", "-CA", "ca.pem"])
            .args(["-rsigner", "signer.pem", "-rkey", "signer.key", "-nmin", "60"])
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

impl Drop for Openssl {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Clients of both versions see "good", and the one that doesn't ask is left in peace.
fn shows_good(ca: &Ca, responder: &Openssl) {
    let leaf: Issued = ca.leaf().serial(&SERIAL).names(&["a.example"]).urls(&[&responder.url]).issue();
    let site = Site::new(&[]);
    site.serve("a.example", &leaf, ca);
    let site = site.start();
    site.eventually_in("a.example", "good");
    for version in ["-tls1_2", "-tls1_3"] {
        let shown = site.s_client("a.example", &[version, "-status"]);
        assert!(shown.contains("OCSP Response Status: successful"), "{version}: {shown}");
        assert!(shown.contains("Cert Status: good"), "{version}: {shown}");
        assert!(shown.contains("Serial Number: 112233"), "{version}: {shown}");
        // A staple that was not asked for would be an alert: openssl refuses extensions it did not offer.
        let shown = site.s_client("a.example", &[version]);
        assert!(shown.contains("SSL handshake has read"), "{version}: {shown}");
        assert!(!shown.contains("OCSP"), "{version}: {shown}");
        assert!(shown.contains("Cipher is ") && !shown.contains("Cipher is (NONE)"), "{version}: {shown}");
    }
}

#[test]
fn a_direct_signer() {
    let ca = Ca::new("issuer");
    let responder = Openssl::start(&ca, &ca.der, &ca.key.serialize_pem());
    shows_good(&ca, &responder);
}

#[test]
fn a_delegated_signer() {
    let ca = Ca::new("issuer");
    let delegate = ca.delegate("responder").issue();
    let responder = Openssl::start(&ca, &delegate.der, &delegate.key.serialize_pem());
    shows_good(&ca, &responder);
}
