//! Settings in a ConfigMap: from the start, and as they change.

use serde_json::Value;

use super::control_plane::ControlPlane;
use super::eventually;
use super::gateway::Gateway;

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
