//! The task with everything around it injected; time is paused, so hours pass at once.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;
use tokio::time::Instant;

use self::bench::{Answerer, Bench, NOW, Pki, scripted};
use super::fetch::FetchError;
use super::*;
use crate::names::responder::Target;
use crate::tls::ocsp::status::OcspState;
use crate::tls::ocsp::testing::{Answer, unsuccessful};

mod bench;
mod openssl;

fn defaults() -> OcspSettings {
    OcspSettings::default()
}

const URL: &str = "http://ocsp.example.com/";

#[tokio::test(start_paused = true)]
async fn a_certificate_is_stapled_at_once_and_renewed_at_half_of_the_validity() {
    let pki = Pki::new();
    let wanted = pki.wanted(URL);
    let mut bench = Bench::start(defaults(), None, pki.responder());
    bench.tell(Update::Add(wanted.clone()));
    assert_eq!(bench.state(&wanted, OcspState::Pending).await.staple, None);
    let first = bench.state(&wanted, OcspState::Good).await;
    assert_eq!((first.this_update, first.next_update), (Some(NOW), Some(NOW + 3600)));
    assert_eq!(first.next_fetch, Some(NOW + 1800));
    assert_eq!(bench.elapsed(), 0);
    let second = bench.event(&wanted, |event| event.this_update != Some(NOW)).await;
    assert_eq!(second.this_update, Some(NOW + 1800));
    assert_eq!(second.staple.unwrap().next_update, NOW + 5400);
    assert_eq!(bench.fake.times(), [0, 1800]);
}

#[tokio::test(start_paused = true)]
async fn failures_back_off_and_alternate_between_get_and_post() {
    let pki = Pki::new();
    let wanted = pki.wanted(URL);
    let statuses = [1, 2, 3, 5, 6].map(|status| Ok(unsuccessful(status)));
    let leaf = wanted.leaf.clone();
    let good = Answer::good(&leaf, &pki.ca.der, NOW).sign(&pki.ca.signer());
    let script = statuses.into_iter().chain([Ok(good)]).collect();
    let mut bench = Bench::start(defaults(), None, scripted(script));
    bench.tell(Update::Add(wanted.clone()));
    for name in ["malformedRequest", "internalError", "tryLater", "sigRequired", "unauthorized"] {
        let event = bench.event(&wanted, |event| event.last_error.is_some()).await;
        assert_eq!((event.state, event.staple), (OcspState::Error, None));
        assert!(event.last_error.unwrap().contains(name));
    }
    let event = bench.state(&wanted, OcspState::Good).await;
    assert_eq!(event.last_error, None);
    // Three quarters of 1, 2, 4, 8 and 16 seconds lie between, since the dice always say one half.
    assert_eq!(bench.fake.times(), [0, 0, 2, 5, 11, 23]);
    let posts: Vec<bool> = bench.fake.asked().iter().map(|asked| asked.post).collect();
    assert_eq!(posts, [false, true, false, true, false, true]);
}

#[tokio::test(start_paused = true)]
async fn an_old_staple_is_kept_until_next_update_and_not_a_second_longer() {
    let pki = Pki::new();
    let wanted = pki.wanted(URL);
    let good = Answer::good(&wanted.leaf, &pki.ca.der, NOW).sign(&pki.ca.signer());
    let mut bench = Bench::start(defaults(), None, scripted(vec![Ok(good), Err(())]));
    bench.tell(Update::Add(wanted.clone()));
    bench.state(&wanted, OcspState::Good).await;
    loop {
        let event = bench.event(&wanted, |_| true).await;
        if event.staple.is_none() {
            assert_eq!(event.state, OcspState::Error);
            assert!(event.last_error.is_some());
            break;
        }
        assert_eq!(event.state, OcspState::Good);
        assert!(event.last_error.is_some());
        assert!(bench.elapsed() < 3600);
    }
    assert_eq!(bench.elapsed(), 3600);
}

#[tokio::test(start_paused = true)]
async fn certificates_without_a_responder_or_an_issuer_are_never_asked_about() {
    let pki = Pki::new();
    let mut bench = Bench::start(defaults(), None, pki.responder());
    let plain: Vec<Wanted> = (0..20).map(|_| pki.wanted_leaf(&pki.ca.leaf().issue())).collect();
    bench.tell_all(&plain);
    for wanted in &plain {
        let event = bench.state(wanted, OcspState::NoResponder).await;
        assert_eq!((event.next_fetch, event.last_error), (None, None));
    }
    let orphan = Wanted { issuer: None, ..pki.wanted(URL) };
    bench.tell(Update::Add(orphan.clone()));
    bench.state(&orphan, OcspState::IssuerUnknown).await;
    tokio::time::sleep(Duration::from_secs(86_400)).await;
    assert_eq!(bench.fake.asked(), []);
}

#[tokio::test(start_paused = true)]
async fn revoked_and_unknown_take_the_staple_away_and_noise_does_not() {
    let pki = Pki::new();
    for state in [OcspState::Revoked, OcspState::Unknown] {
        let answer = if state == OcspState::Revoked { Answer::revoked } else { Answer::unknown };
        let wanted = pki.wanted(URL);
        let sign = |answer: Answer| answer.sign(&pki.ca.signer());
        let good = sign(Answer::good(&wanted.leaf, &pki.ca.der, NOW));
        let bad = sign(answer(&wanted.leaf, &pki.ca.der, NOW + 1800));
        let forged = answer(&wanted.leaf, &pki.ca.der, NOW + 1800).sign_with(&pki.ca.signer(), |_| vec![]);
        // What it said before, as a cache would have it, and what it said in the same second.
        let [older, same, lifted] = [NOW, NOW + 1800, NOW + 1801].map(|time| {
            let good = Answer::good(&wanted.leaf, &pki.ca.der, time);
            sign(good.window(time, Some(NOW + 30 * 86_400)))
        });
        let script = scripted(vec![Ok(good), Ok(forged), Ok(bad), Err(()), Ok(older), Ok(same), Ok(lifted)]);
        let mut bench = Bench::start(defaults(), None, script);
        bench.tell(Update::Add(wanted.clone()));
        bench.state(&wanted, OcspState::Good).await;
        let noise = bench.event(&wanted, |_| true).await;
        assert!(noise.staple.is_some() && noise.last_error.is_some());
        let event = bench.event(&wanted, |_| true).await;
        assert_eq!((event.state, event.staple), (state, None));
        // A later silence of the responder does not clear the verdict, and nothing does that is not newer.
        for _ in 0..3 {
            let event = bench.event(&wanted, |_| true).await;
            assert_eq!((event.state, event.staple), (state, None));
        }
        bench.state(&wanted, OcspState::Good).await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_poisoned_responder_of_twenty_delays_nobody() {
    let pki = Pki::new();
    let good = pki.responder();
    let answer: Answerer = Box::new(move |order| match order.target.origin() {
        origin if origin.contains("poison") => Box::pin(async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            Err(FetchError::Timeout)
        }),
        _ => good(order),
    });
    let mut bench = Bench::start(defaults(), None, answer);
    let mut wanted: Vec<Wanted> = (0..10).map(|_| pki.wanted("http://poison.example.com/")).collect();
    let healthy: Vec<Wanted> = (0..19).map(|i| pki.wanted(&format!("http://r{i}.example.com/"))).collect();
    wanted.extend(healthy.clone());
    bench.tell_all(&wanted);
    let mut stapled = 0;
    while stapled < healthy.len() {
        let event = bench.next().await;
        stapled += usize::from(event.state == OcspState::Good);
    }
    assert_eq!(bench.elapsed(), 0);
}

#[tokio::test(start_paused = true)]
async fn places_are_limited_in_all_and_per_responder() {
    let pki = Pki::new();
    let good = pki.responder();
    let answer: Answerer = Box::new(move |order| {
        let answer = good(order);
        Box::pin(async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            answer.await
        })
    });
    let mut bench = Bench::start(defaults(), None, answer);
    let wanted: Vec<Wanted> = (0..100)
        .map(|i| Wanted {
            namespace: format!("tenant{}", i % 7).into(),
            ..pki.wanted(&format!("http://r{}.example.com/", i / 12))
        })
        .collect();
    bench.tell_all(&wanted);
    let mut stapled = 0;
    while stapled < 100 {
        stapled += usize::from(bench.next().await.state == OcspState::Good);
    }
    assert_eq!(bench.fake.busiest.load(Ordering::SeqCst), 8);
    assert_eq!(bench.fake.busiest_responder.load(Ordering::SeqCst), 2);
    assert_eq!(bench.fake.asked().len(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_removed_certificate_is_broken_off_and_forgotten() {
    let pki = Pki::new();
    let answered = Arc::new(Notify::new());
    let (good, gate) = (pki.responder(), answered.clone());
    let answer: Answerer = Box::new(move |order| {
        let (answer, gate) = (good(order), gate.clone());
        Box::pin(async move {
            gate.notified().await;
            answer.await
        })
    });
    let (wanted, other) = (pki.wanted(URL), pki.wanted(URL));
    let mut bench = Bench::start(defaults(), None, answer);
    bench.tell(Update::Add(wanted.clone()));
    bench.state(&wanted, OcspState::Pending).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    bench.tell(Update::Remove(wanted.fingerprint));
    let gone = bench.events.recv().await;
    assert!(matches!(gone, Some(Event::StapleGone(leaf)) if leaf == wanted.fingerprint), "{gone:?}");
    bench.tell(Update::Add(wanted.clone()));
    bench.tell(Update::Remove(wanted.fingerprint));
    bench.tell(Update::Add(other.clone()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    // Only the other certificate's attempt is left to be answered.
    answered.notify_waiters();
    let event = bench.state(&other, OcspState::Good).await;
    assert!(event.staple.is_some());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(bench.events.try_recv().is_err());
    assert!(!bench.task.is_finished());
}

#[tokio::test(start_paused = true)]
async fn the_same_certificate_again_is_only_reported_again() {
    let pki = Pki::new();
    let wanted = pki.wanted(URL);
    let mut bench = Bench::start(defaults(), None, pki.responder());
    bench.tell(Update::Add(wanted.clone()));
    bench.state(&wanted, OcspState::Good).await;
    bench.tell(Update::Add(wanted.clone()));
    assert_eq!(bench.event(&wanted, |_| true).await.state, OcspState::Good);
    assert_eq!(bench.fake.times(), [0]);
}

#[tokio::test(start_paused = true)]
async fn the_switch_takes_staples_away_and_brings_them_back() {
    let pki = Pki::new();
    let wanted = pki.wanted(URL);
    let mut bench = Bench::start(defaults(), None, pki.responder());
    bench.tell(Update::Add(wanted.clone()));
    bench.state(&wanted, OcspState::Good).await;
    bench.tell(Update::Settings(OcspSettings { enabled: false, ..defaults() }));
    let event = bench.state(&wanted, OcspState::Disabled).await;
    assert_eq!((event.staple, event.next_fetch), (None, None));
    tokio::time::sleep(Duration::from_secs(86_400)).await;
    assert_eq!(bench.fake.times(), [0]);
    bench.tell(Update::Settings(defaults()));
    bench.state(&wanted, OcspState::Good).await;
    assert_eq!(bench.fake.times(), [0, 86_400]);
}

#[tokio::test(start_paused = true)]
async fn other_limits_leave_staples_alone() {
    let pki = Pki::new();
    let wanted = pki.wanted(URL);
    let mut bench = Bench::start(defaults(), None, pki.responder());
    bench.tell(Update::Add(wanted.clone()));
    bench.state(&wanted, OcspState::Good).await;
    bench.tell(Update::Settings(OcspSettings { concurrency: 1, ..defaults() }));
    let renewed = bench.event(&wanted, |_| true).await;
    assert_eq!((renewed.state, renewed.this_update), (OcspState::Good, Some(NOW + 1800)));
    assert_eq!(bench.fake.times(), [0, 1800]);
}

#[tokio::test(start_paused = true)]
async fn an_override_is_asked_instead_and_trusted() {
    let pki = Pki::new();
    let inner = "http://10.0.0.7:8080/";
    let wanted = pki.wanted("http://ocsp.closed.example/");
    let overrides = [("http://ocsp.closed.example/".to_owned(), Target::parse(inner).unwrap())];
    let trusted = Arc::new(AtomicUsize::new(0));
    let (good, counter) = (pki.responder(), trusted.clone());
    let answer: Answerer = Box::new(move |order| {
        counter.fetch_add(usize::from(order.trusted), Ordering::SeqCst);
        good(order)
    });
    let settings = OcspSettings { overrides: overrides.into(), ..defaults() };
    let mut bench = Bench::start(settings, None, answer);
    bench.tell(Update::Add(wanted.clone()));
    bench.state(&wanted, OcspState::Good).await;
    assert_eq!(bench.fake.asked()[0].origin, "http://10.0.0.7:8080");
    assert_eq!(trusted.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_clock_set_forward_ends_staples_and_starts_an_attempt() {
    let pki = Pki::new();
    let wanted = pki.wanted(URL);
    let mut bench = Bench::start(defaults(), None, pki.responder());
    bench.tell(Update::Add(wanted.clone()));
    bench.state(&wanted, OcspState::Good).await;
    bench.set.store(7200, Ordering::SeqCst);
    let event = bench.event(&wanted, |event| event.staple.is_none()).await;
    assert_eq!(event.state, OcspState::Error);
    bench.event(&wanted, |_| true).await;
    assert!(matches!(bench.fake.times()[..], [0, 1..=30, ..]), "{:?}", bench.fake.times());
}

#[tokio::test(start_paused = true)]
async fn an_older_answer_does_not_replace_a_newer_staple() {
    let pki = Pki::new();
    let wanted = pki.wanted(URL);
    let as_of = |time| Ok(Answer::good(&wanted.leaf, &pki.ca.der, time).sign(&pki.ca.signer()));
    let mut bench = Bench::start(defaults(), None, scripted(vec![as_of(NOW), as_of(NOW - 600), Err(())]));
    bench.tell(Update::Add(wanted.clone()));
    bench.state(&wanted, OcspState::Good).await;
    let event = bench.event(&wanted, |_| true).await;
    assert_eq!((event.this_update, event.last_error), (Some(NOW), None));
}

#[tokio::test(start_paused = true)]
async fn validities_of_seconds_never_leave_an_expired_staple() {
    let pki = Pki::new();
    let wanted = pki.wanted(URL);
    let begun = Instant::now();
    let (side, leaf) = (pki.clone(), wanted.leaf.clone());
    let answer: Answerer = Box::new(move |_| {
        let now = NOW + begun.elapsed().as_secs();
        let body = Answer::good(&leaf, &side.ca.der, now).window(now, Some(now + 3)).sign(&side.ca.signer());
        Box::pin(async move { Ok(body.into()) })
    });
    let mut bench = Bench::start(defaults(), None, answer);
    bench.tell(Update::Add(wanted.clone()));
    bench.state(&wanted, OcspState::Good).await;
    for _ in 0..50 {
        let event = bench.event(&wanted, |_| true).await;
        let staple = event.staple.expect("a responder that answers leaves no gap");
        assert!(staple.is_fresh(NOW + bench.elapsed()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_who_sleeps_finds_the_latest_state_only() {
    let pki = Pki::new();
    let wanted = pki.wanted(URL);
    let mut bench = Bench::start(defaults(), None, pki.responder());
    bench.tell(Update::Add(wanted.clone()));
    tokio::time::sleep(Duration::from_secs(10 * 3600 + 60)).await;
    // One event was in the channel, one more is made when there is room.
    let [_, latest] = [bench.next().await, bench.next().await];
    assert_eq!(latest.state, OcspState::Good);
    assert_eq!(latest.this_update, Some(NOW + 10 * 3600));
    assert!(tokio::time::timeout(Duration::from_secs(60), bench.events.recv()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_restart_staples_from_the_disk_while_the_responder_is_down() {
    let pki = Pki::new();
    let wanted = pki.wanted(URL);
    let dir = tempfile::tempdir().unwrap();
    let cache = || Some(Cache::new(dir.path().join("ocsp")));
    let mut bench = Bench::start(defaults(), cache(), pki.responder());
    bench.tell(Update::Add(wanted.clone()));
    bench.state(&wanted, OcspState::Good).await;
    while Cache::new(dir.path().join("ocsp"))
        .load(&wanted.fingerprint, &wanted.leaf, &pki.ca.der, NOW)
        .is_none()
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(bench.updates);
    bench.task.await.unwrap();

    let mut bench = Bench::start(defaults(), cache(), scripted(vec![Err(())]));
    bench.tell(Update::Add(wanted.clone()));
    let event = bench.state(&wanted, OcspState::Good).await;
    assert_eq!(event.this_update, Some(NOW));
    assert_eq!(bench.fake.asked(), []);
}

#[tokio::test(start_paused = true)]
async fn urls_that_lead_inside_are_refused_without_an_attempt() {
    let pki = Pki::new();
    let mut bench = Bench::start(defaults(), None, pki.responder());
    let long = format!("http://h.example.com/{}", "a".repeat(10_000));
    for url in [
        "http://127.0.0.1:6443/",
        "http://169.254.169.254/latest/",
        "http://[::1]/",
        "http://[::ffff:10.0.0.1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://10.0.0.1/",
        "http://192.168.0.1/",
        "http://[fd00::1]/",
        "http://0x7f000001/",
        "http://2130706433/",
        "http://0177.0.0.1/",
        "http://127.1/",
        "http://0/",
        "file:///etc/passwd",
        "gopher://h.example.com/",
        "https:",
        "http://ok@127.0.0.1/",
        "http://h.example.com:22/",
        "http://h.example.com:0/",
        long.as_str(),
    ] {
        let wanted = pki.wanted(url);
        bench.tell(Update::Add(wanted.clone()));
        let event = bench.event(&wanted, |_| true).await;
        assert_eq!((event.state, event.next_fetch), (OcspState::Error, None), "{url}");
        assert!(event.last_error.unwrap().starts_with("the responder URL is refused: "), "{url}");
    }
    tokio::time::sleep(Duration::from_secs(86_400)).await;
    assert_eq!(bench.fake.asked(), []);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_panics_is_a_failed_attempt() {
    let pki = Pki::new();
    let wanted = pki.wanted(URL);
    let (good, count) = (pki.responder(), AtomicUsize::new(0));
    let answer: Answerer = Box::new(move |order| match count.fetch_add(1, Ordering::SeqCst) {
        0..3 => Box::pin(async { panic!("a fault of ours") }),
        _ => good(order),
    });
    let mut bench = Bench::start(OcspSettings { concurrency: 1, ..defaults() }, None, answer);
    bench.tell(Update::Add(wanted.clone()));
    bench.event(&wanted, |event| event.last_error.is_some()).await;
    bench.state(&wanted, OcspState::Good).await;
}

#[tokio::test(start_paused = true)]
async fn the_task_ends_with_either_of_its_ends() {
    let pki = Pki::new();
    let bench = Bench::start(defaults(), None, pki.responder());
    drop(bench.updates);
    bench.task.await.unwrap();

    let bench = Bench::start(defaults(), None, pki.responder());
    drop(bench.events);
    bench.updates.send(Update::Add(pki.wanted(URL))).unwrap();
    bench.task.await.unwrap();
}
