//! The API server away, hung, or with the data of yesterday: traffic goes on, and everything is right again
//! afterwards. Each test breaks a control plane of its own.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::backend::Backend;
use super::certificates::Authority;
use super::control_plane::ControlPlane;
use super::gateway::Gateway;
use super::proxy::Proxy;
use super::secrets::{create_secret, ingress};
use super::{eventually, within};

/// What the gateway says about one of its watches: whether changes arrive.
fn is_up(gateway: &Gateway, kind: &str) -> bool {
    let status = gateway.admin_json("/api/v1/status");
    let sources = status["sources"].as_array().unwrap();
    let source = sources.iter().find(|source| source["name"] == kind).unwrap();
    assert_eq!(source["synced"], true, "{source}");
    source["last_error"].is_null()
}

fn wait_until_up(gateway: &Gateway, up: bool) {
    eventually("the gateway is wrong about its watches", || {
        match ["secrets", "ingresses", "services"].iter().all(|kind| is_up(gateway, kind) == up) {
            true => Ok(()),
            false => Err(format!("they are not all {}", if up { "up" } else { "down" })),
        }
    });
}

#[test]
fn without_an_api_server_traffic_goes_on_and_afterwards_changes_arrive() {
    let Some(mut plane) = ControlPlane::start() else { return };
    let authority = Authority::new();
    let (first, second) = (authority.issue("first.example.com"), authority.issue("second.example.com"));
    plane.namespace("outage");
    plane.apply(&Backend::start("outage").manifest("outage", "web"));
    create_secret(&plane, "outage", "first", &first);
    plane.apply(&ingress("outage", "first", "first.example.com", "first"));
    let gateway = Gateway::start(&plane.kubeconfig(), &[]);
    gateway.expect_https(&authority, "first.example.com", &first.certificate);
    wait_until_up(&gateway, true);

    plane.kill_api_server();
    wait_until_up(&gateway, false);
    gateway.expect_https(&authority, "first.example.com", &first.certificate);
    assert_eq!(gateway.admin("/readyz").unwrap().status, 200, "it serves, so it is ready");
    let metrics = gateway.admin("/metrics").unwrap().body;
    assert!(metrics.contains("portcullis_watch_up{source=\"secrets\"} 0"), "{metrics}");

    plane.start_api_server();
    create_secret(&plane, "outage", "second", &second);
    plane.apply(&ingress("outage", "second", "second.example.com", "second"));
    plane.kubectl(&["-n", "outage", "delete", "ingress", "first"]);
    gateway.expect_https(&authority, "second.example.com", &second.certificate);
    gateway.expect_http("first.example.com", 404);
    wait_until_up(&gateway, true);
    let diagnostics = gateway.admin_json("/api/v1/diagnostics").to_string();
    assert!(!diagnostics.contains("NotWatched"), "{diagnostics}");
}

#[test]
fn data_from_a_backup_is_noticed() {
    let Some(mut plane) = ControlPlane::start() else { return };
    plane.namespace("backup");
    let authority = Authority::new();
    let (kept, lost) = (authority.issue("kept.example.com"), authority.issue("lost.example.com"));
    plane.apply(&Backend::start("backup").manifest("backup", "web"));
    create_secret(&plane, "backup", "kept", &kept);
    plane.apply(&ingress("backup", "kept", "kept.example.com", "kept"));
    let gateway = Gateway::start(&plane.kubeconfig(), &[]);
    gateway.expect_https(&authority, "kept.example.com", &kept.certificate);

    plane.kill_api_server();
    plane.kill_etcd();
    let (data, backup) = (plane.path().join("etcd"), plane.path().join("backup"));
    copy(&data, &backup);
    plane.start_etcd();
    plane.start_api_server();
    create_secret(&plane, "backup", "lost", &lost);
    plane.apply(&ingress("backup", "lost", "lost.example.com", "lost"));
    gateway.expect_https(&authority, "lost.example.com", &lost.certificate);

    plane.kill_api_server();
    plane.kill_etcd();
    fs::remove_dir_all(&data).unwrap();
    copy(&backup, &data);
    plane.start_etcd();
    plane.start_api_server();
    gateway.expect_http("lost.example.com", 404);
    gateway.expect_https(&authority, "kept.example.com", &kept.certificate);
}

#[test]
fn a_frozen_api_server_holds_nothing_up() {
    let Some(plane) = ControlPlane::start() else { return };
    plane.namespace("frozen");
    let authority = Authority::new();
    let (before, after) = (authority.issue("before.example.com"), authority.issue("after.example.com"));
    plane.apply(&Backend::start("frozen").manifest("frozen", "web"));
    create_secret(&plane, "frozen", "before", &before);
    plane.apply(&ingress("frozen", "before", "before.example.com", "before"));
    let gateway = Gateway::start(&plane.kubeconfig(), &[]);
    gateway.expect_https(&authority, "before.example.com", &before.certificate);

    plane.freeze_api_server(true);
    gateway.expect_https(&authority, "before.example.com", &before.certificate);
    plane.freeze_api_server(false);
    create_secret(&plane, "frozen", "after", &after);
    plane.apply(&ingress("frozen", "after", "after.example.com", "after"));
    gateway.expect_https(&authority, "after.example.com", &after.certificate);
}

#[test]
fn a_gateway_that_starts_before_its_api_server_waits_for_it() {
    let Some(mut plane) = ControlPlane::start() else { return };
    plane.namespace("early");
    let authority = Authority::new();
    let pair = authority.issue("early.example.com");
    plane.apply(&Backend::start("early").manifest("early", "web"));
    create_secret(&plane, "early", "tls", &pair);
    plane.apply(&ingress("early", "web", "early.example.com", "tls"));
    plane.kill_api_server();

    let gateway = Gateway::start_only(&plane.kubeconfig(), &[]);
    eventually("it does not say what it waits for", || match gateway.admin("/readyz")? {
        answer if answer.status == 503 && answer.body.contains("secrets (") => Ok(()),
        answer => Err(format!("{answer:?}")),
    });
    plane.start_api_server();
    gateway.wait_until_ready();
    gateway.expect_https(&authority, "early.example.com", &pair.certificate);
}

#[test]
fn connections_that_hang_are_given_up() {
    let Some(plane) = ControlPlane::shared() else { return };
    plane.namespace("hung");
    let authority = Authority::new();
    let (before, after) =
        (authority.issue("before-hang.example.com"), authority.issue("after-hang.example.com"));
    plane.apply(&Backend::start("hung").manifest("hung", "web"));
    create_secret(plane, "hung", "before", &before);
    plane.apply(&ingress("hung", "before", "before-hang.example.com", "before"));
    let proxy = Proxy::start(&plane.kubeconfig());
    let gateway = Gateway::start(&proxy.kubeconfig(&plane.kubeconfig()), &["--watch-namespace=hung"]);
    gateway.expect_https(&authority, "before-hang.example.com", &before.certificate);

    proxy.hang();
    create_secret(plane, "hung", "after", &after);
    plane.apply(&ingress("hung", "after", "after-hang.example.com", "after"));
    gateway.expect_https(&authority, "before-hang.example.com", &before.certificate);
    // A watch runs for a minute and a half at most, and a little more before it counts as hung.
    within(Duration::from_secs(240), "after-hang.example.com over HTTPS", || {
        match gateway.https(&authority, "after-hang.example.com")? {
            answer if answer.certificate.as_ref() == Some(&after.certificate) => Ok(()),
            answer => Err(format!("{answer:?}")),
        }
    });
}

#[test]
fn a_gateway_that_was_too_slow_for_its_watch_catches_up() {
    let Some(plane) = ControlPlane::shared() else { return };
    plane.namespace("slow");
    plane.apply(&Backend::start("slow").manifest("slow", "web"));
    let route = |path: &str| {
        format!(
            "apiVersion: networking.k8s.io/v1\nkind: Ingress\n\
             metadata: {{ namespace: slow, name: web, annotations: {{ example.com/bulk: \"{}\" }} }}\n\
             spec:\n  ingressClassName: portcullis\n  rules:\n  - host: {path}.slow.example.com\n    http: \
             {{ paths: [{{ path: /, pathType: Prefix, backend: {{ service: {{ name: web, port: {{ name: http }} }} }} }}] }}\n",
            "x".repeat(200_000),
        )
    };
    plane.kubectl_with(&["create", "-f", "-"], &route("first"));
    let gateway = Gateway::start(&plane.kubeconfig(), &["--watch-namespace=slow"]);
    gateway.expect_http("first.slow.example.com", 200);

    let workers = gateway.workers();
    gateway.freeze(&workers, true);
    // Far more than what fits into any buffer on the way.
    let burst: Vec<_> = (0..100).map(|turn| route(&format!("turn{turn}"))).collect();
    plane.kubectl_with(&["replace", "-f", "-"], &burst.join("---\n"));
    gateway.freeze(&workers, false);
    gateway.expect_http("turn99.slow.example.com", 200);
    gateway.expect_http("first.slow.example.com", 404);
    gateway.expect_http("turn98.slow.example.com", 404);
}

fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(status.success());
}
