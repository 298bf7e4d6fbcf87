//! Row E21: a certificate in a Secret is stapled with what its responder says.

use std::io::Write;
use std::process::{Command, Stdio};

use portcullis::testing::openssl::{Responder, certificate_pem};
use portcullis::tls::ocsp::testing::Ca;

use super::{Site, eventually};

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
    let responder = Responder::start(&ca.der, &ca.der, &ca.key.serialize_pem());
    let leaf =
        ca.leaf().serial(&Responder::SERIAL).names(&["e21.example.com"]).urls(&[responder.url()]).issue();
    let folder = tempfile::tempdir().unwrap();
    let [chain, key] = ["chain.pem", "key.pem"].map(|name| folder.path().join(name));
    std::fs::write(&chain, certificate_pem(&leaf.der) + &certificate_pem(&ca.der)).unwrap();
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
