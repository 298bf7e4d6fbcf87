//! Rows E9 to E12 and L16: backends as endpoints come and go, without a restart.

use std::collections::BTreeSet;

use portcullis::testing::client::Client;

use super::super::backend::{Backend, service_manifest};
use super::{Site, eventually, plain};

/// Waits until exactly these endpoints answer.
fn expect_answers(site: &Site, host: &str, names: &[&str]) {
    let names: BTreeSet<_> = names.iter().map(|name| (*name).to_owned()).collect();
    eventually("endpoints", || {
        let answers: BTreeSet<_> =
            (0..12).map(|_| site.gateway.http(host).map(|answer| answer.body)).collect::<Result<_, _>>()?;
        match answers == names {
            true => Ok(()),
            false => Err(format!("{answers:?} instead of {names:?}")),
        }
    });
}

#[test]
fn e09_another_endpoint_takes_its_share_without_a_restart() {
    let Some(site) = Site::start("e09", &[], &[]) else { return };
    site.plain("web", "e09.example.com", "");
    expect_answers(&site, "e09.example.com", &["e09"]);
    let worker = site.gateway.worker();
    site.plane.apply(&Backend::start("second").endpoints("e09", "web", 2));
    expect_answers(&site, "e09.example.com", &["e09", "second"]);
    assert_eq!(site.gateway.worker(), worker);
}

#[test]
fn e10_endpoints_that_go_are_not_asked_and_without_any_the_answer_is_503() {
    let Some(site) = Site::start("e10", &[], &[]) else { return };
    site.plain("web", "e10.example.com", "");
    site.plane.apply(&Backend::start("second").endpoints("e10", "web", 2));
    expect_answers(&site, "e10.example.com", &["e10", "second"]);
    site.kubectl(&["delete", "endpointslice", "web-1"]);
    expect_answers(&site, "e10.example.com", &["second"]);
    let none = r#"{"endpoints": []}"#;
    site.kubectl(&["patch", "endpointslice", "web-2", "--type=merge", "-p", none]);
    site.gateway.expect_http("e10.example.com", 503);
}

#[test]
fn e11_a_service_that_starts_empty_is_the_same_as_one_that_was_scaled_down() {
    let Some(site) = Site::start("e11", &[], &[]) else { return };
    site.plane.apply(&service_manifest("e11", "empty"));
    site.plane.apply(&plain("e11", "empty", "e11.example.com", "empty", ""));
    site.gateway.expect_http("e11.example.com", 503);
    let backends = [Backend::start("one"), Backend::start("two")];
    for (number, backend) in backends.iter().enumerate() {
        site.plane.apply(&backend.endpoints("e11", "empty", number));
    }
    expect_answers(&site, "e11.example.com", &["one", "two"]);
    site.kubectl(&["delete", "endpointslice", "empty-0", "empty-1"]);
    site.gateway.expect_http("e11.example.com", 503);
}

#[test]
fn e12_an_annotation_that_changes_counts_without_a_restart() {
    let Some(site) = Site::start("e12", &[], &[]) else { return };
    site.plain("web", "e12.example.com", "");
    site.gateway.expect_http("e12.example.com", 200);
    let worker = site.gateway.worker();
    let post = || {
        let request = "POST / HTTP/1.1\r\nhost: e12.example.com\r\ncontent-length: 5\r\n\r\n12345";
        Client::plain(site.gateway.http_address()).ask(request).status
    };
    assert_eq!(post(), 200);
    site.plain("web", "e12.example.com", "nginx.ingress.kubernetes.io/proxy-body-size: '4'");
    eventually("the annotation does not count", || match post() {
        413 => Ok(()),
        status => Err(status.to_string()),
    });
    assert_eq!(site.gateway.worker(), worker);
}

#[test]
fn l16_a_service_that_is_missing_or_has_no_endpoints_is_answered_with_503() {
    let Some(site) = Site::start("l16", &[], &[]) else { return };
    site.plane.apply(&plain("l16", "missing", "missing.l16.example.com", "nowhere", ""));
    site.plane.apply(&service_manifest("l16", "empty"));
    site.plane.apply(&plain("l16", "empty", "empty.l16.example.com", "empty", ""));
    site.gateway.expect_http("missing.l16.example.com", 503);
    site.gateway.expect_http("empty.l16.example.com", 503);
}
