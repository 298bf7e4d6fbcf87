//! OpenSSL on both sides: its responder with a direct and a delegated signer, its client with TLS 1.2 and 1.3.

use portcullis::testing::openssl::Responder;
use portcullis::tls::ocsp::testing::{Ca, Issued};

use super::site::Site;

/// Clients of both versions see "good", and the one that doesn't ask is left in peace.
fn shows_good(ca: &Ca, responder: &Responder) {
    let leaf: Issued =
        ca.leaf().serial(&Responder::SERIAL).names(&["a.example"]).urls(&[responder.url()]).issue();
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
    let responder = Responder::start(&ca.der, &ca.der, &ca.key.serialize_pem());
    shows_good(&ca, &responder);
}

#[test]
fn a_delegated_signer() {
    let ca = Ca::new("issuer");
    let delegate = ca.delegate("responder").issue();
    let responder = Responder::start(&ca.der, &delegate.der, &delegate.key.serialize_pem());
    shows_good(&ca, &responder);
}
