//! What a workload is told about the client: `x-forwarded-client-cert` in its modes.

use std::process::Command;

use portcullis::testing::backend::Backend;
use portcullis::testing::certificates::Authority;
use portcullis::testing::message::Request;

use super::setup::{Ca, GATEWAY, Mesh, WEB, bundle};
use crate::gateway::Setup;
use crate::manifests::secret;

const NAME: &str = "x-forwarded-client-cert";

fn values(request: &Request) -> Vec<&str> {
    request.fields.all(NAME).collect()
}

#[test]
fn the_workload_is_told_who_was_verified_and_nothing_else() {
    let backend = Backend::echo();
    let mesh = Mesh::before(backend.address(), &[]);
    let web = mesh.ca.issue(WEB);
    let request = "GET / HTTP/1.1\r\nHost: a.example\r\nX-Forwarded-Client-Cert: By=a;Hash=b\r\n\
                   x-forwarded-client-cert: By=c\r\nx_forwarded_client_cert: By=d\r\n\r\n";
    mesh.plain().ask(request);
    mesh.anonymous().ask(request);
    mesh.as_(&web).ask(request);
    let requests = backend.requests();
    let [plain, anonymous, mutual] = &requests[..] else { panic!("{requests:#?}") };
    assert!(values(plain).is_empty() && values(anonymous).is_empty());
    let [element] = values(mutual)[..] else { panic!("{mutual:#?}") };
    assert!(element.starts_with(&format!("By={GATEWAY};Hash=")), "{element}");
    assert!(element.contains(&format!("URI={WEB}")), "{element}");
    let underscores = mutual.fields.0.iter().any(|(name, _)| name.contains('_'));
    assert!(!underscores, "{mutual:#?}");
}

#[test]
fn what_came_is_appended_to_where_the_peer_is_trusted() {
    let backend = Backend::echo();
    let settings = ["forward-client-cert: append-forward", "forward-client-cert-cidr: 127.0.0.0/8"];
    let mesh = Mesh::before(backend.address(), &settings);
    let web = mesh.ca.issue(WEB);
    // Two lines are one list.
    let request = "GET / HTTP/1.1\r\nHost: a.example\r\nx-forwarded-client-cert: By=a;Hash=b\r\n\
                   X-Forwarded-Client-Cert: By=c;Hash=d\r\n\r\n";
    mesh.as_(&web).ask(request);
    mesh.anonymous().ask(request);
    let requests = backend.requests();
    let [mutual, anonymous] = &requests[..] else { panic!("{requests:#?}") };
    let [value] = values(mutual)[..] else { panic!("{mutual:#?}") };
    assert!(value.starts_with(&format!("By=a;Hash=b,By=c;Hash=d,By={GATEWAY};Hash=")), "{value}");
    assert!(values(anonymous).is_empty());
}

#[test]
fn sanitizing_tells_nothing_about_anybody() {
    let backend = Backend::echo();
    let mesh = Mesh::before(backend.address(), &["forward-client-cert: sanitize"]);
    let web = mesh.ca.issue(WEB);
    mesh.as_(&web).ask("GET / HTTP/1.1\r\nHost: a.example\r\nx-forwarded-client-cert: By=a\r\n\r\n");
    assert!(values(&backend.only_request()).is_empty());
}

#[test]
fn passing_on_from_anybody_is_refused_with_the_settings() {
    let folder = tempfile::tempdir().unwrap();
    let settings = folder.path().join("settings.yaml");
    std::fs::write(&settings, "forward-client-cert: always-forward-only\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
    let output = command.arg("serve").arg("--settings").arg(&settings).arg("--manifests").arg(folder.path());
    let output = output.output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("forward-client-cert-cidr"), "{said}");

    let backend = Backend::echo();
    let settings = ["forward-client-cert: always-forward-only", "forward-client-cert-cidr: 127.0.0.0/8"];
    let mesh = Mesh::before(backend.address(), &settings);
    mesh.plain().ask("GET / HTTP/1.1\r\nHost: a.example\r\nx-forwarded-client-cert: By=a;Hash=b\r\n\r\n");
    assert_eq!(values(&backend.only_request()), ["By=a;Hash=b"]);
}

#[test]
fn a_subject_with_separators_stays_within_its_quotes() {
    let authority = Authority::new("mesh");
    let client = authority.workload(WEB).common_name(r#"Web, "Shop"; A=B \"#).issue();
    let setup = Setup::new().manifest(bundle(&authority.pem(), ""));
    let backend = Backend::echo();
    let mesh = Mesh::start(setup, Ca::new(), backend.address(), &[]);
    mesh.as_(&client).get("a.example", "/");
    let request = backend.only_request();
    let [element] = values(&request)[..] else { panic!("{request:#?}") };
    assert!(
        element.starts_with("Hash="),
        "without a certificate of its own the gateway has no name: {element}"
    );
    assert!(element.contains(r#";Subject="CN=Web, \"Shop\"; A=B \\";URI=spiffe://"#), "{element}");
}

#[test]
fn a_value_that_is_too_long_is_refused_and_not_cut() {
    let backend = Backend::echo();
    let settings = [
        "forward-client-cert: append-forward",
        "forward-client-cert-cidr: 127.0.0.0/8",
        "client-max-header-bytes: 16k",
    ];
    let mesh = Mesh::before(backend.address(), &settings);
    let web = mesh.ca.issue(WEB);
    let chain = "A".repeat(60 * 1024);
    let request = format!("GET / HTTP/1.1\r\nHost: a.example\r\n{NAME}: Chain=\"{chain}\"\r\n\r\n");
    assert_eq!(mesh.as_(&web).ask(request).status, 431);
    assert!(backend.requests().is_empty());
}

#[test]
fn trailers_carry_no_element() {
    let backend = Backend::echo();
    let mesh = Mesh::before(backend.address(), &[]);
    let web = mesh.ca.issue(WEB);
    let request = "POST / HTTP/1.1\r\nHost: a.example\r\nTE: trailers\r\nConnection: TE\r\n\
                   Transfer-Encoding: chunked\r\n\r\n0\r\nX-Forwarded-Client-Cert: By=a\r\n\
                   x_forwarded_client_cert: By=b\r\nX-Sum: 1\r\n\r\n";
    mesh.as_(&web).ask(request);
    let trailers = backend.only_request().trailers;
    assert_eq!(trailers.0, [("x-sum".to_owned(), "1".to_owned())]);
}

#[test]
fn a_certificate_without_an_identity_is_no_name_of_the_gateway() {
    let ca = Ca::new();
    let plain = Authority::new("public").leaf(&["gateway.test"]).issue();
    let setup = Setup::new()
        .manifest(bundle(&ca.root(), ""))
        .manifest(secret("mesh", &plain))
        .setting("hbone-certificate: default/mesh");
    let backend = Backend::echo();
    let mesh = Mesh::start(setup, ca, backend.address(), &[]);
    let web = mesh.ca.issue(WEB);
    mesh.as_(&web).get("a.example", "/");
    assert!(values(&backend.only_request())[0].starts_with("Hash="));
    assert!(mesh.gateway.admin("/api/v1/diagnostics").contains("NoIdentity"));
}
