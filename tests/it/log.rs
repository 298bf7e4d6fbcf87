//! What Portcullis' own log tells of objects and settings: each thing once.

use portcullis::testing::certificates::{Authority, PemPair};

use crate::site::{Plan, Site, bound, eventually, pair};

/// The lines with all of these words.
fn lines(site: &Site, words: &[&str]) -> Vec<String> {
    let log = site.log();
    log.lines().filter(|line| words.iter().all(|word| line.contains(word))).map(str::to_owned).collect()
}

fn until_logged(site: &Site, words: &[&str]) {
    eventually(&format!("{words:?} in the log"), || !lines(site, words).is_empty());
}

#[test]
fn findings_are_logged_when_they_come_and_when_they_go() {
    let expired = Authority::new("test").leaf(&["old.test"]).serial(7).valid(1_000, 2_000).issue();
    let site = Plan::new()
        .file("a.yaml", bound("a", "a.test"))
        .secret("a", &pair(0x11, &["a.test"]))
        .file("old.yaml", bound("old", "old.test"))
        .secret("old", &expired)
        .file("absent.yaml", bound("absent", "absent.test"))
        .start();
    for words in
        [["ERROR", "CertificateExpired", "Secret default/old"], ["ERROR", "SecretNotFound", "absent"]]
    {
        until_logged(&site, &words);
    }

    let mismatch = PemPair { key_pem: pair(0x12, &["a.test"]).key_pem, ..pair(0x12, &["a.test"]) };
    site.write_secret("a", &mismatch);
    until_logged(&site, &["ERROR", "KeyMismatch", "Secret default/a"]);
    site.write_secret("a", &pair(0x13, &["a.test"]));
    until_logged(&site, &["INFO", "no longer so", "KeyMismatch", "Secret default/a"]);
    site.until_served("a.test", 0x13);
    until_logged(&site, &["INFO", "certificate replaced", "default/a", "serial=\"13\"", "not_after="]);
    assert!(lines(&site, &["certificate replaced", "serial=\"11\""]).is_empty(), "it was the first one");

    // What did not change is not told again.
    assert_eq!(lines(&site, &["CertificateExpired"]).len(), 1, "{}", site.log());
    assert_eq!(lines(&site, &["SecretNotFound"]).len(), 1, "{}", site.log());
}

#[test]
fn many_findings_at_once_are_counted_after_a_hundred() {
    let absent = |n: u32| bound(&format!("absent-{n}"), &format!("{n}.absent.test"));
    let site = Plan::new().file("absent.yaml", (0..130).map(absent).collect::<String>()).start();
    until_logged(&site, &["WARN", "more=30", "/api/v1/diagnostics"]);
    assert_eq!(lines(&site, &["ERROR", "SecretNotFound"]).len(), 100);
}

#[test]
fn edits_of_the_settings_file_are_told_as_they_are() {
    let site = Plan::new()
        .setting("restart: manual")
        .file("a.yaml", bound("a", "a.test"))
        .variable("PORTCULLIS_BOGUS", "1")
        .start();
    until_logged(&site, &["WARN", "key=\"bogus\"", "origin=environment"]);

    site.set("hsts-max-age", "100");
    until_logged(&site, &["setting changed", "key=\"hsts-max-age\"", "old=\"", "new=\"100\""]);

    site.set("workers", "1");
    site.until_reason("RestartPending");
    until_logged(&site, &["WARN", "RestartPending", "field=\"workers\"", "settings.yaml", "waits"]);
    assert!(lines(&site, &["setting changed", "workers"]).is_empty(), "it is still 2: {}", site.log());

    site.set("hsts", "maybe");
    site.until_reason("SettingsRejected");
    until_logged(&site, &["ERROR", "SettingsRejected", "last good"]);
    let metrics = site.metrics();
    let counts = metrics.lines().filter(|line| line.starts_with("portcullis_diagnostics{"));
    assert_eq!(counts.filter(|line| line.contains("SettingsRejected")).count(), 1, "{metrics}");
    site.set("hsts", "true");
    until_logged(&site, &["INFO", "no longer so", "SettingsRejected"]);
}
