use std::process::Command;
use std::sync::LazyLock;

use proptest::prelude::*;

use rustls::pki_types::pem::PemObject;
use time::{Duration, OffsetDateTime};

use x509_parser::prelude::X509Version;

use super::*;
use crate::clock;
use crate::snapshot::client_auth::SUBJECT_PATTERN;
use crate::testing::certificates::{Authority, Leaf};

const SERIAL: u64 = 4711;

fn client(authority: &Authority) -> Leaf<'_> {
    authority.leaf(&[]).common_name("web").serial(SERIAL).for_clients()
}

fn chain(leaf: Leaf<'_>) -> Vec<CertificateDer<'static>> {
    ders(&leaf.issue().certificates_pem())
}

fn ders(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).map(Result::unwrap).collect()
}

fn authorities(certificates: &str, lists: Option<&str>) -> Result<Arc<ClientAuthorities>, AuthoritiesError> {
    let ca = ClientCa::new(certificates.as_bytes(), lists.map(str::as_bytes));
    ca.authorities().cloned().map_err(Clone::clone)
}

fn judge(certificates: &str, lists: Option<&str>, chain: &[CertificateDer<'static>]) -> Verdict {
    authorities(certificates, lists).unwrap().judge(chain, clock::seconds()).verdict
}

#[test]
fn a_chain_is_good_where_it_leads_to_an_authority() {
    let (root, other) = (Authority::new("root"), Authority::new("other"));
    let below = root.intermediate("below");
    let good = |intermediates| Verdict::Good { intermediates };
    assert_eq!(judge(&root.pem(), None, &chain(client(&root))), good(0));
    assert_eq!(judge(&root.pem(), None, &chain(client(&below))), good(1));
    assert_eq!(judge(&(root.pem() + &below.pem()), None, &chain(client(&below))), good(0));
    assert_eq!(judge(&(other.pem() + &root.pem()), None, &chain(client(&root))), good(0));
    let bad = |fault| Verdict::Bad(fault);
    assert_eq!(judge(&other.pem(), None, &chain(client(&root))), bad(Fault::UnknownIssuer));
    assert_eq!(judge(&other.pem(), None, &ders(&root.pem())), bad(Fault::SelfSigned));
    assert_eq!(judge(&root.pem(), None, &chain(root.leaf(&[]))), bad(Fault::Purpose));
    // One that claims to be of an authority, by name.
    let impostor = Authority::new("root");
    assert!(matches!(judge(&root.pem(), None, &chain(client(&impostor))), Verdict::Bad(_)));
    assert_eq!(judge(&root.pem(), None, &[vec![0x30, 0].into()]), bad(Fault::Rejected));
}

#[test]
fn time_counts_for_clients_and_for_authorities() {
    let root = Authority::new("root");
    let now = clock::now();
    let chain_of = |from, to| chain(client(&root).valid(from, to));
    let bad = |fault| Verdict::Bad(fault);
    assert_eq!(judge(&root.pem(), None, &chain_of(now - 100, now - 10)), bad(Fault::Expired));
    assert_eq!(judge(&root.pem(), None, &chain_of(now + 1000, now + 2000)), bad(Fault::NotYetValid));

    let authorities = authorities(&root.pem(), None).unwrap();
    let soon = now + 100;
    let judgement = authorities.judge(&chain_of(now - 100, soon), clock::seconds());
    assert_eq!(judgement, Judgement { verdict: Verdict::Good { intermediates: 0 }, until: soon as u64 });

    let shown =
        ClientCertificate::new(&chain_of(now - 100, soon), Some((authorities.clone(), judgement))).unwrap();
    assert_eq!(shown.verdict(&authorities, soon as u64), judgement.verdict);
    assert_eq!(
        shown.verdict(&authorities, soon as u64 + 1),
        bad(Fault::Expired),
        "on an open connection too"
    );

    // The root is of 1975 to 4096; at another time it is not in force, whatever it signed.
    let then = OffsetDateTime::from_unix_timestamp(0).unwrap() + Duration::days(365);
    let at = then.unix_timestamp();
    let early = chain_of(0, now + 100);
    assert_eq!(authorities.judge(&early, at as u64).verdict, bad(Fault::NotYetValid));
    assert_eq!(authorities.ended(at as u64), (1, true));
    assert_eq!(authorities.ended(clock::seconds()), (0, false));
}

#[test]
fn lists_revoke_and_are_needed_for_every_authority() {
    let root = Authority::new("root");
    let below = root.intermediate_with_serial("below", 99);
    let (direct, indirect) = (chain(client(&root)), chain(client(&below)));
    let good = |intermediates| Verdict::Good { intermediates };
    let bad = |fault| Verdict::Bad(fault);
    let (none, some) = (root.revocation_list(&[1]), root.revocation_list(&[SERIAL]));
    assert_eq!(judge(&root.pem(), Some(&none), &direct), good(0));
    assert_eq!(judge(&root.pem(), Some(&some), &direct), bad(Fault::Revoked));
    assert_eq!(judge(&root.pem(), Some(&none), &indirect), bad(Fault::NoList));
    let both = none.clone() + &below.revocation_list(&[]);
    assert_eq!(judge(&root.pem(), Some(&both), &indirect), good(1));
    let both = none.clone() + &below.revocation_list(&[SERIAL]);
    assert_eq!(judge(&root.pem(), Some(&both), &indirect), bad(Fault::Revoked));
    let both = root.revocation_list(&[99]) + &below.revocation_list(&[]);
    assert_eq!(judge(&root.pem(), Some(&both), &indirect), bad(Fault::Revoked));

    // After its end a list is as good as none.
    let authorities = authorities(&root.pem(), Some(&none)).unwrap();
    let tomorrow = clock::seconds() + 25 * 3600;
    assert!(!authorities.lists_have_ended(clock::seconds()) && authorities.lists_have_ended(tomorrow));
    assert_eq!(authorities.judge(&direct, tomorrow).verdict, bad(Fault::ListExpired));
    let until = authorities.judge(&direct, clock::seconds()).until;
    assert!(until < tomorrow, "a verdict holds no longer than the list");
    assert_eq!(authorities.next_change(clock::seconds()), Some(until + 1));
    assert_eq!(judge(&root.pem(), Some(&none), &ders(&root.pem())), bad(Fault::SelfSigned));
}

#[test]
fn what_cannot_be_read_verifies_nobody() {
    let (root, impostor) = (Authority::new("root"), Authority::new("root"));
    let refused = |certificates: &str, lists: Option<&str>| authorities(certificates, lists).unwrap_err();
    for certificates in ["", "root", "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"] {
        assert_eq!(refused(certificates, None), AuthoritiesError::NoCertificate, "{certificates}");
    }
    let empty = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
    assert!(matches!(refused(&(root.pem() + empty), None), AuthoritiesError::Certificate(_)));
    for lists in ["", "list", &root.pem()] {
        assert_eq!(refused(&root.pem(), Some(lists)), AuthoritiesError::NoList, "{lists}");
    }
    let forged = impostor.revocation_list(&[]);
    assert!(matches!(refused(&root.pem(), Some(&forged)), AuthoritiesError::List(_)));
}

#[test]
fn a_certificate_that_is_an_authority_itself_is_good_unless_lists_could_revoke_it() {
    let root = Authority::new("root");
    let own = ders(&root.pem());
    assert_eq!(judge(&root.pem(), None, &own), Verdict::Good { intermediates: 0 });
    // An intermediate is no client, whoever trusts it.
    let below = root.intermediate("below");
    assert!(matches!(judge(&below.pem(), None, &ders(&below.pem())), Verdict::Bad(_)));
}

#[test]
fn equal_content_is_one_set() {
    let root = Authority::new("root").pem();
    let one = ClientCa::new(root.as_bytes(), None);
    assert!(Arc::ptr_eq(&one, &ClientCa::new(root.as_bytes(), None)));
    assert!(!Arc::ptr_eq(&one, &ClientCa::new(root.as_bytes(), Some(b""))));
    let commented = format!("# the same\n{root}");
    let other = ClientCa::new(commented.as_bytes(), None);
    assert!(one.authorities().unwrap().is_same(other.authorities().unwrap()));
}

/// OpenSSL before 3.2 makes certificates of version 1 of requests.
#[test]
fn certificates_of_version_1_are_good_where_an_authority_has_signed_them() {
    let folder = tempfile::tempdir().unwrap();
    let openssl = |arguments: &str| {
        let output =
            Command::new("openssl").args(arguments.split(' ')).current_dir(&folder).output().unwrap();
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    };
    for (name, more) in [("ca", ""), ("other", ""), ("none", " -addext basicConstraints=critical,CA:FALSE")] {
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
        openssl(&format!("req -x509 {key} -keyout {name}.key -out {name}.crt -days 30 -subj /CN=ca{more}"));
    }
    openssl(
        "req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout c.key -out c.csr -subj /C=DE/CN=c",
    );
    let issue = |ca: &str, digest: &str, out: &str| {
        let ca = format!("-CA {ca}.crt -CAkey {ca}.key -set_serial {SERIAL}");
        openssl(&format!("x509 -req -{digest} -days 30 -in c.csr {ca} -out {out}"));
    };
    issue("ca", "sha256", "c.crt");
    issue("ca", "sha1", "weak.crt");
    issue("none", "sha256", "by-none.crt");
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let chain = ders(&read("c.crt"));
    if X509Certificate::from_der(&chain[0]).unwrap().1.version() != X509Version::V1 {
        // A younger OpenSSL makes none.
        return;
    }
    let verdict = |ca: &str, chain: &str| judge(&read(ca), None, &ders(&read(chain)));
    assert_eq!(verdict("ca.crt", "c.crt"), Verdict::Good { intermediates: 0 });
    assert_eq!(verdict("other.crt", "c.crt"), Verdict::Bad(Fault::BadSignature));
    assert_eq!(verdict("ca.crt", "weak.crt"), Verdict::Bad(Fault::Rejected));
    // It has signed it, and may not.
    assert_eq!(verdict("none.crt", "by-none.crt"), Verdict::Bad(Fault::UnknownIssuer));
    assert_eq!(judge(&Authority::new("else").pem(), None, &chain), Verdict::Bad(Fault::UnknownIssuer));
    let set = authorities(&read("ca.crt"), None).unwrap();
    let later = clock::seconds() + 31 * 24 * 3600;
    assert_eq!(set.judge(&chain, later).verdict, Verdict::Bad(Fault::Expired));
    let shown = ClientCertificate::new(&chain, None).unwrap();
    assert_eq!(shown.subject().unwrap(), "CN=c,C=DE");
    assert_eq!(shown.issuer().unwrap(), "CN=ca");
}

#[test]
fn names_that_no_header_has_room_for_are_no_names() {
    let root = Authority::new("root");
    let long = chain(client(&root).common_name(&"x".repeat(5000)));
    let set = authorities(&root.pem(), None).unwrap();
    let shown = ClientCertificate::new(&long, None).unwrap();
    assert_eq!(shown.subject(), None);
    assert_eq!(shown.verdict(&set, clock::seconds()), Verdict::Bad(Fault::Rejected));
    let pattern = Arc::new(SearchPattern::new("", SUBJECT_PATTERN).unwrap());
    assert!(!shown.is_for(&pattern));
    assert!(ClientCertificate::new(&[], None).is_none());
}

proptest! {
    #[test]
    fn no_certificate_panics(changes in proptest::collection::vec((0..600_usize, any::<u8>()), 0..6)) {
        static WORLD: LazyLock<(String, String, Vec<u8>)> = LazyLock::new(|| {
            let root = Authority::new("root");
            let leaf = chain(client(&root).uri("https://a.test")).remove(0);
            (root.pem(), root.revocation_list(&[]), leaf.to_vec())
        });
        let (root, list, leaf) = &*WORLD;
        let mut leaf = leaf.clone();
        for (at, byte) in changes {
            if let Some(place) = leaf.get_mut(at) {
                *place = byte;
            }
        }
        let is_changed = leaf != WORLD.2;
        let chain = [CertificateDer::from(leaf)];
        for lists in [None, Some(list.as_str())] {
            let good = matches!(judge(root, lists, &chain), Verdict::Good { .. });
            prop_assert!(good != is_changed);
        }
        if let Some(shown) = ClientCertificate::new(&chain, None) {
            shown.escaped();
            let text = shown.subject().map(|subject| subject.to_str().unwrap());
            prop_assert!(text.is_none_or(|text| text.len() <= LONGEST_NAME));
        }
    }
}

#[test]
fn a_certificate_is_told_in_percent_encoded_pem() {
    let chain = chain(client(&Authority::new("root")));
    let shown = ClientCertificate::new(&chain, None).unwrap();
    let text = shown.escaped().unwrap().to_str().unwrap();
    assert!(text.starts_with("-----BEGIN%20CERTIFICATE-----%0AMII"), "{text}");
    assert!(text.ends_with("%0A-----END%20CERTIFICATE-----%0A"), "{text}");
    let decoded = percent_encoding::percent_decode_str(text).decode_utf8().unwrap();
    assert_eq!(ders(&decoded)[0], chain[0]);
}
