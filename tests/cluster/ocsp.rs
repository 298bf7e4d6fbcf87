//! What an OCSP responder says about a certificate, as somebody who only looks at Events hears of it.

#[path = "../it/ocsp/responder.rs"]
#[allow(dead_code)]
mod responder;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use portcullis::tls::ocsp::testing::Ca;

use super::control_plane::ControlPlane;
use super::eventually;
use super::gateway::Gateway;
use super::secrets::ingress;
use responder::{Manner, Responder};

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn pem(der: &[u8]) -> String {
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", BASE64_STANDARD.encode(der))
}

#[test]
fn a_revoked_certificate_makes_an_event_of_its_secret() {
    let Some(plane) = ControlPlane::start() else { return };
    plane.namespace("revoked");
    let ca = Arc::new(Ca::new("issuer"));
    let responder = Responder::start(&ca, Manner::Revoked, Duration::ZERO);
    let leaf = ca.leaf().names(&["revoked.example.com"]).urls(&[&responder.url]).issue();
    responder.knows(&leaf);
    let encode = |text: String| BASE64_STANDARD.encode(text);
    plane.apply(&format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{ namespace: revoked, name: tls }}\ntype: kubernetes.io/tls\n\
         data: {{ tls.crt: {}, tls.key: {} }}\n",
        encode(pem(&leaf.der) + &pem(&ca.der)),
        encode(leaf.key.serialize_pem()),
    ));
    plane.apply(&ingress("revoked", "web", "revoked.example.com", "tls"));
    let settings = plane.path().join("settings.yaml");
    std::fs::write(&settings, "ocsp-allowed-cidrs: [127.0.0.0/8]\n").unwrap();
    let gateway = Gateway::start(&plane.kubeconfig(), &[&format!("--settings={}", settings.display())]);
    eventually("nobody says so", || match gateway.reasons("revoked", "tls") {
        reasons if reasons.iter().any(|reason| reason == "CertificateRevoked") => Ok(()),
        reasons => Err(format!("{reasons:?}")),
    });
    eventually("no Event", || {
        let path = "jsonpath={range .items[?(@.reason==\"CertificateRevoked\")]}{.involvedObject.kind}/{.involvedObject.name} {end}";
        match plane.kubectl(&["-n", "revoked", "get", "events", "-o", path]).trim() {
            "Secret/tls" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
}
