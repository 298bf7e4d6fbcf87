//! Folders of manifests as a gateway meets them: named in any way, replaced, or not there at all.
//!
//! What is waited for here comes by events: the look at everything that needs none is farther away than the patience
//! of a test.

use std::fs;

use portcullis::testing::backend::Backend;
use portcullis::testing::eventually;
use serde_json::Value;

use crate::gateway::{Gateway, Setup};
use crate::manifests::Ingress;

fn setup(backend: &Backend) -> Setup {
    Setup::new().service("web", &[backend.address()])
}

/// An Ingress that sends all requests for `host` to the backend.
fn route(host: &str) -> String {
    Ingress::new("a", host).path("Prefix", "/", "web").yaml()
}

fn is_served(gateway: &Gateway, host: &str) -> bool {
    gateway.client().get(host, "/").status == 200
}

#[test]
fn a_folder_with_a_relative_path_is_watched() {
    let backend = Backend::echo();
    let gateway = setup(&backend).manifests_at("./manifests").start();
    gateway.write("a.yaml", &route("a.example"));
    eventually("the new route", || is_served(&gateway, "a.example"));
}

#[test]
fn a_folder_that_is_not_there_is_told_and_looked_for() {
    let backend = Backend::echo();
    let gateway = setup(&backend).manifest(route("a.example")).manifests_at("later").start();
    let last_error = || {
        let status: Value = serde_json::from_str(&gateway.admin("/api/v1/status")).unwrap();
        status["sources"][0]["last_error"].as_str().map(str::to_owned)
    };
    let warnings = || {
        let log = gateway.log();
        log.lines().filter(|line| line.contains("WARN") && line.contains("/later")).count()
    };
    assert_eq!(gateway.admin("/readyz").trim(), "ready");
    let error = last_error().unwrap();
    assert!(error.starts_with(gateway.path("later").to_str().unwrap()), "{error}");
    fs::rename(gateway.path("manifests"), gateway.path("later")).unwrap();
    eventually("the routes", || is_served(&gateway, "a.example"));
    eventually("the end of the error", || last_error().is_none());
    assert_eq!(warnings(), 1, "{}", gateway.log());
}

#[test]
fn what_a_folder_defined_is_served_while_it_is_replaced() {
    let backend = Backend::echo();
    let gateway = setup(&backend).manifest(route("a.example")).start();
    fs::rename(gateway.path("manifests"), gateway.path("old")).unwrap();
    eventually("the finding", || gateway.admin("/api/v1/diagnostics").contains("Unreadable"));
    assert!(is_served(&gateway, "a.example"));
    fs::rename(gateway.path("old"), gateway.path("manifests")).unwrap();
    gateway.write("b.yaml", &Ingress::new("b", "b.example").path("Prefix", "/", "web").yaml());
    eventually("the new route", || is_served(&gateway, "b.example"));
    assert!(is_served(&gateway, "a.example"));
    eventually("the end of the finding", || !gateway.admin("/api/v1/diagnostics").contains("Unreadable"));
}
