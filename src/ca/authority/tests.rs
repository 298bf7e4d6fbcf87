use rcgen::{ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose};

use super::*;
use crate::ca::fixtures::{
    self, HOUR, Made, NOW, ca_params, hours, issue, openssl_text, openssl_verify, web,
};

fn made(made: &Made) -> Result<Authority, MaterialError> {
    Authority::new(made.signer().clone(), made.key(), made.chain(), made.root_bundle(), Vec::new(), NOW)
}

fn leaf(issued: &Issued) -> Certificate {
    Certificate::from_der(issued.leaf.clone()).unwrap()
}

#[tokio::test]
async fn ca_08_the_leaf_profile() {
    let authority = fixtures::authority().await;
    let key = PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
    let id = SpiffeId::new("cluster.local", "shop", "web").unwrap();
    let names = WorkloadNames::new(id, vec!["web.shop.svc".to_owned()]).unwrap();
    let issued = authority.issue(&PublicKey::from_own_key(&key), &names, HOUR, NOW).unwrap();
    let text = openssl_text(&authority.chain_pem(&issued.leaf));
    let squeezed = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for expected in [
        "Version: 3",
        "Signature Algorithm: ecdsa-with-SHA256",
        "Issuer: O = cluster.local Validity",
        "Subject: Subject Public Key Info",
        "X509v3 Key Usage: critical Digital Signature, Key Encipherment",
        "X509v3 Extended Key Usage: TLS Web Server Authentication, TLS Web Client Authentication",
        "X509v3 Basic Constraints: critical CA:FALSE",
        "X509v3 Subject Alternative Name: critical URI:spiffe://cluster.local/ns/shop/sa/web, DNS:web.shop.svc",
    ] {
        assert!(squeezed.contains(expected), "{expected:?} in {text}");
    }
    assert_eq!(openssl_verify(&authority.chain_pem(&issued.leaf), &authority.roots().to_pem(), NOW), Ok(()));
}

#[tokio::test]
async fn serials_are_positive_differ_and_have_sixteen_bytes() {
    let authority = fixtures::authority().await;
    let serials: std::collections::BTreeSet<String> =
        (0..50).map(|_| leaf(&issue(&authority, HOUR, NOW)).serial).collect();
    assert_eq!(serials.len(), 50);
    assert!(serials.iter().all(|serial| serial.len() == 32 && serial.as_str() < "8"), "{serials:?}");
}

#[test]
fn ca_10_the_bounds_of_a_life() {
    let policy = TtlPolicy { default: HOUR, max: 2 * HOUR };
    assert_eq!(policy.resolve(0), Ok(HOUR));
    assert_eq!(policy.resolve(-5), Ok(HOUR));
    assert_eq!(policy.resolve(i64::MIN), Ok(HOUR));
    assert_eq!(policy.resolve(1), Ok(Duration::from_secs(1)));
    assert_eq!(policy.resolve(7200), Ok(2 * HOUR));
    assert_eq!(policy.resolve(7201).unwrap_err().label(), "TTL_ERROR");
    assert_eq!(policy.resolve(i64::MAX).unwrap_err().label(), "TTL_ERROR");
    let defaults = TtlPolicy::default();
    assert_eq!((defaults.default, defaults.max), (24 * HOUR, 90 * 24 * HOUR));
}

#[test]
fn ca_11_no_leaf_outlives_its_signer_and_an_ended_signer_signs_nothing() {
    let mut short = ca_params("short");
    short.not_after = NOW + hours(1);
    let authority = made(&Made::root(ca_params("root")).below(short)).unwrap();
    let issued = issue(&authority, 2 * HOUR, NOW);
    assert_eq!(leaf(&issued).not_after, NOW + hours(1));
    let key = PublicKey::from_own_key(&PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap());
    let later = NOW + time::Duration::minutes(61);
    let error = authority.issue(&key, &web(), HOUR, later).unwrap_err();
    assert_eq!(error, IssueError::SignerExpired(NOW + hours(1)));
    assert_eq!(error.label(), "CERT_GEN_ERROR");
}

#[test]
fn no_leaf_outlives_the_chain_above_its_signer() {
    let mut upper = ca_params("upper");
    upper.not_after = NOW + hours(1);
    let authority = made(&Made::root(ca_params("root")).below(upper).below(ca_params("lower"))).unwrap();
    assert_eq!(issue(&authority, 2 * HOUR, NOW).not_after, NOW + hours(1));
}

#[tokio::test]
async fn ca_24_dated_back_by_exactly_120_seconds() {
    let authority = fixtures::authority().await;
    let now = NOW + time::Duration::milliseconds(750);
    let leaf = leaf(&issue(&authority, HOUR, now));
    assert_eq!(leaf.not_before, NOW - time::Duration::seconds(120));
    assert_eq!(leaf.not_after, NOW + hours(1));
    // Peers whose clocks are behind accept it up to these two minutes.
    let at = |offset: i64| {
        let at = NOW + time::Duration::seconds(offset);
        verify(leaf.der(), &[], authority.roots(), KeyUsage::client_auth(), at).is_ok()
    };
    assert!(at(-60));
    assert!(!at(-180));
}

#[test]
fn six_bad_cas_have_six_messages() {
    let root = || Made::root(ca_params("root"));
    let spoiled = |spoil: &dyn Fn(&mut rcgen::CertificateParams)| {
        let mut params = ca_params("signer");
        spoil(&mut params);
        made(&root().below(params)).unwrap_err()
    };
    let mut other_key = root().below(ca_params("signer"));
    other_key.key = rcgen::KeyPair::generate().unwrap().into();
    let orphan = root().below(ca_params("orphan"));
    let orphan = Authority::new(
        orphan.signer().clone(),
        orphan.key(),
        orphan.chain(),
        root().root_bundle(),
        Vec::new(),
        NOW,
    );
    let errors = [
        spoiled(&|params| params.is_ca = IsCa::NoCa),
        spoiled(&|params| params.key_usages = vec![KeyUsagePurpose::CrlSign]),
        spoiled(&|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]),
        spoiled(&|params| params.not_after = NOW - hours(1)),
        spoiled(&|params| params.not_before = NOW + hours(1)),
        made(&other_key).unwrap_err(),
        orphan.unwrap_err(),
    ];
    assert!(matches!(
        errors,
        [
            MaterialError::NotCa,
            MaterialError::MayNotSign,
            MaterialError::UsagesDoNotNest,
            MaterialError::Expired(_),
            MaterialError::NotYetValid(_),
            MaterialError::KeyMismatch,
            MaterialError::NoPathToRoot(_),
        ]
    ));
    let messages: std::collections::BTreeSet<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(messages.len(), errors.len(), "{messages:?}");
}

#[test]
fn a_path_length_that_leaves_no_room_is_refused() {
    let mut upper = ca_params("upper");
    upper.is_ca = IsCa::Ca(rcgen::BasicConstraints::Constrained(0));
    let error = made(&Made::root(ca_params("root")).below(upper).below(ca_params("lower"))).unwrap_err();
    assert!(matches!(error, MaterialError::NoPathToRoot(_)), "{error}");
}

#[test]
fn each_intermediate_is_an_element_and_the_roots_are_the_last_one() {
    let ca = Made::root(ca_params("root")).below(ca_params("upper")).below(ca_params("lower"));
    let second = Made::root(ca_params("second root"));
    let mut roots = ca.root_bundle();
    roots.insert(second.signer().clone());
    // The chain comes in any order, with a root in it and the signing certificate twice.
    let mut chain = ca.certificates.clone();
    chain.extend(ca.chain());
    let authority = Authority::new(ca.signer().clone(), ca.key(), chain, roots, Vec::new(), NOW).unwrap();
    let issued = issue(&authority, HOUR, NOW);
    let answer = authority.answer(&issued.leaf);
    assert_eq!(answer.len(), 1 + 2 + 1);
    assert!(answer[..3].iter().all(|element| Certificate::from_pem(element.as_bytes()).unwrap().len() == 1));
    assert_eq!(Certificate::from_pem(answer[1].as_bytes()).unwrap()[0], *ca.signer());
    assert!(RootBundle::from_pem(answer[3].as_bytes()).unwrap().same_as(authority.roots()));
    assert!(answer.iter().all(|element| element.ends_with("-----\n") && !element.ends_with("\n\n")));
    assert_eq!(openssl_verify(&answer[..3].concat(), &answer[3], NOW), Ok(()));
    assert!(openssl_verify(&answer[0], &answer[3], NOW).is_err());
}

#[test]
fn an_issuer_name_with_repeated_components_is_copied_whole() {
    // rcgen cannot make such a name; OpenSSL can.
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let output = std::process::Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-384",
            "-nodes",
            "-days",
            "30",
        ])
        .args(["-addext", "keyUsage=critical,keyCertSign"])
        .args([
            "-subj",
            "/DC=com/DC=example/OU=a/OU=b/CN=root",
            "-keyout",
            &path("key"),
            "-out",
            &path("cert"),
        ])
        .output()
        .unwrap();
    assert!(output.status.success());
    let now = OffsetDateTime::now_utc() + time::Duration::seconds(5);
    let root = Certificate::first_from_pem(&std::fs::read(path("cert")).unwrap()).unwrap();
    let key = PrivateKey::from_pem(&std::fs::read(path("key")).unwrap()).unwrap();
    let bundle = RootBundle::new([root.clone()]);
    let authority = Authority::new(root.clone(), key, Vec::new(), bundle, Vec::new(), now).unwrap();
    let issued = issue(&authority, HOUR, now);
    assert_eq!(leaf(&issued).issuer, root.subject);
    assert_eq!(openssl_verify(&authority.chain_pem(&issued.leaf), &root.to_pem(), now), Ok(()));
    assert!(authority.chain().is_empty(), "a root that signs itself is no intermediate");
}

#[test]
fn the_signature_algorithm_follows_from_the_ca_key_and_never_from_the_request() {
    for (ca_key, word) in [
        (&rcgen::PKCS_ECDSA_P256_SHA256, "ecdsa-with-SHA256"),
        (&rcgen::PKCS_ECDSA_P384_SHA384, "ecdsa-with-SHA384"),
        (&rcgen::PKCS_RSA_SHA256, "sha256WithRSAEncryption"),
        (&rcgen::PKCS_ED25519, "ED25519"),
    ] {
        let key = rcgen::KeyPair::generate_for(ca_key).unwrap();
        let root = Certificate::from_der(ca_params("root").self_signed(&key).unwrap().der().clone()).unwrap();
        let key = PrivateKey::from_pem(key.serialize_pem().as_bytes()).unwrap();
        let bundle = RootBundle::new([root.clone()]);
        let authority = Authority::new(root, key, Vec::new(), bundle, Vec::new(), NOW).unwrap();
        for request_key in [
            &rcgen::PKCS_ECDSA_P256_SHA256,
            &rcgen::PKCS_ECDSA_P384_SHA384,
            &rcgen::PKCS_RSA_SHA256,
            &rcgen::PKCS_ED25519,
        ] {
            let (own, request) = fixtures::greedy_request(request_key);
            let public = PublicKey::from_csr(request.as_bytes()).unwrap();
            let issued = authority.issue(&public, &web(), HOUR, NOW).unwrap();
            assert_eq!(leaf(&issued).public_key_info, rcgen::PublicKeyData::subject_public_key_info(&own));
            let pem = authority.chain_pem(&issued.leaf);
            assert!(openssl_text(&pem).contains(word));
            assert_eq!(openssl_verify(&pem, &authority.roots().to_pem(), NOW), Ok(()));
        }
    }
}

#[test]
fn debug_shows_no_key() {
    let ca = Made::root(ca_params("root"));
    let shown = format!("{:?}", made(&ca).unwrap());
    assert!(shown.contains("PrivateKey(..)"), "{shown}");
}
