//! The handshake itself: versions, suites, groups, ALPN, resumption, and clients that do not behave.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::Duration;

use portcullis::testing::certificates::Authority;
use portcullis::tls::client::{Alpn, ClientTls};
use portcullis::tls::keys::Algorithm;

use crate::site::{Answer, Hello, PATIENCE, Plan, Site, bound, eventually, ingress, pair, record};

fn plan() -> Plan {
    Plan::new().file("a.yaml", bound("a", "a.test")).secret("a", &pair(1, &["a.test"]))
}

/// A fatal alert and its description (RFC 8446, section 6.2).
const fn fatal(description: u8) -> Answer {
    Answer::Alert(2, description)
}

const NO_APPLICATION_PROTOCOL: Answer = fatal(120);
const UNRECOGNIZED_NAME: Answer = fatal(112);

#[test]
fn unknown_and_missing_names_can_be_turned_away() {
    let site = plan().setting("ssl-reject-handshake: true").file("b.yaml", bound("b", "b.test")).start();
    assert_eq!(site.served("a.test"), Some(1));
    assert_eq!(site.served("b.test"), None, "a host whose Secret is missing is known all the same");
    assert_eq!(site.hello(Hello::new().name("unknown.test")), UNRECOGNIZED_NAME);
    assert_eq!(site.hello(Hello::new()), UNRECOGNIZED_NAME);
    for arguments in [&["-servername", "unknown.test"][..], &["-noservername"]] {
        let refused = site.openssl(arguments);
        assert!(!refused.done);
        refused.assert_says("unrecognized name");
    }
    site.set("ssl-reject-handshake", "false");
    eventually("the default certificate", || {
        matches!(site.hello(Hello::new().name("unknown.test")), Answer::Certificate(_))
    });
}

#[test]
fn versions_are_settings_and_change_while_running() {
    let site = plan().start();
    let speaks = |version: &str| site.openssl(&["-servername", "a.test", version]).done;
    assert!(speaks("-tls1_2") && speaks("-tls1_3"));
    let old = site.openssl(&["-servername", "a.test", "-tls1_1", "-cipher", "ALL:@SECLEVEL=0"]);
    assert!(!old.done);
    old.assert_says("alert");

    site.set("ssl-protocols", "TLSv1.3");
    eventually("TLS 1.3 alone", || !speaks("-tls1_2"));
    assert!(speaks("-tls1_3"));
    site.set("ssl-protocols", "TLSv1.2");
    eventually("TLS 1.2 alone", || !speaks("-tls1_3"));
    assert!(speaks("-tls1_2"));

    // What cannot be had is refused, and what was there stays.
    site.set("ssl-protocols", "TLSv1.1");
    eventually("the refusal", || site.log().contains("last good"));
    assert!(speaks("-tls1_2"));
}

#[test]
fn suites_and_groups_are_settings() {
    let site = plan().start();
    let says = |arguments: &[&str], words: &str| {
        let arguments = [&["-servername", "a.test"], arguments].concat();
        let handshake = site.openssl(&arguments);
        handshake.done && handshake.text.contains(words)
    };
    assert!(says(&["-tls1_2"], "Cipher is ECDHE-ECDSA-AES128-GCM-SHA256"));
    assert!(says(&["-tls1_3"], "Cipher is TLS_AES_128_GCM_SHA256"));
    assert!(says(&["-groups", "P-384"], "Server Temp Key: ECDH, secp384r1"));
    assert!(says(&["-groups", "P-256"], "Server Temp Key: ECDH, prime256v1"));
    assert!(says(&["-groups", "X25519"], "Server Temp Key: X25519"));

    site.set("ssl-ciphers", "ECDHE-ECDSA-CHACHA20-POLY1305");
    eventually("one suite", || says(&["-tls1_2"], "Cipher is ECDHE-ECDSA-CHACHA20-POLY1305"));
    assert!(!says(&["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"], ""));
    site.set("ssl-ecdh-curve", "secp384r1");
    eventually("one group", || !says(&["-groups", "X25519"], ""));
    assert!(says(&["-groups", "X25519:P-384"], "Server Temp Key: ECDH, secp384r1"));
}

#[tokio::test]
async fn the_post_quantum_group_is_preferred() {
    let site = plan().start();
    let group = || async {
        let tcp = tokio::net::TcpStream::connect(site.https).await.unwrap();
        let stream =
            ClientTls::unverified().connect(tcp, "a.test", site.https.ip(), Alpn::Http1).await.unwrap();
        format!("{:?}", stream.get_ref().1.negotiated_key_exchange_group().unwrap().name())
    };
    assert_eq!(group().await, "X25519MLKEM768");
    site.set("ssl-ecdh-curve", "X25519");
    let mut last = group().await;
    for _ in 0..200 {
        if last == "X25519" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        last = group().await;
    }
    assert_eq!(last, "X25519");
}

#[test]
fn alpn_is_agreed_on_or_refused() {
    let site = plan().start();
    for (offered, agreed) in [
        ("h2", Some("h2")),
        ("http/1.1", Some("http/1.1")),
        ("h2,http/1.1", Some("h2")),
        ("http/1.1,h2", Some("h2")),
        ("foo,http/1.1", Some("http/1.1")),
        ("foo", None),
        ("http/1.0", None),
    ] {
        let handshake = site.openssl(&["-servername", "a.test", "-alpn", offered]);
        match agreed {
            Some(agreed) => handshake.assert_says(&format!("ALPN protocol: {agreed}\n")),
            None => handshake.assert_says("alert no application protocol"),
        }
        assert_eq!(handshake.done, agreed.is_some(), "{offered}");
    }
    site.openssl(&["-servername", "a.test"]).assert_says("No ALPN negotiated");
    // TLS-ALPN-01 (RFC 8737) is not served: no certificate is shown to who validates by it.
    site.openssl(&["-servername", "a.test", "-alpn", "acme-tls/1"])
        .assert_says("alert no application protocol");
    assert_eq!(NO_APPLICATION_PROTOCOL, Answer::Alert(2, 120));
}

#[test]
fn sessions_are_resumed_by_any_worker_and_only_for_their_name() {
    let site = plan()
        .setting("ssl-session-timeout: 1h")
        .file("b.yaml", bound("b", "b.test"))
        .secret("b", &pair(2, &["b.test"]))
        .start();
    for version in ["-tls1_2", "-tls1_3"] {
        let session = site.scratch(&format!("session{version}"));
        let session = session.to_str().unwrap();
        let first = get_over(&site, &["-servername", "a.test", version, "-sess_out", session]);
        assert!(first.contains("New, TLS"), "{first}");
        // The kernel spreads connections over the workers: with two, 16 times the same one is hardly chance.
        for _ in 0..16 {
            let again = get_over(&site, &["-servername", "a.test", version, "-sess_in", session]);
            assert!(again.contains("Reused, TLS"), "{version}: {again}");
        }
        let other = get_over(&site, &["-servername", "b.test", version, "-sess_in", session]);
        assert!(other.contains("New, TLS"), "{version}: {other}");
    }
    site.set("ssl-session-tickets", "false");
    let session = site.scratch("session-tls1_2");
    eventually("no more tickets", || {
        let again =
            get_over(&site, &["-servername", "a.test", "-tls1_2", "-sess_in", session.to_str().unwrap()]);
        again.contains("New, TLS")
    });
}

/// A request over `openssl s_client`, which sees the tickets of TLS 1.3 only when it reads on.
fn get_over(site: &Site, arguments: &[&str]) -> String {
    use std::process::{Command, Stdio};
    let mut process = Command::new("openssl")
        .args(["s_client", "-connect", &site.https.to_string(), "-ign_eof"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let request = b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";
    process.stdin.take().unwrap().write_all(request).unwrap();
    String::from_utf8_lossy(&process.wait_with_output().unwrap().stdout).into_owned()
}

#[test]
fn a_client_hello_in_pieces_gets_the_right_certificate() {
    let site = plan().file("b.yaml", bound("b", "b.test")).secret("b", &pair(2, &["b.test"])).start();
    let hello = Hello::new().name("b.test").message();
    // Segments of one byte.
    let bytes: Vec<_> = record(&hello).into_iter().map(|byte| vec![byte]).collect();
    assert_eq!(site.send_records(&bytes, Duration::from_micros(200)).serial(), Some(2));
    // Records of a few bytes: one segment for all, one for each, and cut anywhere.
    for size in [1, 7, 100] {
        let records: Vec<_> = hello.chunks(size).map(record).collect();
        assert_eq!(site.send_records(&[records.concat()], Duration::ZERO).serial(), Some(2), "{size}");
        assert_eq!(site.send_records(&records, Duration::from_micros(200)).serial(), Some(2), "{size}");
    }
    let records: Vec<_> = hello.chunks(50).map(record).collect();
    let cut: Vec<_> = records.concat().chunks(33).map(<[u8]>::to_vec).collect();
    assert_eq!(site.send_records(&cut, Duration::from_millis(2)).serial(), Some(2));
    // Large, as post-quantum key shares make it, and as large as it can be.
    for padding in [2_000, 15_000, 65_000] {
        let large = Hello::new().name("b.test").padding(padding).message();
        let records: Vec<_> = large.chunks(8_000).map(record).collect();
        assert_eq!(site.send_records(&records, Duration::ZERO).serial(), Some(2), "{padding}");
    }
}

#[test]
fn what_is_no_client_hello_ends_the_connection() {
    let site = plan().start();
    let refused = |answer: Answer| assert!(!matches!(answer, Answer::Certificate(_)), "{answer:?}");
    // A message that says it is 16 MiB long.
    let mut endless = vec![1, 0xff, 0xff, 0xff];
    endless.extend([0; 60_000]);
    let records: Vec<_> = endless.chunks(16_000).map(record).collect();
    refused(site.send_records(&records, Duration::ZERO));
    refused(site.send_records(&[b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n".to_vec()], Duration::ZERO));
    refused(site.send_records(&[record(&[2, 0, 0, 0])], Duration::ZERO));
    refused(site.send_records(&[vec![22, 3, 1, 0xff, 0xff, 0]], Duration::ZERO));
    refused(site.send_records(&[record(&[])], Duration::ZERO));
    assert_eq!(site.served("a.test"), Some(1), "it goes on");
}

#[test]
fn a_handshake_has_a_deadline() {
    let site = plan().setting("tls-handshake-timeout: 500ms").start();
    let hello = record(&Hello::new().name("a.test").message());
    for sent in [0, 1, 5, hello.len() - 1, hello.len()] {
        let mut tcp = TcpStream::connect(site.https).unwrap();
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        tcp.write_all(&hello[..sent]).unwrap();
        // Whatever the gateway has to say, it closes then: this read ends.
        let mut rest = Vec::new();
        let _ = tcp.read_to_end(&mut rest);
        assert_eq!(sent == hello.len(), !rest.is_empty(), "only a whole hello gets an answer");
    }
    // Dripping does not extend it.
    let mut tcp = TcpStream::connect(site.https).unwrap();
    let mut refused = false;
    for byte in &hello {
        refused |= tcp.write_all(&[*byte]).is_err();
        sleep(Duration::from_millis(20));
    }
    let mut rest = Vec::new();
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = tcp.read_to_end(&mut rest);
    assert!(refused || rest.is_empty(), "no certificate after the deadline");
    assert_eq!(site.served("a.test"), Some(1));
}

#[test]
fn the_suites_of_tls_1_2_choose_among_the_certificates_of_a_host() {
    let authority = Authority::new("test");
    let secret = |algorithm| authority.leaf(&["dual.test"]).algorithm(algorithm).issue();
    let site = Plan::new()
        .secret("rsa", &secret(Algorithm::Rsa))
        .secret("ecdsa", &secret(Algorithm::EcdsaP256))
        .file(
            "dual.yaml",
            ingress(
                "dual",
                "dual.test",
                &["{hosts: [dual.test], secretName: rsa}", "{hosts: [dual.test], secretName: ecdsa}"],
            ),
        )
        .start();
    let signs = |arguments: &[&str], with: &str| {
        let handshake = site.openssl(&[&["-servername", "dual.test"], arguments].concat());
        assert!(handshake.done, "{arguments:?}: {}", handshake.text);
        handshake.assert_says(&format!("Peer signature type: {with}\n"));
    };
    // Clients list signature schemes of both kinds, whatever their suites.
    let rsa = ["-cipher", "ECDHE-RSA-AES128-GCM-SHA256"];
    let ecdsa = ["-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"];
    signs(&["-tls1_2", rsa[0], rsa[1]], "RSA-PSS");
    signs(&["-tls1_2", ecdsa[0], ecdsa[1]], "ECDSA");
    signs(&["-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES128-GCM-SHA256"], "ECDSA");
    signs(&rsa, "ECDSA");
    site.set("ssl-protocols", "TLSv1.2");
    eventually("TLS 1.2 alone", || !site.openssl(&["-servername", "dual.test", "-tls1_3"]).done);
    signs(&rsa, "RSA-PSS");
}

#[test]
fn every_kind_of_key_shakes_hands() {
    let kinds = [
        ("rsa", Algorithm::Rsa),
        ("p256", Algorithm::EcdsaP256),
        ("p384", Algorithm::EcdsaP384),
        ("p521", Algorithm::EcdsaP521),
        ("ed25519", Algorithm::Ed25519),
    ];
    let authority = Authority::new("test");
    let mut plan = Plan::new();
    for (name, algorithm) in kinds {
        let host = format!("{name}.test");
        plan = plan.secret(name, &authority.leaf(&[&host]).algorithm(algorithm).issue());
        plan = plan.file(&format!("{name}-ingress.yaml"), bound(name, &host));
    }
    let site = plan.start();
    let root = site.scratch("ca.crt");
    std::fs::write(&root, authority.pem()).unwrap();
    for (name, _) in kinds {
        let host = format!("{name}.test");
        for version in ["-tls1_2", "-tls1_3"] {
            let trusted =
                ["-CAfile", root.to_str().unwrap(), "-verify_return_error", "-verify_hostname", &host];
            let arguments = [&["-servername", &host, version][..], &trusted].concat();
            let handshake = site.openssl(&arguments);
            assert!(handshake.done, "{name} {version}: {}", handshake.text);
            handshake.assert_says("Verify return code: 0 (ok)");
        }
    }
}
