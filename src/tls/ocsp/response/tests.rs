use std::fs;
use std::process::Command;

use proptest::prelude::*;
use rcgen::ExtendedKeyUsagePurpose;

use super::super::request::Request;
use super::super::testing::{Answer, Ca, Issued, critical_extension, unsuccessful};
use super::*;

const NOW: u64 = 1_800_000_000;

struct Kit {
    ca: Ca,
    leaf: Issued,
}

impl Kit {
    fn new() -> Self {
        Self::of(Ca::new("issuer"))
    }

    fn of(ca: Ca) -> Self {
        let leaf = ca.leaf().issue();
        Self { ca, leaf }
    }

    fn good(&self) -> Answer {
        Answer::good(&self.leaf.der, &self.ca.der, NOW)
    }

    fn verify(&self, response: &[u8]) -> Result<Staple, Refusal> {
        verify(response, &self.leaf.der, &self.ca.der, NOW)
    }

    fn refusal(&self, response: &[u8]) -> Refusal {
        self.verify(response).expect_err("the response is refused")
    }
}

#[test]
fn an_answer_signed_by_the_issuer_is_a_staple() {
    let kit = Kit::new();
    for by_key in [false, true] {
        let mut signer = kit.ca.signer();
        signer.by_key = by_key;
        let response = kit.good().sign(&signer);
        let staple = kit.verify(&response).unwrap();
        assert_eq!(&staple.der[..], response);
        assert_eq!((staple.this_update, staple.next_update, staple.produced_at), (NOW, NOW + 3600, NOW));
        assert!(staple.is_fresh(NOW + 3599));
        assert!(!staple.is_fresh(NOW + 3600));
    }
}

#[test]
fn an_answer_signed_by_a_delegate_is_a_staple() {
    let kit = Kit::new();
    let delegate = kit.ca.delegate("responder").valid(NOW - 10, NOW + 86400).issue();
    for by_key in [false, true] {
        let mut signer = delegate.signer();
        signer.by_key = by_key;
        assert!(kit.verify(&kit.good().sign(&signer)).is_ok());
    }
}

#[test]
fn a_delegate_may_carry_the_name_of_its_issuer() {
    let kit = Kit::new();
    let delegate = kit.ca.delegate("issuer").valid(NOW - 10, NOW + 86400).issue();
    let (_, issuer) = X509Certificate::from_der(&kit.ca.der).unwrap();
    let (_, parsed) = X509Certificate::from_der(&delegate.der).unwrap();
    assert_eq!(parsed.subject().as_raw(), issuer.subject().as_raw());
    assert!(kit.verify(&kit.good().sign(&delegate.signer())).is_ok());
}

#[test]
fn a_staple_ends_with_the_delegate_that_signed_it() {
    let kit = Kit::new();
    let delegate = kit.ca.delegate("responder").valid(NOW - 10, NOW + 60).issue();
    let response = kit.good().sign(&delegate.signer());
    assert_eq!(kit.verify(&response).unwrap().next_update, NOW + 60);
    let last_second = verify(&response, &kit.leaf.der, &kit.ca.der, NOW + 60);
    assert_eq!(last_second, Err(Refusal::DelegateNotValidNow));
}

#[test]
fn delegates_without_authority_are_refused() {
    let kit = Kit::new();
    let delegate = |name: &str| kit.ca.delegate(name).valid(NOW - 10, NOW + 86400);
    let refusal = |delegate: Issued| kit.refusal(&kit.good().sign(&delegate.signer()));

    let expired = kit.ca.delegate("old").valid(NOW - 20, NOW - 10).issue();
    assert_eq!(refusal(expired), Refusal::DelegateNotValidNow);
    let early = kit.ca.delegate("early").valid(NOW + 10, NOW + 20).issue();
    assert_eq!(refusal(early), Refusal::DelegateNotValidNow);
    assert_eq!(refusal(delegate("bare").usages(&[]).issue()), Refusal::DelegateWithoutUsage);
    let server = delegate("server").usages(&[ExtendedKeyUsagePurpose::ServerAuth]).issue();
    assert_eq!(refusal(server), Refusal::DelegateWithoutUsage);
    let anything = delegate("any").usages(&[ExtendedKeyUsagePurpose::Any]).issue();
    assert_eq!(refusal(anything), Refusal::DelegateWithoutUsage);

    let stranger = Ca::new("stranger").delegate("responder").valid(NOW - 10, NOW + 86400).issue();
    assert_eq!(refusal(stranger), Refusal::DelegateNotByIssuer);
    let namesake = Ca::new("issuer").delegate("responder").valid(NOW - 10, NOW + 86400).issue();
    assert_eq!(refusal(namesake), Refusal::DelegateNotByIssuer);
}

#[test]
fn an_answer_signed_by_the_leaf_itself_is_refused() {
    let kit = Kit::new();
    let leaf = kit.ca.leaf().valid(NOW - 10, NOW + 86400).issue();
    let answer = Answer::good(&leaf.der, &kit.ca.der, NOW).sign(&leaf.signer());
    assert_eq!(verify(&answer, &leaf.der, &kit.ca.der, NOW), Err(Refusal::DelegateWithoutUsage));
}

#[test]
fn a_signer_that_is_not_named_or_not_enclosed_is_refused() {
    let kit = Kit::new();
    let delegate = kit.ca.delegate("responder").valid(NOW - 10, NOW + 86400).issue();
    let mut absent = delegate.signer();
    absent.enclosed.clear();
    assert_eq!(kit.refusal(&kit.good().sign(&absent)), Refusal::UnknownResponder);

    // Named after the issuer, signed by another key.
    let mut imposter = kit.ca.signer();
    imposter.key = &delegate.key;
    assert_eq!(kit.refusal(&kit.good().sign(&imposter)), Refusal::BadSignature);

    // A good delegate far down the list of certificates is not searched for.
    let mut crowd = delegate.signer();
    crowd.enclosed = vec![kit.leaf.der.clone(); MAX_CERTIFICATES];
    crowd.enclosed.push(delegate.der.clone());
    assert_eq!(kit.refusal(&kit.good().sign(&crowd)), Refusal::UnknownResponder);
}

#[test]
fn every_unsuccessful_status_is_named() {
    let kit = Kit::new();
    let names = [
        (1, "malformedRequest"),
        (2, "internalError"),
        (3, "tryLater"),
        (5, "sigRequired"),
        (6, "unauthorized"),
    ];
    for (status, name) in names {
        assert_eq!(kit.refusal(&unsuccessful(status)), Refusal::Unsuccessful(name));
    }
    // 4 is not assigned, and "successful" with nothing in it says nothing.
    assert_eq!(kit.refusal(&unsuccessful(4)), Refusal::Malformed);
    assert_eq!(kit.refusal(&unsuccessful(0)), Refusal::Malformed);
}

#[test]
fn a_non_successful_status_is_refused_whatever_is_enclosed() {
    let kit = Kit::new();
    let mut response = kit.good().sign(&kit.ca.signer());
    let status = response.windows(3).position(|w| w == [0x0a, 1, 0]).unwrap() + 2;
    response[status] = 3;
    assert_eq!(kit.refusal(&response), Refusal::Unsuccessful("tryLater"));
}

#[test]
fn answers_about_other_certificates_are_refused() {
    let kit = Kit::new();
    let other = kit.ca.leaf().issue();
    let answer = Answer::good(&other.der, &kit.ca.der, NOW).sign(&kit.ca.signer());
    assert_eq!(kit.refusal(&answer), Refusal::OtherCertificate);

    let mut same_serial = kit.good();
    same_serial.singles[0].cert_id.issuer_key_hash =
        x509_cert::der::asn1::OctetString::new([0_u8; 20]).unwrap();
    assert_eq!(kit.refusal(&same_serial.sign(&kit.ca.signer())), Refusal::OtherCertificate);

    let mut none = kit.good();
    none.singles.clear();
    assert_eq!(kit.refusal(&none.sign(&kit.ca.signer())), Refusal::OtherCertificate);
}

#[test]
fn our_entry_is_found_among_others_and_must_be_the_only_one() {
    let kit = Kit::new();
    let other = kit.ca.leaf().issue();
    let mut both = Answer::good(&other.der, &kit.ca.der, NOW);
    both.singles.extend(kit.good().singles);
    assert!(kit.verify(&both.sign(&kit.ca.signer())).is_ok());

    both.singles.extend(Answer::revoked(&kit.leaf.der, &kit.ca.der, NOW).singles);
    assert_eq!(kit.refusal(&both.sign(&kit.ca.signer())), Refusal::Ambiguous);
}

#[test]
fn a_missing_null_in_the_hash_algorithm_is_no_difference() {
    let kit = Kit::new();
    let mut answer = kit.good();
    answer.singles[0].cert_id.hash_algorithm.parameters = None;
    assert!(kit.verify(&answer.sign(&kit.ca.signer())).is_ok());
}

#[test]
fn revoked_and_unknown_are_never_staples() {
    let kit = Kit::new();
    let revoked = Answer::revoked(&kit.leaf.der, &kit.ca.der, NOW);
    assert_eq!(kit.refusal(&revoked.sign(&kit.ca.signer())), Refusal::Revoked { this_update: NOW });
    let unknown = Answer::unknown(&kit.leaf.der, &kit.ca.der, NOW);
    assert_eq!(kit.refusal(&unknown.sign(&kit.ca.signer())), Refusal::Unknown { this_update: NOW });

    // "Revoked" from anyone else is only noise.
    assert_eq!(kit.refusal(&revoked.sign(&kit.leaf.signer())), Refusal::DelegateWithoutUsage);
    let old = revoked.window(NOW - 100, Some(NOW - 1)).sign(&kit.ca.signer());
    assert_eq!(kit.refusal(&old), Refusal::Expired);
}

#[test]
fn dates_are_held_against_the_clock() {
    let kit = Kit::new();
    let at = |this, next| kit.verify(&kit.good().window(this, next).sign(&kit.ca.signer()));
    assert_eq!(at(NOW - 100, Some(NOW)), Err(Refusal::Expired));
    assert!(at(NOW - 100, Some(NOW + 1)).is_ok());
    assert!(at(NOW + MAX_SKEW, Some(NOW + 3600)).is_ok());
    assert_eq!(at(NOW + MAX_SKEW + 1, Some(NOW + 3600)), Err(Refusal::FromFuture));
    assert_eq!(at(NOW + 10, Some(NOW + 5)), Err(Refusal::Inverted));
}

#[test]
fn an_answer_without_next_update_lasts_an_hour() {
    let kit = Kit::new();
    let at = |this| kit.verify(&kit.good().window(this, None).sign(&kit.ca.signer()));
    assert_eq!(at(NOW - 600).unwrap().next_update, NOW + 3000);
    assert_eq!(at(NOW - 3600), Err(Refusal::Expired));
}

#[test]
fn unknown_critical_extensions_are_refused() {
    let kit = Kit::new();
    let mut answer = kit.good();
    answer.extensions = Some(critical_extension());
    assert_eq!(kit.refusal(&answer.sign(&kit.ca.signer())), Refusal::CriticalExtension);
    let mut answer = kit.good();
    answer.singles[0].single_extensions = Some(critical_extension());
    assert_eq!(kit.refusal(&answer.sign(&kit.ca.signer())), Refusal::CriticalExtension);
}

#[test]
fn nonsense_and_trailing_bytes_are_malformed() {
    let kit = Kit::new();
    assert_eq!(kit.refusal(b""), Refusal::Malformed);
    assert_eq!(kit.refusal(b"<html>404</html>"), Refusal::Malformed);
    let mut long = kit.good().sign(&kit.ca.signer());
    long.push(0);
    assert_eq!(kit.refusal(&long), Refusal::Malformed);
}

#[test]
fn an_unsigned_answer_is_refused() {
    let kit = Kit::new();
    let answer = kit.good();
    let unsigned = answer.sign_with(&kit.ca.signer(), |_| Vec::new());
    assert_eq!(kit.refusal(&unsigned), Refusal::BadSignature);
    let zeroed = answer.sign_with(&kit.ca.signer(), |_| vec![0; 70]);
    assert_eq!(kit.refusal(&zeroed), Refusal::BadSignature);
}

#[test]
fn no_changed_byte_goes_unnoticed() {
    let kit = Kit::new();
    let response = kit.good().sign(&kit.ca.signer());
    for place in 0..response.len() {
        let mut tampered = response.clone();
        tampered[place] ^= 1;
        assert!(kit.verify(&tampered).is_err(), "byte {place}");
    }
}

#[test]
fn the_end_of_a_stored_response_is_readable_without_its_certificate() {
    let kit = Kit::new();
    assert_eq!(unverified_next_update(&kit.good().sign(&kit.ca.signer())), Some(NOW + 3600));
    assert_eq!(unverified_next_update(b"junk"), None);
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let kit = kit();
        prop_assert!(kit.verify(&bytes).is_err());
    }

    #[test]
    fn mutated_responses_never_panic_and_never_pass(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(), truncate: bool,
    ) {
        let kit = kit();
        let original = &DELEGATED.1;
        let mut bytes = original.clone();
        for (place, value) in edits {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        if truncate {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(staple) = kit.verify(&bytes) {
            // Certificates travel unsigned beside the response: only there may bytes differ without harm.
            prop_assert_eq!(&staple.der[..], &bytes[..]);
            prop_assert_eq!(staple.next_update, NOW + 3600);
        }
    }
}

static DELEGATED: std::sync::LazyLock<(Kit, Vec<u8>)> = std::sync::LazyLock::new(|| {
    let kit = Kit::new();
    let delegate = kit.ca.delegate("responder").valid(NOW - 10, NOW + 86400).issue();
    let response = kit.good().sign(&delegate.signer());
    (kit, response)
});

fn kit() -> &'static Kit {
    &DELEGATED.0
}

/// Has `openssl ocsp` answer our request from a database, signed by `signer` (certificate and key as PEM).
fn openssl_answer(kit: &Kit, signer: &CertificateDer<'_>, key: &str, revoked: bool, digest: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let (_, leaf) = X509Certificate::from_der(&kit.leaf.der).unwrap();
    let serial = hex_upper(leaf.raw_serial());
    let (flag, revoked_at) = if revoked { ("R", "250101000000Z") } else { ("V", "") };
    fs::write(
        path("index.txt"),
        format!("{flag}\t351231235959Z\t{revoked_at}\t{serial}\tunknown\t/CN=leaf\n"),
    )
    .unwrap();
    fs::write(path("request.der"), Request::new(&kit.leaf.der, &kit.ca.der).unwrap().der()).unwrap();
    fs::write(path("ca.pem"), pem("CERTIFICATE", &kit.ca.der)).unwrap();
    fs::write(path("signer.pem"), pem("CERTIFICATE", signer)).unwrap();
    fs::write(path("signer.key"), key).unwrap();
    let output = Command::new("openssl")
        .current_dir(dir.path())
        .args(["ocsp", "-index", "index.txt", "-CA", "ca.pem", "-rsigner", "signer.pem"])
        .args([
            "-rkey",
            "signer.key",
            "-reqin",
            "request.der",
            "-respout",
            "response.der",
            "-nmin",
            "5",
            "-rmd",
            digest,
        ])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::read(path("response.der")).unwrap()
}

fn pem(label: &str, der: &[u8]) -> String {
    use base64::Engine;
    let text = base64::prelude::BASE64_STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).map(|c| std::str::from_utf8(c).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

fn hex_upper(bytes: &[u8]) -> String {
    let text: String = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
    // OpenSSL's database has no padding octet in front of serials with the high bit set.
    text.strip_prefix("00").unwrap_or(&text).to_owned()
}

fn wall_clock() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

#[test]
fn openssl_signing_as_the_issuer_is_accepted() {
    let kit = Kit::new();
    let response = openssl_answer(&kit, &kit.ca.der, &kit.ca.key.serialize_pem(), false, "sha256");
    let now = wall_clock();
    let staple = verify(&response, &kit.leaf.der, &kit.ca.der, now).unwrap();
    assert_eq!(staple.next_update - staple.this_update, 300);
}

#[test]
fn openssl_signing_as_a_delegate_is_accepted_and_revoked_is_told() {
    let kit = Kit::new();
    let delegate = kit.ca.delegate("responder").issue();
    let key = delegate.key.serialize_pem();
    let response = openssl_answer(&kit, &delegate.der, &key, false, "sha256");
    assert!(verify(&response, &kit.leaf.der, &kit.ca.der, wall_clock()).is_ok());
    let response = openssl_answer(&kit, &delegate.der, &key, true, "sha256");
    let verdict = verify(&response, &kit.leaf.der, &kit.ca.der, wall_clock());
    assert!(matches!(verdict, Err(Refusal::Revoked { .. })), "{verdict:?}");
}

#[test]
fn openssl_signing_with_the_leaf_is_refused() {
    let kit = Kit::new();
    let response = openssl_answer(&kit, &kit.leaf.der, &kit.leaf.key.serialize_pem(), false, "sha256");
    let refusal = verify(&response, &kit.leaf.der, &kit.ca.der, wall_clock()).unwrap_err();
    assert_eq!(refusal, Refusal::DelegateWithoutUsage);
}

#[test]
fn openssl_signing_with_rsa_is_accepted_unless_the_digest_is_sha1() {
    let kit = Kit::of(Ca::rsa("issuer"));
    for (digest, result) in
        [("sha256", Ok(300)), ("sha512", Ok(300)), ("sha1", Err(Refusal::UnsupportedSignature))]
    {
        let response = openssl_answer(&kit, &kit.ca.der, &kit.ca.key.serialize_pem(), false, digest);
        let verified = verify(&response, &kit.leaf.der, &kit.ca.der, wall_clock());
        assert_eq!(verified.map(|staple| staple.next_update - staple.this_update), result, "{digest}");
    }
}
