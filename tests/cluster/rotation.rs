//! The gateway's own credentials change: the key that signs tokens, the token, and the CA of the API server.

use std::fs;
use std::process::Command;
use std::time::Duration;

use super::backend::Backend;
use super::certificates::Authority;
use super::control_plane::ControlPlane;
use super::gateway::Gateway;
use super::rights::RBAC;
use super::secrets::{create_secret, ingress};
use super::within;

#[test]
fn another_token_and_another_ca_are_taken_from_their_files() {
    let Some(mut plane) = ControlPlane::start() else { return };
    let authority = Authority::new();
    let (before, after) = (authority.issue("before.example.com"), authority.issue("after.example.com"));
    plane.namespace("portcullis");
    plane.apply(RBAC);
    plane.namespace("rotated");
    plane.apply(&Backend::start("rotated").manifest("rotated", "web"));
    create_secret(&plane, "rotated", "before", &before);
    plane.apply(&ingress("rotated", "before", "before.example.com", "before"));

    let file = |name: &str| plane.path().join(name);
    let (token, ca) = (file("gateway.token"), file("gateway-ca.crt"));
    let write_token = |plane: &ControlPlane| {
        let fresh = plane.kubectl(&["-n", "portcullis", "create", "token", "portcullis"]);
        fs::write(&token, fresh.trim()).unwrap();
    };
    write_token(&plane);
    fs::copy(file("ca.crt"), &ca).unwrap();
    let admin = fs::read_to_string(plane.kubeconfig()).unwrap();
    let (head, _) = admin.split_once("users:").unwrap();
    let head = head.replace(file("ca.crt").to_str().unwrap(), ca.to_str().unwrap());
    let user = format!(
        "users: [{{ name: gateway, user: {{ tokenFile: {} }} }}]\n\
         contexts: [{{ name: test, context: {{ cluster: test, user: gateway, namespace: portcullis }} }}]\n\
         current-context: test\n",
        token.display(),
    );
    let config = file("rotated.kubeconfig");
    fs::write(&config, head + &user).unwrap();
    let gateway = Gateway::start(&config, &[]);
    gateway.expect_https(&authority, "before.example.com", &before.certificate);

    plane.kill_api_server();
    let script = "set -e; openssl ecparam -name prime256v1 -genkey -noout -out sa.key; \
                  openssl ec -in sa.key -pubout -out sa.pub";
    let status = Command::new("sh").args(["-c", script]).current_dir(plane.path()).status().unwrap();
    assert!(status.success());
    let other = Authority::new();
    let server = other.issue_for(&["127.0.0.1", "localhost"]);
    fs::write(plane.path().join("apiserver.crt"), &server.certificate_pem).unwrap();
    fs::write(plane.path().join("apiserver.key"), &server.key_pem).unwrap();
    // Whoever administrates trusts both; the gateway gets the new one alone.
    let old = fs::read_to_string(plane.path().join("ca.crt")).unwrap();
    fs::write(plane.path().join("ca.crt"), old + &other.pem()).unwrap();
    fs::write(&ca, other.pem()).unwrap();
    plane.start_api_server();
    create_secret(&plane, "rotated", "after", &after);
    plane.apply(&ingress("rotated", "after", "after.example.com", "after"));
    gateway.expect_https(&authority, "before.example.com", &before.certificate);
    assert!(gateway.https(&authority, "after.example.com").is_err(), "the old token is worth nothing");

    write_token(&plane);
    // Files are read again every minute.
    within(Duration::from_secs(180), "after.example.com over HTTPS", || {
        match gateway.https(&authority, "after.example.com") {
            Ok(answer) if answer.status == 200 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
}
