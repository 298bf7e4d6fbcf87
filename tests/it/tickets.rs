//! Session tickets: replicas that share keys through a Secret, with OpenSSL as the client.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use portcullis::testing::backend::Backend;
use portcullis::testing::certificates::Authority;
use portcullis::testing::eventually;
use portcullis::testing::openssl::{Handshake, connect};
use serde_json::Value;

use crate::gateway::{Gateway, Setup};
use crate::manifests::Ingress;

const HOST: &str = "a.example";
/// The file that [`start`] puts the keys in.
const KEYS: &str = "4.yaml";
const VERSIONS: [&str; 2] = ["tls1_2", "tls1_3"];

/// A key file of these bytes, in base64.
fn key(seed: u8) -> String {
    STANDARD.encode((0..80).map(|at: u8| at.wrapping_mul(29) ^ seed).collect::<Vec<_>>())
}

fn keys(named: &[(&str, String)]) -> String {
    let data: String = named.iter().map(|(name, key)| format!("  {name}: {key}\n")).collect();
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: tickets, namespace: edge}}\n\
         type: portcullis.dev/session-ticket-keys\ndata:\n{data}"
    )
}

fn start(backend: SocketAddr, keys: Option<&str>) -> Gateway {
    let ingress = Ingress::new("a", HOST).path("Prefix", "/", "web").tls("a-tls");
    let pair = Authority::new("test").leaf(&[HOST]).issue();
    let setup = Setup::new().service("web", &[backend]).ingress(&ingress).secret("a-tls", &pair);
    let setup = match keys {
        Some(keys) => setup.setting("ssl-session-ticket-secret: edge/tickets").manifest(keys),
        None => setup,
    };
    setup.start()
}

/// Gets a session with `version` at one gateway and takes it to another.
fn resumes(from: &Gateway, to: &Gateway, version: &str, folder: &Path) -> Handshake {
    let (first, second) = (folder.join("first"), folder.join("second"));
    assert_eq!(connect(from.https, HOST, version, None, &first).unwrap(), Handshake::Full);
    connect(to.https, HOST, version, Some(&first), &second).unwrap()
}

/// The reasons of findings about the Secret.
fn reasons(gateway: &Gateway) -> Vec<String> {
    let answer: Value = serde_json::from_str(&gateway.admin("/api/v1/diagnostics")).unwrap();
    let found = answer["diagnostics"].as_array().unwrap().iter();
    let found = found.filter(|it| it["object"]["name"] == "tickets");
    found.map(|it| it["reason"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn sessions_are_resumed_at_another_replica_with_the_same_keys() {
    let backend = Backend::echo();
    let address = backend.address();
    let folder = tempfile::tempdir().unwrap();
    let secret = keys(&[("2026-01", key(1))]);
    let (one, two) = (start(address, Some(&secret)), start(address, Some(&secret)));
    let alone = start(address, None);
    for version in VERSIONS {
        assert_eq!(resumes(&one, &two, version, folder.path()), Handshake::Resumed, "{version}");
        assert_eq!(resumes(&two, &one, version, folder.path()), Handshake::Resumed, "{version}");
        assert_eq!(resumes(&one, &alone, version, folder.path()), Handshake::Full, "{version}");
        assert_eq!(resumes(&alone, &alone, version, folder.path()), Handshake::Resumed, "{version}");
    }
}

#[test]
fn keys_are_rotated_live_with_overlap() {
    let backend = Backend::echo();
    let address = backend.address();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let gateway = start(address, Some(&keys(&[("2026-01", key(1))])));
    let other = start(address, Some(&keys(&[("2026-02", key(2))])));
    for version in VERSIONS {
        gateway.write(KEYS, &keys(&[("2026-01", key(1))]));
        let (old, new, scratch) = (file("old"), file("new"), file("scratch"));
        let resumed = |from: &Path, at: &Gateway| {
            connect(at.https, HOST, version, Some(from), &scratch).unwrap() == Handshake::Resumed
        };
        eventually("the first key alone", || !resumes_new(&gateway, &other, version, folder.path()));
        connect(gateway.https, HOST, version, None, &old).unwrap();

        // The second key encrypts, the first still decrypts.
        gateway.write(KEYS, &keys(&[("2026-01", key(1)), ("2026-02", key(2))]));
        eventually("the second key", || resumes_new(&gateway, &other, version, folder.path()));
        connect(gateway.https, HOST, version, None, &new).unwrap();
        assert!(resumed(&old, &gateway) && resumed(&new, &gateway), "{version}");

        gateway.write(KEYS, &keys(&[("2026-02", key(2)), ("2026-03", key(3))]));
        eventually("the end of the first key", || !resumed(&old, &gateway));
        assert!(resumed(&new, &gateway), "{version}");
    }
}

/// Whether what `from` gives out now is good at `to`.
fn resumes_new(from: &Gateway, to: &Gateway, version: &str, folder: &Path) -> bool {
    resumes(from, to, version, folder) == Handshake::Resumed
}

#[test]
fn a_secret_that_is_broken_is_reported_and_leaves_the_last_good_keys() {
    let backend = Backend::echo();
    let address = backend.address();
    let folder = tempfile::tempdir().unwrap();
    let good = keys(&[("2026-01", key(1))]);
    let (gateway, other) = (start(address, Some(&good)), start(address, Some(&good)));
    let resumed = || resumes_new(&gateway, &other, "tls1_3", folder.path());
    assert!(resumed() && reasons(&gateway).is_empty());

    let expect = |reason: &str| {
        eventually(reason, || reasons(&gateway).iter().any(|found| found == reason));
        assert!(resumed(), "after {reason}");
    };
    gateway.write(KEYS, &keys(&[("2026-02", STANDARD.encode([2; 32]))]));
    expect("InvalidTicketKey");
    expect("NoTicketKeys");
    gateway.write(KEYS, &good.replace("portcullis.dev/session-ticket-keys", "Opaque"));
    expect("WrongSecretType");
    gateway.write(KEYS, "---\n");
    expect("SecretNotFound");
    gateway.write(KEYS, &good);
    eventually("no findings", || reasons(&gateway).is_empty());

    let log = gateway.log() + &gateway.admin("/api/v1/diagnostics") + &gateway.admin("/api/v1/status");
    for secret in [key(1), STANDARD.encode([2; 32])] {
        assert!(!log.contains(&secret[..16]), "a key was printed");
    }
}

#[test]
fn the_command_makes_and_rotates_the_secret_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tickets.json");
    let run = |secret: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
        command.args(["tickets", "rotate", "--secret", secret, "--keep", "2", "--file"]).arg(&file);
        command.output().unwrap()
    };
    let output = run("edge/tickets");
    assert!(output.status.success(), "{output:?}");
    let manifest: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(manifest["type"], "portcullis.dev/session-ticket-keys");
    let (name, value) = manifest["data"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(STANDARD.decode(value.as_str().unwrap()).unwrap().len(), 80);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains(name.as_str()) && !said.contains(value.as_str().unwrap()), "{said}");

    let refused = run("edge/other");
    assert!(!refused.status.success() && refused.stdout.is_empty(), "it is another Secret: {refused:?}");
    let check = Command::new(env!("CARGO_BIN_EXE_portcullis")).arg("check").arg(&file).output().unwrap();
    assert!(check.status.success(), "{check:?}");
}
