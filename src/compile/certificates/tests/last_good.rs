//! What stays when what is there now cannot be used, is gone, or is not valid.

use super::*;

#[test]
fn a_bad_update_keeps_the_last_good_certificate_without_limit() {
    let mut world = World::new("www.foo.test");
    world
        .secret("s", &pair(1, &["www.foo.test"]))
        .ingress("i", 1, &[(&["www.foo.test"], "s")])
        .expect(&["01"], &[]);
    world.broken("s").expect(&["01"], &["KeyMismatch"]);
    world.after(30 * DAY).expect(&["01"], &["KeyMismatch"]);
    world.secret("s", &pair(2, &["other.test"])).expect(&["01"], &["HostMismatch"]);
    world.any_secret("s", SecretOrigin::Object, None).expect(&["01"], &["KeyPairMissing"]);
    world.secret("s", &pair(3, &["www.foo.test"])).expect(&["03"], &[]);
}

#[test]
fn a_deleted_secret_is_served_for_the_grace_time() {
    let mut world = World::new("www.foo.test");
    let tls: &[(&[&str], &str)] = &[(&["www.foo.test"], "s")];
    world.secret("s", &pair(1, &["www.foo.test"])).ingress("i", 1, tls).expect(&["01"], &[]);
    world.delete(Kind::Secret, "s").expect(&["01"], &["SecretNotFound"]);
    assert_eq!(world.compile().recheck_at, Some(NOW + GRACE));
    world.after(GRACE - 1).expect(&["01"], &["SecretNotFound"]);
    // Created again in time, it starts afresh.
    world.secret("s", &pair(1, &["www.foo.test"])).expect(&["01"], &[]);
    world.delete(Kind::Secret, "s").expect(&["01"], &["SecretNotFound"]);
    world.after(GRACE - 1).expect(&["01"], &["SecretNotFound"]);
    world.after(1).expect(&[], &["SecretNotFound"]);
    world.secret("s", &pair(2, &["www.foo.test"])).expect(&["02"], &[]);
}

#[test]
fn once_the_grace_time_is_over_the_findings_are_those_of_a_host_that_never_had_it() {
    let mut world = World::new("www.foo.test");
    // The entry is about another host and does for this one as long as its certificate does.
    let tls: &[(&[&str], &str)] = &[(&["other.test"], "s")];
    world.secret("s", &pair(1, &["other.test", "www.foo.test"])).ingress("i", 1, tls).expect(&["01"], &[]);
    world.delete(Kind::Secret, "s").expect(&["01"], &["SecretNotFound"]);
    world.after(GRACE).expect(&[], &["HostMismatch"]);
}

#[test]
fn a_secret_of_a_manifest_with_the_name_of_a_pem_pair_does_not_stand_in_for_it() {
    let mut world = World::new("www.foo.test");
    let at = |serial| Some(Ok(pair(serial, &["www.foo.test"])));
    world.any_secret("x", SecretOrigin::PemPair, at(1)).expect(&["01"], &[]);
    world.any_secret("y", SecretOrigin::PemPair, at(2)).expect(&["01"], &["HostConflict"]);
    world.secret("x", &pair(3, &["www.foo.test"])).expect(&["02"], &[]);
    world.delete(Kind::Secret, "y").after(GRACE).outcome();
    world.after(GRACE).expect(&[], &[]);
}

#[test]
fn a_pem_pair_that_lost_a_name_leaves_it_even_if_its_wildcard_covers_it() {
    let mut world = World::new("www.foo.test");
    let at = |serial, names| Some(Ok(pair(serial, names)));
    world.any_secret("x", SecretOrigin::PemPair, at(1, &["www.foo.test", "*.foo.test"])).expect(&["01"], &[]);
    world.any_secret("y", SecretOrigin::PemPair, at(2, &["www.foo.test"])).expect(&["01"], &["HostConflict"]);
    world.any_secret("x", SecretOrigin::PemPair, at(3, &["*.foo.test"])).expect(&["02"], &[]);
}

#[test]
fn a_switch_to_a_missing_secret_keeps_the_certificate_until_it_comes() {
    let mut world = World::new("www.foo.test");
    let hosts: &[&str] = &["www.foo.test"];
    world.secret("old", &pair(1, hosts)).ingress("i", 1, &[(hosts, "old")]).expect(&["01"], &[]);
    world.ingress("i", 1, &[(hosts, "new")]).expect(&["01"], &["SecretNotFound"]);
    world.after(10 * GRACE).expect(&["01"], &["SecretNotFound"]);
    world.broken("new").expect(&["01"], &["KeyMismatch"]);
    world.secret("new", &pair(2, hosts)).expect(&["02"], &[]);
}

#[test]
fn what_is_taken_away_is_gone() {
    let mut world = World::new("www.foo.test");
    let tls: &[(&[&str], &str)] = &[(&["www.foo.test"], "s")];
    world.secret("s", &pair(1, &["www.foo.test"])).ingress("i", 1, tls).expect(&["01"], &[]);
    world.ingress("i", 1, &[]).expect(&[], &[]);
    world.ingress("i", 1, tls).expect(&["01"], &[]);
    world.delete(Kind::Ingress, "i").expect(&[], &[]);
}

#[test]
fn an_expired_candidate_does_not_replace_a_valid_certificate() {
    let mut world = World::new("www.foo.test");
    let hosts: &[&str] = &["www.foo.test"];
    world.secret("s", &pair(1, hosts)).ingress("i", 1, &[(hosts, "s")]).expect(&["01"], &[]);
    world.secret("s", &dated(2, hosts, NOW - 9 * DAY, NOW - DAY)).expect(&["01"], &["CandidateExpired"]);
    // Once neither is valid, the Secret has its way.
    world.after(61 * DAY).expect(&["02"], &["CertificateExpired"]);
    // Nor does it take the host from a younger Ingress.
    world.secret("b/s", &dated(3, hosts, NOW, NOW + 99 * DAY)).ingress("b/i", 2, &[(hosts, "s")]);
    world.expect(&["03"], &["HostConflict"]);
}

#[test]
fn a_candidate_that_is_not_valid_yet_waits() {
    let mut world = World::new("www.foo.test");
    let hosts: &[&str] = &["www.foo.test"];
    world.secret("s", &pair(1, hosts)).ingress("i", 1, &[(hosts, "s")]).expect(&["01"], &[]);
    world
        .secret("s", &dated(2, hosts, NOW + 3600, NOW + 90 * DAY))
        .expect(&["01"], &["CandidateNotYetValid"]);
    assert_eq!(world.compile().recheck_at, Some(NOW + 3600));
    world.after(3600).expect(&["02"], &[]);
}

#[test]
fn an_only_certificate_is_served_whatever_its_dates() {
    let hosts: &[&str] = &["www.foo.test"];
    for (from, to, reasons, recheck) in [
        (NOW - DAY, NOW - 1, &["CertificateExpired"][..], None),
        (NOW - DAY, NOW, &["CertificateExpiring"], Some(NOW + 1)),
        (NOW - DAY, NOW + 9 * DAY, &["CertificateExpiring"], Some(NOW + 9 * DAY + 1)),
        (NOW - DAY, NOW + 11 * DAY, &[], Some(NOW + DAY)),
        (NOW + DAY, NOW + 90 * DAY, &["CertificateNotYetValid"], Some(NOW + DAY)),
    ] {
        let mut world = World::new("www.foo.test");
        world
            .secret("s", &dated(1, hosts, from, to))
            .ingress("i", 1, &[(hosts, "s")])
            .expect(&["01"], reasons);
        assert_eq!(world.compile().recheck_at, recheck);
    }
}

#[test]
fn of_two_kinds_the_valid_one_is_served() {
    let hosts: &[&str] = &["www.foo.test"];
    let mut world = World::new("www.foo.test");
    world
        .secret("rsa", &of_kind(1, Algorithm::Rsa, hosts))
        .secret("ecdsa", &dated(2, hosts, NOW - 9, NOW - 1));
    world.ingress("i", 1, &[(hosts, "ecdsa"), (hosts, "rsa")]).expect(&["01"], &["CertificateExpired"]);
}
