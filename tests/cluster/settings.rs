//! Settings in a ConfigMap: listeners among them, edits good and bad, and the Events that tell of them.

use std::net::TcpStream;

use portcullis::testing::ports;
use serde_json::Value;

use super::backend::Backend;
use super::certificates::Authority;
use super::control_plane::ControlPlane;
use super::eventually;
use super::gateway::Gateway;
use super::secrets::{create_secret, ingress};

fn configure(plane: &ControlPlane, data: &str) {
    plane.apply(&format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{ namespace: settings, name: gateway }}\ndata: {data}\n"
    ));
}

/// The notes of Events with this reason about the ConfigMap.
fn events(plane: &ControlPlane, reason: &str) -> Vec<String> {
    let path = format!(
        "jsonpath={{range .items[?(@.reason==\"{reason}\")]}}{{.involvedObject.kind}}/{{.involvedObject.name}}: {{.message}}{{\"\\n\"}}{{end}}"
    );
    let found = plane.kubectl(&["-n", "settings", "get", "events", "-o", &path]);
    found.lines().map(str::to_owned).collect()
}

#[test]
fn listeners_in_the_config_map_move_and_bad_edits_change_nothing() {
    let Some(plane) = ControlPlane::start() else { return };
    let authority = Authority::new();
    let pair = authority.issue("settings.example.com");
    let expect = |gateway: &Gateway| {
        gateway.expect_https(&authority, "settings.example.com", &pair.certificate);
    };
    plane.namespace("settings");
    plane.apply(&Backend::start("settings").manifest("settings", "web"));
    create_secret(&plane, "settings", "tls", &pair);
    plane.apply(&ingress("settings", "web", "settings.example.com", "tls"));
    let [http, first, second, admin] = ports::free();
    configure(&plane, &format!("{{ https-port: '{first}' }}"));

    let config = plane.kubeconfig();
    let mut gateway = Gateway::start_on(&config, [http, first, admin], &["--configmap=settings/gateway"]);
    gateway.wait_until_ready();
    expect(&gateway);
    assert_eq!(gateway.serving().1, 1, "the port was known from the start");
    gateway.until("it does not lead", |status| status["leader"] == true);

    configure(&plane, &format!("{{ https-port: '{second}' }}"));
    gateway.moved_to(second);
    expect(&gateway);
    assert_eq!(gateway.serving().1, 2, "one restart, and no more");
    assert!(TcpStream::connect(("127.0.0.1", first)).is_err(), "the old port is still open");
    eventually("no Event tells of the restart", || match events(&plane, "RestartPending") {
        found if found.is_empty() => Err("none".into()),
        found => Ok(found),
    });
    let metrics = gateway.admin("/metrics").unwrap().body;
    assert!(metrics.contains("portcullis_config_changes_total{class=\"restart\"} 1\n"), "{metrics}");
    assert!(metrics.contains("portcullis_restart_pending 0\n"), "{metrics}");

    gateway.until("the next one does not lead", |status| status["leader"] == true);
    configure(&plane, &format!("{{ https-port: '{second}', hsts: maybe }}"));
    let status = gateway.until("the edit is not refused", |status| status["settings"]["error"].is_string());
    let error = status["settings"]["error"].as_str().unwrap();
    assert!(error.contains("ConfigMap settings/gateway: hsts: \"maybe\" is not true or false"), "{error}");
    expect(&gateway);
    eventually("no Event tells of the refusal", || {
        // As people look for it; it finds Events by the uid of the object.
        let text = plane.kubectl(&["-n", "settings", "describe", "configmap", "gateway"]);
        if text.contains("SettingsRejected") && text.contains("RestartPending") { Ok(()) } else { Err(text) }
    });

    configure(&plane, &format!("{{ https-port: '{second}', hsts: 'false' }}"));
    gateway.until("the repair is not seen", |status| status["settings"]["error"].is_null());
    assert_eq!(gateway.serving().1, 2);
    let pending = events(&plane, "RestartPending");
    let expected = format!(
        "ConfigMap/gateway: https-port: the change from \"{first}\" to \"{second}\" waits for a new worker \
         generation: listeners are opened before workers start"
    );
    assert_eq!(pending, [expected]);
    assert_eq!(events(&plane, "SettingsRejected").len(), 1);
}

#[test]
fn a_crash_without_the_api_server_keeps_the_settings_of_the_config_map() {
    let Some(mut plane) = ControlPlane::start() else { return };
    plane.namespace("settings");
    configure(&plane, "{ hsts-max-age: '77', server-tokens: 'true' }");
    let state = tempfile::tempdir_in(plane.path()).unwrap();
    let state_dir = format!("--state-dir={}", state.path().display());
    let flags = ["--configmap=settings/gateway", &*state_dir];
    let mut gateway = Gateway::start(&plane.kubeconfig(), &flags);
    let hash = |gateway: &Gateway| {
        let metrics = gateway.admin("/metrics").unwrap().body;
        let name = "nginx_ingress_controller_config_hash";
        metrics.lines().find(|line| line.starts_with(name)).unwrap().to_owned()
    };
    let before = hash(&gateway);
    let kept = state.path().join("objects/configmaps.named/settings/gateway");
    eventually("it is not kept", || if kept.exists() { Ok(()) } else { Err("not yet".into()) });
    plane.kill_api_server();
    gateway.kill_worker();
    gateway.until("nothing serves", |status| {
        status["ready"] == true && status["generations"][0]["generation"] == 2
    });
    assert_eq!(hash(&gateway), before, "other settings after a crash");
    gateway.kill();
    // On the same ports: those are settings too.
    let gateway = Gateway::start_on(
        &plane.kubeconfig(),
        gateway.ports(),
        &[&[&*gateway.https_flag()], &flags[..]].concat(),
    );
    gateway.wait_until_ready();
    assert_eq!(hash(&gateway), before, "other settings after a start");
}

fn set(plane: &ControlPlane, namespace: &str, settings: &str) {
    plane.apply(&format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{ namespace: {namespace}, name: settings }}\n\
         data: {{ {settings} }}\n"
    ));
}

/// The number of the generation that serves, once no other is under way.
fn generation(gateway: &Gateway) -> Result<u64, String> {
    let status = gateway.admin_json("/api/v1/status");
    match status["generations"].as_array().map(Vec::as_slice) {
        Some([only])
            if only["state"] == "serving" && status["pending_restart"] == Value::Array(Vec::new()) =>
        {
            only["generation"].as_u64().ok_or(status.to_string())
        }
        _ => Err(status.to_string()),
    }
}

fn expect_generation(gateway: &Gateway, number: u64) {
    eventually("another generation", || match generation(gateway)? {
        serving if serving == number => Ok(()),
        serving => Err(serving.to_string()),
    });
}

#[test]
fn a_setting_that_needs_a_restart_counts_from_the_start_and_restarts_once_when_it_changes() {
    let Some(plane) = ControlPlane::shared() else { return };
    plane.namespace("settings");
    set(plane, "settings", "pem-namespace: one, log-level: debug");
    let flags = ["--watch-namespace=settings", "--configmap=settings/settings"];
    let gateway = Gateway::start(&plane.kubeconfig(), &flags);
    expect_generation(&gateway, 1);
    assert!(!gateway.log().contains("setting changed"), "it has started with them: {}", gateway.log());

    set(plane, "settings", "pem-namespace: two, log-level: debug");
    expect_generation(&gateway, 2);
    // Once more something changes, so that whoever would restart again has had the time to.
    set(plane, "settings", "pem-namespace: two, log-level: debug, hsts-max-age: '7'");
    eventually("the next change does not arrive", || match gateway.log().contains("hsts-max-age") {
        true => Ok(()),
        false => Err(gateway.log()),
    });
    expect_generation(&gateway, 2);
    plane.kubectl(&["-n", "settings", "delete", "configmap", "settings"]);
    expect_generation(&gateway, 3);
}

#[test]
fn a_config_map_that_is_refused_is_reported_and_the_flags_count() {
    let Some(plane) = ControlPlane::shared() else { return };
    plane.namespace("refused");
    set(plane, "refused", "http-snippet: evil, pem-namespace: one");
    let flags = ["--watch-namespace=refused", "--configmap=refused/settings"];
    let gateway = Gateway::start(&plane.kubeconfig(), &flags);
    let error = |gateway: &Gateway| gateway.admin_json("/api/v1/status")["settings"].to_string();
    eventually("it is not reported", || match error(&gateway) {
        error if error.contains("http-snippet") => Ok(()),
        error => Err(error),
    });
    set(plane, "refused", "log-level: debug");
    eventually("it is still reported", || match error(&gateway) {
        error if error.contains("http-snippet") => Err(error),
        _ => Ok(()),
    });
    expect_generation(&gateway, 1);
}
