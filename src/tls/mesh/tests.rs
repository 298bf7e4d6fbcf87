use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};

use super::*;

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn leaf(authority: &CertifiedIssuer<'static, KeyPair>, uris: &[&str]) -> CertificateDer<'static> {
    let mut params = CertificateParams::new(vec!["web.test".into()]).unwrap();
    for uri in uris {
        params.subject_alt_names.push(SanType::URI((*uri).try_into().unwrap()));
    }
    params.signed_by(&KeyPair::generate().unwrap(), authority).unwrap().der().clone()
}

fn verify(trust: &MeshTrust, certificate: &CertificateDer<'static>) -> Result<(), String> {
    let verified = trust.verify_client_cert(certificate, &[], UnixTime::now());
    verified.map(drop).map_err(|error| match error {
        Error::InvalidCertificate(CertificateError::Other(other)) => other.0.to_string(),
        other => other.to_string(),
    })
}

#[test]
fn exactly_one_identity_of_our_trust_domain_is_accepted() {
    let ours = authority("ours");
    let trust = MeshTrust::new(&ours.pem(), vec!["cluster.local".into(), "old.example".into()]).unwrap();
    for uris in [&["spiffe://cluster.local/ns/app/sa/web"], &["spiffe://old.example/ns/app/sa/web"]] {
        assert_eq!(verify(&trust, &leaf(&ours, uris)), Ok(()), "{uris:?}");
    }
    for (uris, reason) in [
        (&[][..], "has 0 URI names"),
        (&["spiffe://partner.example/ns/a/sa/b", "spiffe://cluster.local/ns/app/sa/web"], "has 2 URI names"),
        (&["spiffe://cluster.local/ns/app/sa/web", "https://a.test"], "has 2 URI names"),
        (&["spiffe://partner.example/ns/app/sa/web"], "trust domain partner.example"),
        (&["https://cluster.local/ns/app/sa/web"], "does not begin with 'spiffe://'"),
    ] {
        let error = verify(&trust, &leaf(&ours, uris)).unwrap_err();
        assert!(error.contains(reason), "{uris:?}: {error}");
    }
}

#[test]
fn a_certificate_of_another_authority_is_refused() {
    let trust = MeshTrust::new(&authority("ours").pem(), vec!["cluster.local".into()]).unwrap();
    let foreign = leaf(&authority("theirs"), &["spiffe://cluster.local/ns/app/sa/web"]);
    assert!(verify(&trust, &foreign).is_err());
}

#[test]
fn a_bundle_of_several_roots_trusts_each_and_one_without_any_is_refused() {
    let (a, b) = (authority("a"), authority("b"));
    let trust = MeshTrust::new(&format!("{}{}", a.pem(), b.pem()), vec!["cluster.local".into()]).unwrap();
    for authority in [&a, &b] {
        assert_eq!(verify(&trust, &leaf(authority, &["spiffe://cluster.local/ns/app/sa/web"])), Ok(()));
    }
    let none = MeshTrust::new("nothing here", Vec::new()).err();
    assert_eq!(none, Some(MeshTrustError::NoCertificate));
}
