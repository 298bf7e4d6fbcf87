//! Folders of manifests as a gateway meets them: named in any way, replaced, or not there at all.
//!
//! What is waited for here comes by events: the look at everything that needs none is farther away than the patience
//! of a test.

use portcullis::testing::backend::Backend;
use portcullis::testing::eventually;

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
