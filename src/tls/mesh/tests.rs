use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, CustomExtension,
    DnType, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber,
};
use time::{Duration, OffsetDateTime};

use super::*;

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn leaf(authority: &CertifiedIssuer<'static, KeyPair>, uris: &[&str]) -> CertificateDer<'static> {
    let mut params = CertificateParams::new(vec!["web.test".into()]).unwrap();
    for uri in uris {
        params.subject_alt_names.push(SanType::URI((*uri).try_into().unwrap()));
    }
    params.signed_by(&KeyPair::generate().unwrap(), authority).unwrap().der().clone()
}

fn trust(pem: &str, trust_domains: &[&str]) -> Result<Arc<MeshTrust>, MeshTrustError> {
    let trust_domains = trust_domains.iter().map(|&name| name.into()).collect();
    MeshTrust::new(TrustBundle { roots: pem.into(), trust_domains, ..TrustBundle::default() }, 0)
        .map(Arc::new)
}

fn verify(trust: &Arc<MeshTrust>, certificate: &CertificateDer<'static>) -> Result<(), String> {
    let asks = AsksForIdentity { trust: trust.clone(), required: false };
    let verified = asks.verify_client_cert(certificate, &[], UnixTime::now());
    verified.map(drop).map_err(|error| match error {
        Error::InvalidCertificate(CertificateError::Other(other)) => other.0.to_string(),
        other => other.to_string(),
    })
}

#[test]
fn exactly_one_identity_of_our_trust_domain_is_accepted() {
    let ours = authority("ours");
    let trust = trust(&ours.pem(), &["cluster.local", "old.example"]).unwrap();
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
fn a_name_that_cannot_be_read_may_be_another_identity() {
    let ours = authority("ours");
    let trust = trust(&ours.pem(), &["cluster.local"]).unwrap();
    let uri = b"spiffe://cluster.local/ns/app/sa/web";
    // The content of the extension (RFC 5280, section 4.2.1.6): a sequence of names, where a URI has tag 6.
    let certificate = |second: &[u8]| {
        let mut names = [&[0x86, uri.len() as u8][..], uri].concat();
        if !second.is_empty() {
            names.extend([&[0x86, second.len() as u8][..], second].concat());
        }
        let content = [&[0x30, names.len() as u8][..], &names].concat();
        let mut params = CertificateParams::default();
        params.custom_extensions.push(CustomExtension::from_oid_content(&[2, 5, 29, 17], content));
        params.signed_by(&KeyPair::generate().unwrap(), &ours).unwrap().der().clone()
    };
    assert_eq!(verify(&trust, &certificate(b"")), Ok(()));
    let error = verify(&trust, &certificate(b"spiffe://\xff/ns/a/sa/b")).unwrap_err();
    assert!(error.contains("cannot be read"), "{error}");
}

#[test]
fn a_certificate_of_another_authority_is_refused() {
    let trust = trust(&authority("ours").pem(), &["cluster.local"]).unwrap();
    let foreign = leaf(&authority("theirs"), &["spiffe://cluster.local/ns/app/sa/web"]);
    assert!(verify(&trust, &foreign).is_err());
}

#[test]
fn a_bundle_of_several_roots_trusts_each_and_one_without_any_is_refused() {
    let (a, b) = (authority("a"), authority("b"));
    let trust = trust(&format!("{}{}", a.pem(), b.pem()), &["cluster.local"]).unwrap();
    for authority in [&a, &b] {
        assert_eq!(verify(&trust, &leaf(authority, &["spiffe://cluster.local/ns/app/sa/web"])), Ok(()));
    }
    let none = self::trust("nothing here", &[]).err();
    assert_eq!(none, Some(MeshTrustError::NoCertificate));
}

/// A list by `authority` of the certificate with this serial number.
fn list(authority: &CertifiedIssuer<'static, KeyPair>, serial: u64) -> String {
    let now = OffsetDateTime::now_utc();
    let revoked = RevokedCertParams {
        serial_number: SerialNumber::from(serial),
        revocation_time: now,
        reason_code: None,
        invalidity_date: None,
    };
    let params = CertificateRevocationListParams {
        this_update: now - Duration::days(2),
        // It has ended, which is no reason to forget it.
        next_update: now - Duration::days(1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: vec![revoked],
        key_identifier_method: KeyIdMethod::Sha256,
    };
    params.signed_by(authority).unwrap().pem().unwrap()
}

fn leaf_with_serial(authority: &CertifiedIssuer<'static, KeyPair>, serial: u64) -> CertificateDer<'static> {
    let mut params = CertificateParams::default();
    let uri = "spiffe://cluster.local/ns/app/sa/web".try_into().unwrap();
    params.subject_alt_names.push(SanType::URI(uri));
    params.serial_number = Some(SerialNumber::from(serial));
    params.signed_by(&KeyPair::generate().unwrap(), authority).unwrap().der().clone()
}

fn with_lists(roots: &str, revocations: &str) -> Result<Arc<MeshTrust>, MeshTrustError> {
    let trust_domains = vec!["cluster.local".into()];
    let bundle = TrustBundle { roots: roots.into(), revocations: revocations.into(), trust_domains };
    MeshTrust::new(bundle, 0).map(Arc::new)
}

#[test]
fn a_listed_certificate_is_refused_and_found_among_those_that_are_connected() {
    let ours = authority("ours");
    let (good, bad) = (leaf_with_serial(&ours, 7), leaf_with_serial(&ours, 8));
    let before = with_lists(&ours.pem(), "").unwrap();
    let client = |certificate: &CertificateDer<'static>| {
        MeshClient::new(before.identity(certificate).unwrap(), std::slice::from_ref(certificate))
    };
    let (good_client, bad_client) = (client(&good), client(&bad));
    assert_eq!(verify(&before, &bad), Ok(()));
    assert_eq!(bad_client.standing(&before), Standing::Good);
    // Where the list stands makes no difference.
    let listed = list(&ours, 8);
    for after in [
        with_lists(&ours.pem(), &listed).unwrap(),
        with_lists(&format!("{}{listed}", ours.pem()), "").unwrap(),
    ] {
        assert!(verify(&after, &bad).unwrap_err().contains("Revoked"));
        assert_eq!(verify(&after, &good), Ok(()));
        assert_eq!([(); 2].map(|()| bad_client.standing(&after)), [Standing::Revoked; 2]);
        assert_eq!(good_client.standing(&after), Standing::Good);
        assert_eq!(bad_client.standing(&before), Standing::Good, "each trust is asked for itself");
    }
}

#[test]
fn a_list_that_would_fail_every_handshake_is_refused_at_once() {
    let (ours, twin) = (authority("ours"), authority("ours"));
    let refused = |revocations: &str| with_lists(&ours.pem(), revocations).err().unwrap().to_string();
    assert!(refused(&list(&twin, 8)).contains("did not sign it"));
    let garbage = "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n";
    assert!(refused(garbage).contains("revocation list"));
    // A list of an authority that is no root is used where the authority turns up.
    assert!(with_lists(&ours.pem(), &list(&authority("below"), 8)).is_ok());
}

#[test]
fn a_client_stays_as_long_as_its_root_and_its_trust_domain_do() {
    let (ours, other) = (authority("ours"), authority("other"));
    let certificate = leaf(&ours, &["spiffe://cluster.local/ns/app/sa/web"]);
    let with = |pem: String, domain| trust(&pem, &[domain]).unwrap();
    let first = with(ours.pem(), "cluster.local");
    let id = first.identity(&certificate).unwrap();
    let client = MeshClient::new(id, &[certificate]).verified_by(first);
    let both = with(format!("{}{}", other.pem(), ours.pem()), "cluster.local");
    assert_eq!(client.standing(&both), Standing::Good);
    assert_eq!(client.standing(&with(other.pem(), "cluster.local")), Standing::Untrusted);
    assert_eq!(client.standing(&both), Standing::Good, "what was untrusted once is verified anew");
    assert_eq!(client.standing(&with(ours.pem(), "elsewhere.example")), Standing::Untrusted);
}

#[test]
fn a_chain_ends_with_its_first_certificate_that_was_of_use() {
    let ends_at = |seconds: i64| {
        let mut params = CertificateParams::default();
        params.not_before = OffsetDateTime::UNIX_EPOCH;
        params.not_after = OffsetDateTime::from_unix_timestamp(seconds).unwrap();
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    };
    let (late, early, over) = (ends_at(3000), ends_at(2000), ends_at(500));
    assert_eq!(end_of(&[late.clone(), early.clone()], 1000), 2000);
    assert_eq!(end_of(&[early, late.clone(), over.clone()], 1000), 2000, "a root of old that came along");
    assert_eq!(end_of(&[over, late], 1000), 500);
}

#[test]
fn a_root_that_has_ended_verifies_nobody() {
    let ends_at = |name: &str, seconds: i64| {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.not_after = OffsetDateTime::from_unix_timestamp(seconds).unwrap();
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    };
    let (old, present) = (ends_at("old", 1000), ends_at("present", 2000));
    let bundle = TrustBundle {
        roots: format!("{}{}", old.pem(), present.pem()).into(),
        trust_domains: vec!["cluster.local".into()],
        ..TrustBundle::default()
    };
    let at = |now| MeshTrust::new(bundle.clone(), now).map(Arc::new);
    let of_old = leaf(&old, &["spiffe://cluster.local/ns/app/sa/web"]);
    let of_present = leaf(&present, &["spiffe://cluster.local/ns/app/sa/web"]);
    let before = at(1000).unwrap();
    assert_eq!((before.ended(), before.next_end()), (0, 1001));
    assert!(verify(&before, &of_old).is_ok() && verify(&before, &of_present).is_ok());
    assert!(before.is_made_of(&bundle, 1000) && !before.is_made_of(&bundle, 1001));
    let after = at(1001).unwrap();
    assert_eq!((after.ended(), after.next_end()), (1, 2001));
    assert!(verify(&after, &of_old).is_err() && verify(&after, &of_present).is_ok());
    assert_eq!(at(2001).err(), Some(MeshTrustError::Ended));
}
