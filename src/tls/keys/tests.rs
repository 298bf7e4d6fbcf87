use proptest::prelude::*;

use super::*;
use crate::testing::certificates::{Authority, PemPair};

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("fixtures/", $name, ".pem"))
    };
}

fn parse(certificates: &str, key: &str) -> Result<KeyPair, KeyPairError> {
    KeyPair::parse(certificates.as_bytes(), key.as_bytes())
}

fn host(pattern: &str) -> HostPattern {
    HostPattern::parse(pattern).unwrap()
}

fn chain_of(pair: &KeyPair) -> Vec<&[u8]> {
    pair.certified.cert.iter().map(|c| c.as_ref()).collect()
}

/// A pair below two intermediates, which stand in order in `chain`.
struct Sample {
    pem: PemPair,
    chain: [String; 2],
}

fn sample() -> Sample {
    let upper = Authority::new("root").intermediate("upper");
    let lower = upper.intermediate("lower");
    Sample { pem: lower.leaf(&["example.test"]).issue(), chain: [lower.pem(), upper.pem()] }
}

#[test]
fn every_key_and_encoding_that_openssl_writes_is_read() {
    use Algorithm::*;
    for (name, certificate, keys, algorithm) in [
        ("rsa2048", fixture!("rsa2048.crt"), [fixture!("rsa2048.pkcs8"), fixture!("rsa2048.pkcs1")], Rsa),
        ("rsa3072", fixture!("rsa3072.crt"), [fixture!("rsa3072.pkcs8"), fixture!("rsa3072.pkcs1")], Rsa),
        ("rsa4096", fixture!("rsa4096.crt"), [fixture!("rsa4096.pkcs8"), fixture!("rsa4096.pkcs1")], Rsa),
        ("p256", fixture!("p256.crt"), [fixture!("p256.pkcs8"), fixture!("p256.sec1")], EcdsaP256),
        ("p384", fixture!("p384.crt"), [fixture!("p384.pkcs8"), fixture!("p384.sec1")], EcdsaP384),
        ("p521", fixture!("p521.crt"), [fixture!("p521.pkcs8"), fixture!("p521.sec1")], EcdsaP521),
        ("ed25519", fixture!("ed25519.crt"), [fixture!("ed25519.pkcs8"), fixture!("ed25519.pkcs8")], Ed25519),
    ] {
        for key in keys {
            let pair = parse(certificate, key).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(pair.algorithm, algorithm, "{name}");
            assert!(pair.covers(&host(&format!("{name}.test"))), "{name}");
            assert_eq!(*pair.warnings, []);
            let pem = pair.to_pem();
            assert_eq!(parse(&pem, &pem).unwrap().digest, pair.digest, "{name}: as it was written");
        }
    }
}

#[test]
fn keys_that_cannot_be_served_are_refused_with_the_reason() {
    let certificate = fixture!("p256.crt");
    for (key, reason) in [
        (fixture!("encrypted.pkcs8"), "KeyEncrypted"),
        (fixture!("encrypted.pkcs1"), "KeyEncrypted"),
        (fixture!("encrypted.sec1"), "KeyEncrypted"),
        (fixture!("p256.explicit"), "KeyUnsupported"),
        (fixture!("p256.explicit.pkcs8"), "KeyUnsupported"),
        (fixture!("ed448.pkcs8"), "KeyUnsupported"),
        (fixture!("secp256k1.pkcs8"), "KeyUnsupported"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----", "KeyUnsupported"),
        ("-----BEGIN DSA PRIVATE KEY-----\nAAAA\n-----END DSA PRIVATE KEY-----", "KeyUnsupported"),
        (fixture!("rsa1024.pkcs8"), "WeakKey"),
        (fixture!("rsa8192.pkcs8"), "KeyTooLarge"),
        (fixture!("rsa2048.pkcs8"), "KeyMismatch"),
        (fixture!("p384.sec1"), "KeyMismatch"),
        (certificate, "KeyMissing"),
        ("", "KeyMissing"),
        ("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----", "KeyInvalid"),
        ("-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----", "KeyInvalid"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMAA=\n-----END RSA PRIVATE KEY-----", "KeyInvalid"),
    ] {
        let error = parse(certificate, key).unwrap_err();
        assert_eq!(error.reason(), reason, "{error}");
        assert_eq!(error.part(), Part::Key);
        assert!(!error.to_string().contains("AAAA"), "{error}");
    }
    assert_eq!(
        parse(certificate, fixture!("rsa1024.pkcs8")).unwrap_err(),
        KeyPairError::WeakKey { bits: 1024 }
    );
}

/// `openssl ecparam -genkey` writes the parameters before the key.
#[test]
fn a_parameters_block_before_the_key_is_skipped() {
    assert!(fixture!("p256.parameters").starts_with("-----BEGIN EC PARAMETERS-----"));
    let pair = parse(fixture!("p256.parameters.crt"), fixture!("p256.parameters")).unwrap();
    assert_eq!(pair.algorithm, Algorithm::EcdsaP256);
    assert_eq!(*pair.names, [host("p256")], "the common name, for want of a SAN");
}

#[test]
fn spellings_of_pem_make_no_difference() {
    let Sample { pem, .. } = sample();
    let (certificates, key) = (pem.certificates_pem(), &pem.key_pem);
    let expected = pem.parse();
    type Spelling = fn(&str) -> String;
    let spellings: [(&str, Spelling); 11] = [
        ("CRLF", |text| text.replace('\n', "\r\n")),
        ("CRLF at END only", |text| text.replace("E-----\n", "E-----\r\n")),
        ("trailing blanks", |text| text.replace('\n', " \t\n")),
        ("leading blanks", |text| text.lines().map(|line| format!("  {line}\n")).collect()),
        ("byte-order mark", |text| format!("\u{feff}{text}")),
        ("byte-order mark before each block", |text| text.replace("-----BEGIN", "\u{feff}-----BEGIN")),
        ("joined with byte-order marks and without a newline", |text| {
            text.replace("-----\n-----BEGIN", "-----\u{feff}-----BEGIN").trim_end().to_owned()
        }),
        ("empty lines", |text| text.replace('\n', "\n\n")),
        ("text around", |text| {
            format!("subject=CN: x\n{}\n# end", text.replace("-----BEGIN", "\nBag: 1\n-----BEGIN"))
        }),
        ("joined without a newline", |text| {
            text.replace("-----\n-----BEGIN", "----------BEGIN").trim_end().to_owned()
        }),
        ("no padding", |text| text.replace("=\n", "\n").replace("=\n", "\n")),
    ];
    for (name, spell) in spellings {
        let pair =
            parse(&spell(&certificates), &spell(key)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(chain_of(&pair), chain_of(&expected), "{name}");
        assert_eq!(pair.digest, expected.digest, "{name}");
        assert_eq!(*pair.warnings, [], "{name}");
    }
}

#[test]
fn damaged_pem_is_refused_with_its_line() {
    let Sample { pem, .. } = sample();
    let lines = pem.leaf_pem.lines().count();
    let cut = |text: &str, n| text.lines().take(n).map(|line| format!("{line}\n")).collect::<String>();
    let second = format!("{}{}", pem.leaf_pem, cut(&pem.chain_pem, 3));
    for (certificates, line, problem) in [
        (cut(&pem.leaf_pem, 3), 1, PemProblem::NotEnded),
        (second, lines + 1, PemProblem::NotEnded),
        (format!("{}{}", cut(&pem.leaf_pem, 3), pem.chain_pem), 1, PemProblem::NotEnded),
        (pem.leaf_pem.replace("END CERT", "END KERT"), lines, PemProblem::OtherEnd),
        (pem.leaf_pem.replacen('M', "!", 1), 1, PemProblem::Base64),
        (pem.leaf_pem.replace('\n', " "), 1, PemProblem::BeginLine),
    ] {
        let error = parse(&certificates, &pem.key_pem).unwrap_err();
        assert_eq!(error, KeyPairError::PemInvalid { part: Part::Certificate, line, problem });
    }
}

#[test]
fn certificates_that_cannot_be_decoded_are_refused() {
    let Sample { pem, .. } = sample();
    let nested = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, [0x30, 0x80].repeat(50_000));
    let bomb = format!("-----BEGIN CERTIFICATE-----\n{nested}\n-----END CERTIFICATE-----\n");
    let garbage = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
    for certificates in [garbage.to_owned(), bomb] {
        let error = parse(&certificates, &pem.key_pem).unwrap_err();
        assert_eq!(error, KeyPairError::CertificateInvalid { line: 1 });
    }
    let behind = format!("{}{garbage}", pem.leaf_pem);
    let line = pem.leaf_pem.lines().count() + 1;
    assert_eq!(parse(&behind, &pem.key_pem).unwrap_err(), KeyPairError::CertificateInvalid { line });
    for empty in ["", "\u{feff}", "no certificate here", &pem.key_pem] {
        assert_eq!(parse(empty, &pem.key_pem).unwrap_err(), KeyPairError::CertificateMissing);
    }
}

#[test]
fn a_chain_in_any_order_is_served_in_order() {
    let Sample { pem, chain: [lower, upper] } = sample();
    let leaf = &pem.leaf_pem;
    let expected = pem.parse();
    assert_eq!(expected.certified.cert.len(), 3);
    for order in [[leaf, &upper, &lower], [&lower, leaf, &upper], [&upper, &lower, leaf]] {
        let pair = parse(&order.map(String::as_str).concat(), &pem.key_pem).unwrap();
        assert_eq!(chain_of(&pair), chain_of(&expected));
        assert_eq!(*pair.warnings, []);
    }
    let issuer = parse(&format!("{leaf}{lower}"), &pem.key_pem).unwrap();
    assert_eq!(issuer.issuer(), expected.issuer());
    assert!(parse(leaf, &pem.key_pem).unwrap().issuer().is_none());
}

#[test]
fn duplicates_go_and_strangers_go_with_a_warning() {
    let Sample { pem, chain: [lower, upper] } = sample();
    let stranger = Authority::new("lower").pem();
    let twice = format!("{leaf}{leaf}{lower}{upper}{lower}", leaf = pem.leaf_pem);
    let pair = parse(&twice, &pem.key_pem).unwrap();
    assert_eq!(pair.digest, pem.parse().digest);
    assert_eq!(*pair.warnings, []);

    // Its name is that of the issuer, its key is not.
    let line = pem.certificates_pem().lines().count() + 1;
    let pair = parse(&format!("{}{stranger}", pem.certificates_pem()), &pem.key_pem).unwrap();
    assert_eq!(pair.digest, pem.parse().digest);
    assert_eq!(*pair.warnings, [KeyPairWarning::UnrelatedCertificate { line }]);
}

#[test]
fn keys_among_certificates_and_the_other_way_round_do_no_harm() {
    let Sample { pem, .. } = sample();
    let combined = format!("{}{}", pem.key_pem, pem.certificates_pem());
    let pair = parse(&combined, &combined).unwrap();
    assert_eq!(pair.digest, pem.parse().digest);
    assert_eq!(*pair.warnings, [KeyPairWarning::KeyAmongCertificates { line: 1 }]);

    let other = Authority::new("x").leaf(&[]).issue().key_pem;
    let pair = parse(&pem.leaf_pem, &format!("{}{other}", pem.key_pem)).unwrap();
    let line = pem.key_pem.lines().count() + 1;
    assert_eq!(*pair.warnings, [KeyPairWarning::SecondKey { line }]);
}

#[test]
fn a_begin_within_a_line_is_warned_about() {
    let Sample { pem, .. } = sample();
    let certificates = format!("{}> {}", pem.leaf_pem, pem.chain_pem);
    let key = format!("key: {key}{key}", key = pem.key_pem);
    let pair = parse(&certificates, &key).unwrap();
    let line = pem.leaf_pem.lines().count() + 1;
    let within = |part, line| KeyPairWarning::BeginWithin { part, line };
    assert_eq!(pair.warnings.first(), Some(&within(Part::Key, 1)));
    assert_eq!(pair.warnings.get(1), Some(&within(Part::Certificate, line)));
    assert_eq!(pair.certified.cert.len(), 1, "the chain ends with the intermediate that is missing");
}

#[test]
fn sizes_are_limited() {
    let authority = Authority::new("root");
    let pem = authority.leaf(&["example.test"]).issue();
    let names: Vec<String> = (0..=MAX_NAMES).map(|n| format!("n{n}.test")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let many = authority.leaf(&names).issue();
    assert_eq!(parse(&many.leaf_pem, &many.key_pem).unwrap_err(), KeyPairError::TooManyNames);
    assert_eq!(authority.pair(&names[..MAX_NAMES]).names.len(), MAX_NAMES);

    let full = pem.leaf_pem.repeat(MAX_CERTIFICATES);
    assert!(parse(&full, &pem.key_pem).is_ok());
    let over = pem.leaf_pem.repeat(MAX_CERTIFICATES + 1);
    assert_eq!(parse(&over, &pem.key_pem).unwrap_err(), KeyPairError::TooManyCertificates);

    let long = " ".repeat(MAX_PEM_BYTES + 1);
    let error = parse(&long, &pem.key_pem).unwrap_err();
    assert_eq!(error, KeyPairError::TooLarge(Part::Certificate));
    assert_eq!(parse(&pem.leaf_pem, &long).unwrap_err(), KeyPairError::TooLarge(Part::Key));
}

#[test]
fn the_leaf_is_described() {
    let authority = Authority::new("root");
    let leaf = authority.leaf(&["*.Example.test", "example.test", "example.test", "*.test", "b*.x.test"]);
    let url = "http://ocsp.example.test/r";
    let pair = leaf.serial(0xab01).valid(1_000, 2_000).ocsp_responder(url).must_staple().issue().parse();
    assert_eq!(*pair.names, [host("example.test"), host("*.example.test")]);
    assert_eq!(*pair.warnings, [KeyPairWarning::NamesIgnored { count: 2 }]);
    assert_eq!((&*pair.serial, pair.not_before, pair.not_after), ("ab01", 1_000, 2_000));
    assert_eq!(pair.ocsp_responder.as_deref(), Some(url));
    assert!(pair.must_staple);
    assert_eq!(pair.fingerprint, sha256([pair.leaf()].into_iter()));

    let plain = Authority::new("root").leaf(&["a.test"]).common_name("cn.test").issue().parse();
    assert_eq!(*plain.names, [host("a.test")], "a common name beside a SAN does not count");
    assert_eq!((plain.ocsp_responder.as_deref(), plain.must_staple), (None, false));
}

#[test]
fn a_pair_covers_what_clients_accept_it_for() {
    let pair = Authority::new("root").pair(&["*.foo.test", "www.bar.test"]);
    for (pattern, covered) in [
        ("x.foo.test", true),
        ("*.foo.test", true),
        ("foo.test", false),
        ("a.b.foo.test", false),
        ("www.bar.test", true),
        ("*.bar.test", false),
        ("", false),
    ] {
        assert_eq!(pair.covers(&host(pattern)), covered, "{pattern:?}");
    }
}

#[test]
fn the_default_pair_is_the_one_that_dashboards_look_for() {
    let pair = KeyPair::generate_default().unwrap();
    let text = String::from_utf8_lossy(pair.leaf()).into_owned();
    assert!(text.contains("Kubernetes Ingress Controller Fake Certificate"));
    assert!(text.contains("Acme Co"));
    assert_eq!(*pair.names, [host("ingress.local")]);
    assert_eq!(pair.not_after - pair.not_before, 365 * 24 * 3600);
}

#[test]
fn intermediates_are_shared() {
    let authority = Authority::new("root").intermediate("shared");
    let (one, two) = (authority.pair(&["one.test"]), authority.pair(&["two.test"]));
    assert!(std::ptr::eq(one.issuer().unwrap(), two.issuer().unwrap()));
}

#[test]
fn debug_shows_no_secret() {
    let pem = Authority::new("root").leaf(&["a.test"]).serial(7).issue();
    assert_eq!(
        format!("{:?}", pem.parse()),
        r#"KeyPair { names: [Exact(HostName("a.test"))], serial: "07", .. }"#
    );
}

/// Hands out one pair and checks that the ClientHello tells that its key is accepted.
#[derive(Debug)]
struct OnePair(KeyPair);

impl rustls::server::ResolvesServerCert for OnePair {
    fn resolve(&self, hello: rustls::server::ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        assert!(ClientKeys::of_schemes(hello.signature_schemes()).accepts(self.0.algorithm));
        Some(self.0.certified.clone())
    }
}

#[test]
fn a_pair_of_each_kind_completes_a_handshake_with_a_client_that_verifies_it() {
    use Algorithm::*;
    let root = Authority::new("root");
    let issuer = root.intermediate("issuer");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates([root.der()]);

    for algorithm in [EcdsaP256, EcdsaP384, EcdsaP521, Ed25519, Rsa] {
        for version in rustls::ALL_VERSIONS {
            let pair = issuer.leaf(&["example.test"]).algorithm(algorithm).issue().parse();
            let chain: Vec<_> = pair.certified.cert.clone();
            let server = rustls::ServerConfig::builder_with_provider(provider.clone())
                .with_protocol_versions(&[version])
                .unwrap()
                .with_no_client_auth()
                .with_cert_resolver(Arc::new(OnePair(pair)));
            let client = rustls::ClientConfig::builder_with_provider(provider.clone())
                .with_protocol_versions(&[version])
                .unwrap()
                .with_root_certificates(roots.clone())
                .with_no_client_auth();
            let name = "example.test".try_into().unwrap();
            let mut client = rustls::ClientConnection::new(Arc::new(client), name).unwrap();
            let mut server = rustls::ServerConnection::new(Arc::new(server)).unwrap();
            while client.is_handshaking() || server.is_handshaking() {
                let mut flight = Vec::new();
                client.write_tls(&mut flight).unwrap();
                server.read_tls(&mut flight.as_slice()).unwrap();
                server.process_new_packets().unwrap();
                flight.clear();
                server.write_tls(&mut flight).unwrap();
                client.read_tls(&mut flight.as_slice()).unwrap();
                client.process_new_packets().unwrap();
            }
            assert_eq!(client.peer_certificates(), Some(chain.as_slice()), "{algorithm:?}");
        }
    }
}

#[test]
fn the_schemes_of_a_client_tell_which_keys_it_accepts() {
    use rustls::SignatureScheme as S;
    let keys = ClientKeys::of_schemes(&[S::RSA_PKCS1_SHA1, S::RSA_PSS_SHA256, S::ECDSA_NISTP384_SHA384]);
    assert!(keys.accepts(Algorithm::Rsa) && keys.accepts(Algorithm::EcdsaP384));
    assert!(!keys.accepts(Algorithm::EcdsaP256) && !keys.accepts(Algorithm::Ed25519));
    assert_eq!(ClientKeys::of_schemes(&[S::RSA_PKCS1_SHA1, S::ED448]), ClientKeys::NONE);
}

proptest! {
    #[test]
    fn no_bytes_panic(certificates: Vec<u8>, key: Vec<u8>) {
        let _ = KeyPair::parse(&certificates, &key);
        let _ = KeyPair::parse(&certificates, fixture!("p256.sec1").as_bytes());
    }

    #[test]
    fn no_damage_panics(
        key in 0..4usize,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let key = [fixture!("rsa2048.pkcs1"), fixture!("rsa2048.pkcs8"), fixture!("p384.sec1"), fixture!("ed25519.pkcs8")][key];
        let (mut certificates, mut key) = (fixture!("p384.crt").as_bytes().to_vec(), key.as_bytes().to_vec());
        for (index, byte) in damage {
            certificates[index.index(fixture!("p384.crt").len())] = byte;
            let length = key.len();
            key[index.index(length)] = byte;
        }
        let _ = KeyPair::parse(&certificates, &key);
        let _ = KeyPair::parse(&certificates, fixture!("p384.sec1").as_bytes());
        let _ = KeyPair::parse(fixture!("p384.crt").as_bytes(), &key);
    }

    /// Damage below the PEM layer, which text damage seldom reaches.
    #[test]
    fn no_damaged_der_panics(at: prop::sample::Index, byte: u8, length: prop::sample::Index) {
        let wrap = |label: &str, der: &[u8]| {
            let text = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, der);
            format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
        };
        for (label, source, part) in [
            ("CERTIFICATE", fixture!("p384.crt"), Part::Certificate),
            ("EC PRIVATE KEY", fixture!("p384.sec1"), Part::Key),
            ("PRIVATE KEY", fixture!("p384.pkcs8"), Part::Key),
            ("RSA PRIVATE KEY", fixture!("rsa2048.pkcs1"), Part::Key),
        ] {
            let mut der = pem::blocks(source.as_bytes(), part, &mut Vec::new()).unwrap()[0].der().unwrap().to_vec();
            let size = der.len();
            der[at.index(size)] = byte;
            der.truncate(size - length.index(size) / 8);
            let text = wrap(label, &der);
            let _ = parse(&text, fixture!("p384.sec1"));
            let _ = parse(fixture!("p384.crt"), &text);
        }
    }
}
