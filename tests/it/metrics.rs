//! What is counted, seen at the real binary: handshakes by certificate, names nobody knows, changes and what is wrong with them.

use crate::site::{Plan, Site, bound, eventually, ingress, pair};

/// The value of the sample with this name and these labels, as they are written; 0 where there is none.
fn sample(site: &Site, series: &str) -> f64 {
    let text = site.admin_text("/metrics");
    let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.map_or(0.0, |value| value.parse().unwrap())
}

#[test]
fn handshakes_are_counted_by_certificate_and_by_what_was_asked_for() {
    let site = Plan::new()
        .file("a.yaml", bound("a", "a.test"))
        .secret("a", &pair(0x11, &["a.test"]))
        .file("bare.yaml", ingress("bare", "bare.test", &[]))
        .start();
    let of_a =
        "portcullis_certificate_handshakes_total{namespace=\"default\",secret_name=\"a\",host=\"a.test\"}";
    let connect = |name: &str| assert!(site.openssl(&["-servername", name]).done, "{name}");
    assert_eq!(sample(&site, of_a), 0.0);
    connect("a.test");
    // A handshake is counted a moment after the client has done with it.
    eventually("a handshake", || sample(&site, of_a) == 1.0);
    site.write_secret("a", &pair(0x12, &["a.test"]));
    site.until_served("a.test", 0x12);
    connect("a.test");
    eventually("the Secret counts on", || sample(&site, of_a) == 2.0);
    assert_eq!(sample(&site, "portcullis_sni_no_match_total"), 0.0);

    connect("bare.test");
    connect("stranger.test");
    assert!(site.openssl(&["-noservername"]).done);
    let default = |configured: &str| {
        sample(
            &site,
            &format!("portcullis_default_certificate_served_total{{host_configured=\"{configured}\"}}"),
        )
    };
    eventually("the default certificate", || default("true") == 1.0 && default("false") == 2.0);
    assert_eq!(
        sample(&site, "portcullis_sni_no_match_total"),
        2.0,
        "without a name there is none that is unknown"
    );
    assert_eq!(sample(&site, of_a), 2.0);
}

#[test]
fn changes_are_timed_and_what_cannot_be_used_is_counted() {
    let site = Plan::new().file("a.yaml", bound("a", "a.test")).secret("a", &pair(0x11, &["a.test"])).start();
    let applied = || sample(&site, "portcullis_config_apply_duration_seconds_count");
    let begun = applied();
    site.write_secret("a", &pair(0x12, &["a.test"]));
    site.until_served("a.test", 0x12);
    eventually("one more", || applied() == begun + 1.0);

    let of_a =
        "portcullis_certificate_errors{namespace=\"default\",secret_name=\"a\",reason=\"KeyMismatch\"}";
    assert_eq!(sample(&site, of_a), 0.0);
    let (one, other) = (pair(0x13, &["a.test"]), pair(0x14, &["a.test"]));
    site.write("a.secret.yaml", crate::site::secret("a", &one.certificates_pem(), &other.key_pem));
    eventually("an error", || sample(&site, of_a) == 1.0);
    site.write_secret("a", &one);
    eventually("no error", || sample(&site, of_a) == 0.0);

    let rejected = "portcullis_config_changes_total{class=\"rejected\"}";
    assert_eq!(sample(&site, rejected), 0.0);
    site.set("hsts-max-age", "soon");
    eventually("a refused edit", || sample(&site, rejected) == 1.0);
}
