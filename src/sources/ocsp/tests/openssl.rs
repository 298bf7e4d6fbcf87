//! The whole path over real sockets to `openssl ocsp`.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use base64::Engine;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::super::*;
use crate::tls::ocsp::status::{OcspState, OcspStatus};
use crate::tls::ocsp::testing::Ca;

/// A running responder; killed when dropped.
struct Openssl {
    child: Child,
    port: u16,
    _dir: tempfile::TempDir,
}

impl Drop for Openssl {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Openssl {
    fn start(ca: &Ca, signer: (&[u8], String), serial: &[u8], status: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| std::fs::write(dir.path().join(name), text).unwrap();
        let serial: String = serial.iter().map(|byte| format!("{byte:02X}")).collect();
        write("index.txt", format!("{status}\t{serial}\tunknown\t/CN=leaf\n"));
        write("ca.pem", pem(&ca.der));
        write("signer.pem", pem(signer.0));
        write("signer.key", signer.1);
        let mut child = Command::new("openssl")
            .current_dir(dir.path())
            .args(["ocsp", "-port", "0", "-index", "index.txt", "-CA", "ca.pem"])
            .args(["-rsigner", "signer.pem", "-rkey", "signer.key", "-nmin", "5"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // It prints "ACCEPT 0.0.0.0:12345 PID=6789".
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = loop {
            let line = lines.next().expect("openssl announces its port").unwrap();
            if let Some(rest) = line.strip_prefix("ACCEPT ") {
                let address = rest.split(' ').next().unwrap();
                break address.rsplit(':').next().unwrap().parse().unwrap();
            }
        };
        Self { child, port, _dir: dir }
    }
}

fn pem(der: &[u8]) -> String {
    let text = base64::prelude::BASE64_STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).map(|c| std::str::from_utf8(c).unwrap()).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

/// Runs the task against openssl and returns the first event that is not "pending".
async fn first_event(ca: &Ca, signer: (&[u8], String), status: &str, path: &str) -> OcspStatus {
    let probe = ca.leaf().serial(&[0x11, 0x22, 0x33]).issue();
    let (_, parsed) = X509Certificate::from_der(&probe.der).unwrap();
    let responder = Openssl::start(ca, signer, parsed.raw_serial(), status);
    let url = format!("http://127.0.0.1:{}{path}", responder.port);
    let leaf = ca.leaf().serial(&[0x11, 0x22, 0x33]).urls(&[&url]).issue();
    let wanted = Wanted::of(&[leaf.der, ca.der.clone()], "shop".into()).unwrap();
    let settings =
        OcspSettings { allowed_cidrs: vec!["127.0.0.0/8".parse().unwrap()], ..OcspSettings::default() };
    let (updates, inbox) = mpsc::unbounded_channel();
    let (outbox, mut events) = mpsc::channel(8);
    tokio::spawn(run(Environment::system(OcspMetrics::default()), None, settings, inbox, outbox));
    updates.send(Update::Add(wanted)).unwrap();
    loop {
        let Event::Staple(status) = events.recv().await.unwrap() else { continue };
        if status.state != OcspState::Pending {
            return (*status).clone();
        }
    }
}

const VALID: &str = "V\t351231235959Z\t";
const REVOKED: &str = "R\t351231235959Z\t250101000000Z";

#[tokio::test]
async fn direct_and_delegated_signers_give_staples_by_get_and_by_post() {
    let ca = Ca::new("issuer");
    let delegate = ca.delegate("responder").issue();
    let long = format!("/{}", "a".repeat(200));
    for path in ["/", long.as_str()] {
        let direct = (&ca.der[..], ca.key.serialize_pem());
        let event = first_event(&ca, direct, VALID, path).await;
        assert_eq!(event.state, OcspState::Good, "{event:?}");
        assert_eq!(event.next_update.unwrap() - event.this_update.unwrap(), 300);

        let delegated = (&delegate.der[..], delegate.key.serialize_pem());
        let event = first_event(&ca, delegated, VALID, path).await;
        assert_eq!(event.state, OcspState::Good, "{event:?}");
    }
}

#[tokio::test]
async fn revoked_is_told_and_not_stapled() {
    let ca = Ca::new("issuer");
    let event = first_event(&ca, (&ca.der, ca.key.serialize_pem()), REVOKED, "/").await;
    assert_eq!((event.state, event.staple), (OcspState::Revoked, None));
}
