//! Certificates with content that is meant to do harm.

use std::process::Command;

use portcullis::testing::backend::Backend;
use portcullis::testing::certificates::{Authority, PemPair};

use super::setup::{A, Edge, client};

#[test]
fn what_is_in_a_certificate_stays_within_its_header_field() {
    let root = Authority::new("root");
    let backend = Backend::echo();
    let asks = [("secret", "ca"), ("pass-certificate-to-upstream", "true")];
    let edge = Edge::before(&backend).authorities(&root.pem()).host(A, &asks).start();
    for (name, told) in [
        (
            "a\r\nssl-client-verify: SUCCESS\r\n\r\nGET /",
            r"CN=a\0D\0Assl-client-verify: SUCCESS\0D\0A\0D\0AGET /",
        ),
        ("a\0b", r"CN=a\00b"),
        ("web,O=admin", r"CN=web\,O\=admin"),
        ("ä\u{202e}", r"CN=\C3\A4\E2\80\AE"),
    ] {
        let told = told.replace(r"\=", "=");
        assert_eq!(edge.show(A, &client(&root, name)).get(A, "/").status, 200, "{name:?}");
        let seen = backend.requests().pop().unwrap();
        assert_eq!(seen.fields.all("ssl-client-subject-dn").collect::<Vec<_>>(), [&told], "{name:?}");
        assert_eq!(seen.fields.all("ssl-client-verify").collect::<Vec<_>>(), ["SUCCESS"], "{name:?}");
        assert_eq!(seen.target, "/");
    }
}

#[test]
fn large_certificates_harm_nobody() {
    let root = Authority::new("root");
    let backend = Backend::echo();
    let asks = [("secret", "ca"), ("verify-client", "optional_no_ca")];
    let edge = Edge::before(&backend).authorities(&root.pem()).host(A, &asks).start();
    // A name that no header has room for.
    let long = client(&root, &"x".repeat(20_000));
    assert_eq!(edge.show(A, &long).get(A, "/").status, 400);
    let names: Vec<String> = (0..1000).map(|number| format!("{number}.names.example")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let many = root.leaf(&names).common_name("many").for_clients().issue();
    assert_eq!(edge.show(A, &many).get(A, "/").status, 200);
    // A chain of a hundred that leads nowhere.
    let stray = Authority::new("stray");
    let leaf = client(&stray.intermediate("first"), "stray");
    let chain_pem: String =
        (0..100).map(|number| stray.intermediate(&number.to_string()).chain_pem().to_owned()).collect();
    let hundred = PemPair { chain_pem, ..leaf };
    assert_eq!(edge.show(A, &hundred).get(A, "/").status, 200, "its authority is unknown, as is said");
    let told = backend.requests().pop().unwrap();
    assert_eq!(told.field("ssl-client-verify"), Some("FAILED:unable to get local issuer certificate"));
    // More than a handshake may hold ends the handshake, and nothing else.
    let names: Vec<String> = (0..6000).map(|number| format!("{number}.names.example")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let huge = root.leaf(&names).for_clients().issue();
    let tcp = std::net::TcpStream::connect(edge.gateway.https).unwrap();
    let huge = portcullis::testing::wire::Wire::mutual(tcp, A, &huge.certificates_pem(), &huge.key_pem);
    if let Ok(wire) = huge {
        let mut client = portcullis::testing::client::Client { wire };
        client.send(format!("GET / HTTP/1.1\r\nHost: {A}\r\n\r\n"));
        assert!(client.next_response().is_none());
    }
    assert_eq!(edge.show(A, &client(&root, "web")).get(A, "/").status, 200);
}

/// As the guides of ingress-nginx have people make them, which with OpenSSL before 3.2 gives version 1.
#[test]
fn certificates_that_openssl_makes_of_a_request_are_good() {
    let folder = tempfile::tempdir().unwrap();
    let openssl = |arguments: &str| {
        let output =
            Command::new("openssl").args(arguments.split(' ')).current_dir(&folder).output().unwrap();
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    };
    openssl(
        "req -x509 -sha256 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 30 -subj /CN=Authority",
    );
    openssl("req -new -newkey rsa:2048 -nodes -keyout client.key -out client.csr -subj /CN=Client");
    openssl(
        "x509 -req -sha256 -days 30 -in client.csr -CA ca.crt -CAkey ca.key -set_serial 02 -out client.crt",
    );
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let backend = Backend::echo();
    let asks = [("secret", "ca"), ("match-cn", "^CN=Client$")];
    let edge = Edge::before(&backend).authorities(&read("ca.crt")).host(A, &asks).start();
    let pair =
        PemPair { leaf_pem: read("client.crt"), chain_pem: String::new(), key_pem: read("client.key") };
    for version in ["1.2", "1.3"] {
        for http in ["--http1.1", "--http2"] {
            assert_eq!(edge.curl(A, version, http, Some(&pair)), 200, "{version} {http}");
        }
    }
}
