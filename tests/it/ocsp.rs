//! OCSP stapling through the real binary: a responder of OpenSSL, one that misbehaves, and clients that check what
//! they are shown. Every staple that any client sees is verified against the leaf it came with, at that moment.

mod openssl;
mod responder;
mod site;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use portcullis::tls::ocsp::response::verify;
use portcullis::tls::ocsp::testing::{Ca, Issued};

use responder::{Manner, Responder};
use site::{Seen, Site, eventually};

const HOUR: Manner = Manner::Good(3600);
const AT_ONCE: Duration = Duration::ZERO;

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// A leaf for `host` whose responder is `responder`, which knows it.
fn leaf(ca: &Ca, host: &str, responder: &Responder) -> Issued {
    let leaf = ca.leaf().names(&[host]).urls(&[&responder.url]).issue();
    responder.knows(&leaf);
    leaf
}

fn must_staple(ca: &Ca, host: &str, responder: &Responder) -> Issued {
    let leaf = ca.leaf().names(&[host]).urls(&[&responder.url]).must_staple().issue();
    responder.knows(&leaf);
    leaf
}

/// Whether the client got a staple; if so, it must be good for that very leaf, and not have ended by `before`,
/// a time taken before the handshake.
fn is_stapled(seen: &Seen, ca: &Ca, before: u64) -> bool {
    let Some(staple) = &seen.staple else { return false };
    let verified = verify(staple, &seen.leaf, &ca.der, before).expect("a staple is good for its leaf");
    assert!(verified.is_fresh(before));
    true
}

/// A running gateway that has a staple for `a.example`.
fn stapled(ca: &Ca, responder: &Responder) -> Site {
    let site = Site::new(&[]);
    site.serve("a.example", &leaf(ca, "a.example", responder), ca);
    let site = site.start();
    site.eventually_in("a.example", "good");
    site
}

#[test]
fn staples_are_there_before_the_first_client_and_after_a_restart_without_the_responder() {
    let ca = Arc::new(Ca::new("issuer"));
    let responder = Responder::start(&ca, HOUR, AT_ONCE);
    let site = stapled(&ca, &responder);
    assert!(is_stapled(&site.handshake("a.example"), &ca, now()), "the first handshake of all");
    let ocsp = site.ocsp("a.example");
    assert!(ocsp["next_update"].is_string() && ocsp["next_fetch"].is_string(), "{ocsp}");
    // A handshake is counted a moment after its client has seen it.
    eventually("it to be counted", || site.metric("portcullis_tls_handshakes_stapled_total") == 1.0);
    assert_eq!(site.metric("portcullis_ocsp_fetches_total"), 1.0);
    assert!((3000.0..=3600.0).contains(&site.metric("portcullis_ocsp_staple_remaining_seconds")));

    responder.behave(Manner::Down);
    let site = site.kill().start();
    assert!(is_stapled(&site.handshake("a.example"), &ca, now()), "the first handshake after a restart");
    assert_eq!(site.metric("portcullis_tls_handshakes_unstapled_total"), 0.0);
}

#[test]
fn a_rotated_certificate_is_stapled_from_its_first_handshake_on() {
    let ca = Arc::new(Ca::new("issuer"));
    let responder = Responder::start(&ca, HOUR, Duration::from_millis(100));
    let site = Site::new(&[]);
    let mut current = leaf(&ca, "a.example", &responder);
    site.serve("a.example", &current, &ca);
    let site = site.start();
    site.eventually_in("a.example", "good");
    for _ in 0..5 {
        let next = leaf(&ca, "a.example", &responder);
        site.serve("a.example", &next, &ca);
        eventually("the new certificate", || {
            let (before, seen) = (now(), site.handshake("a.example"));
            assert!(is_stapled(&seen, &ca, before), "neither the old nor the new one is ever without");
            assert!(seen.leaf == next.der || seen.leaf == current.der);
            seen.leaf == next.der
        });
        current = next;
    }
}

#[test]
fn rotations_in_quick_succession_never_mix_up_staples_and_leaves() {
    let ca = Arc::new(Ca::new("issuer"));
    let responder = Responder::start(&ca, HOUR, Duration::from_millis(100));
    let site = Site::new(&[]);
    site.serve("a.example", &leaf(&ca, "a.example", &responder), &ca);
    let site = site.start();
    let rotating = AtomicBool::new(true);
    let last = thread::scope(|scope| {
        let clients: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut stapled = 0;
                    while rotating.load(Ordering::SeqCst) {
                        let (before, seen) = (now(), site.handshake("a.example"));
                        stapled += usize::from(is_stapled(&seen, &ca, before));
                    }
                    stapled
                })
            })
            .collect();
        let mut last = None;
        for _ in 0..20 {
            let next = leaf(&ca, "a.example", &responder);
            site.serve("a.example", &next, &ca);
            last = Some(next);
            thread::sleep(Duration::from_millis(200));
        }
        rotating.store(false, Ordering::SeqCst);
        let stapled: usize = clients.into_iter().map(|client| client.join().unwrap()).sum();
        assert!(stapled > 0, "some handshakes had staples to look at");
        last.unwrap()
    });
    eventually("the last certificate, stapled", || {
        let (before, seen) = (now(), site.handshake("a.example"));
        is_stapled(&seen, &ca, before) && seen.leaf == last.der
    });
}

#[test]
fn a_staple_that_has_ended_is_never_sent() {
    let ca = Arc::new(Ca::new("issuer"));
    let responder = Responder::start(&ca, Manner::Good(4), AT_ONCE);
    let site = stapled(&ca, &responder);
    let until = now() + 6;
    while now() < until {
        let (before, seen) = (now(), site.handshake("a.example"));
        is_stapled(&seen, &ca, before);
    }
    responder.behave(Manner::Down);
    eventually("a handshake without a staple", || {
        let (before, seen) = (now(), site.handshake("a.example"));
        !is_stapled(&seen, &ca, before)
    });
    site.eventually_in("a.example", "error");
    let found = site.findings();
    assert!(found.contains(&"OcspFailed".to_owned()), "{found:?}");
}

#[test]
fn one_poisoned_responder_of_twenty_harms_itself_alone() {
    let ca = Arc::new(Ca::new("issuer"));
    let good = Responder::start(&ca, HOUR, AT_ONCE);
    let poisoned = Responder::start(&ca, Manner::Endless, AT_ONCE);
    let site = Site::new(&["ocsp-timeout: 2s"]);
    let host = |number: usize| format!("h{number}.example");
    for number in 0..20 {
        let responder = if number == 7 { &poisoned } else { &good };
        site.serve(&host(number), &leaf(&ca, &host(number), responder), &ca);
    }
    let site = site.start();
    for number in (0..20).filter(|number| *number != 7) {
        site.eventually_in(&host(number), "good");
        assert!(is_stapled(&site.handshake(&host(number)), &ca, now()));
    }
    site.eventually_in(&host(7), "error");
    assert_eq!(site.handshake(&host(7)).staple, None);
    assert!(poisoned.connections() > 0);
}

#[test]
fn a_thousand_certificates_without_a_responder_make_no_connection_and_no_noise() {
    let ca = Ca::new("issuer");
    let site = Site::new(&[]);
    for number in 0..1000 {
        let host = format!("h{number}.example");
        site.serve(&host, &ca.leaf().names(&[&host]).issue(), &ca);
    }
    let site = site.start();
    eventually("all of them", || site.certificates().len() == 1001);
    assert!(site.certificates().iter().all(|row| row["ocsp"]["state"] == "no_responder"));
    assert_eq!(site.handshake("h0.example").staple, None);
    assert_eq!(site.metric("portcullis_ocsp_fetches_total"), 0.0);
    assert_eq!(site.metric("portcullis_tls_handshakes_unstapled_total"), 0.0);
    assert!(!site.log().to_lowercase().contains("ocsp"), "not a word is logged");
    assert!(!site.findings().iter().any(|reason| reason.contains("Ocsp")));
}

#[test]
fn addresses_that_mean_something_inside_are_not_asked() {
    let ca = Arc::new(Ca::new("issuer"));
    let inside = Responder::start(&ca, HOUR, AT_ONCE);
    let port = inside.url.trim_end_matches('/').rsplit(':').next().unwrap().to_owned();
    let long = format!("http://ocsp.example/{}", "a".repeat(10_000));
    let urls = [
        inside.url.clone(),
        format!("http://localhost:{port}/"),
        format!("http://[::1]:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        format!("http://0x7f000001:{port}/"),
        format!("http://2130706433:{port}/"),
        format!("http://ok@127.0.0.1:{port}/"),
        "http://169.254.169.254/latest/".into(),
        "http://10.0.0.1/".into(),
        "http://127.0.0.1:22/".into(),
        "file:///etc/passwd".into(),
        "gopher://127.0.0.1/".into(),
        long,
    ];
    let site = Site::new(&["ocsp-allowed-cidrs: []"]);
    let host = |number: usize| format!("h{number}.example");
    for (number, url) in urls.iter().enumerate() {
        let leaf = ca.leaf().names(&[&host(number)]).urls(&[url]).issue();
        inside.knows(&leaf);
        site.serve(&host(number), &leaf, &ca);
    }
    let site = site.start();
    for (number, url) in urls.iter().enumerate() {
        site.eventually_in(&host(number), "error");
        let error = site.ocsp(&host(number))["last_error"].as_str().unwrap().to_owned();
        assert!(error.contains("refused") || error.contains("not public"), "{url}: {error}");
        assert_eq!(site.handshake(&host(number)).staple, None);
    }
    assert_eq!(inside.connections(), 0);
}

#[test]
fn a_must_staple_certificate_waits_for_its_staple_and_not_beyond_the_deadline() {
    let ca = Arc::new(Ca::new("issuer"));
    let responder = Responder::start(&ca, HOUR, AT_ONCE);
    let site = Site::new(&[]);
    let old = leaf(&ca, "a.example", &responder);
    site.serve("a.example", &old, &ca);
    let site = site.start();
    site.eventually_in("a.example", "good");

    responder.behave(Manner::Silent);
    let asked = responder.connections();
    let second = must_staple(&ca, "a.example", &responder);
    site.serve("a.example", &second, &ca);
    eventually("the question about the new one", || responder.connections() > asked);
    assert_eq!(site.handshake("a.example").leaf, old.der, "the old one stays in use");
    assert!(site.findings().contains(&"AwaitingStaple".to_owned()));
    responder.behave(HOUR);
    eventually("the new certificate", || {
        let (before, seen) = (now(), site.handshake("a.example"));
        assert!(is_stapled(&seen, &ca, before));
        seen.leaf == second.der
    });
    assert_eq!(site.metric("portcullis_must_staple_unstapled_total"), 0.0);

    responder.behave(Manner::Down);
    site.set(&["ocsp-must-staple-deadline: 2s"]);
    let third = must_staple(&ca, "a.example", &responder);
    site.serve("a.example", &third, &ca);
    eventually("the one without a staple", || site.handshake("a.example").leaf == third.der);
    assert_eq!(site.handshake("a.example").staple, None);
    // A handshake is counted a moment after its client has seen it.
    eventually("both to be counted", || site.metric("portcullis_must_staple_unstapled_total") >= 2.0);
    assert!(site.findings().contains(&"MustStapleUnstapled".to_owned()));
}

#[test]
fn a_revoked_certificate_loses_its_staple_and_someone_is_told() {
    let ca = Arc::new(Ca::new("issuer"));
    // So short-lived that it is renewed soon.
    let responder = Responder::start(&ca, Manner::Good(6), AT_ONCE);
    let site = stapled(&ca, &responder);
    responder.behave(Manner::Revoked);
    site.eventually_in("a.example", "revoked");
    assert_eq!(site.handshake("a.example").staple, None);
    assert!(site.findings().contains(&"CertificateRevoked".to_owned()));
}

#[test]
fn without_the_issuer_nobody_is_asked() {
    let ca = Arc::new(Ca::new("issuer"));
    let responder = Responder::start(&ca, HOUR, AT_ONCE);
    let site = Site::new(&[]);
    let leaf = leaf(&ca, "a.example", &responder);
    site.serve_chain("a.example", &leaf, &[]);
    let site = site.start();
    site.eventually_in("a.example", "issuer_unknown");
    assert_eq!(responder.connections(), 0);
    // The issuer comes later, with the same leaf.
    site.serve("a.example", &leaf, &ca);
    site.eventually_in("a.example", "good");
    assert!(is_stapled(&site.handshake("a.example"), &ca, now()));
}

#[test]
fn the_switch_works_while_the_gateway_runs() {
    let ca = Arc::new(Ca::new("issuer"));
    let responder = Responder::start(&ca, HOUR, AT_ONCE);
    let site = stapled(&ca, &responder);
    site.set(&["enable-ocsp: false"]);
    eventually("no staple", || site.handshake("a.example").staple.is_none());
    site.set(&[]);
    eventually("a staple", || is_stapled(&site.handshake("a.example"), &ca, now()));
}
