use proptest::prelude::*;

use super::*;

fn killed() -> Ended {
    Ended { reason: "killed by signal 9".into(), code: None }
}

fn failed(reason: &str) -> Ended {
    Ended { reason: reason.into(), code: Some(1) }
}

/// A lifecycle whose first generation serves.
fn serving(now: Instant) -> Lifecycle {
    let mut lifecycle = Lifecycle::default();
    assert_eq!(lifecycle.start(), [Action::Start(1, Role::First)]);
    assert_eq!(lifecycle.ready(1, now), [Action::Serve(1)]);
    assert_eq!(lifecycle.accepts(1), []);
    lifecycle
}

#[test]
fn the_old_one_drains_once_the_new_one_takes_connections() {
    let now = Instant::now();
    let mut lifecycle = serving(now);
    assert_eq!(lifecycle.restart(), [Action::Start(2, Role::Candidate)]);
    assert_eq!(lifecycle.accepts(2), [], "it is not even ready");
    assert_eq!(lifecycle.ready(2, now), [Action::Serve(2)]);
    assert_eq!(lifecycle.accepts(2), [Action::Drain(1)]);
    assert_eq!(lifecycle.state(1), Some(GenerationState::Draining));
    assert_eq!(lifecycle.ended(1, &failed("done"), now), []);
    assert_eq!(lifecycle.last_error(), None);
}

#[test]
fn a_candidate_that_fails_leaves_its_reason_and_the_old_one() {
    let now = Instant::now();
    let mut lifecycle = serving(now);
    lifecycle.restart();
    assert_eq!(lifecycle.ended(2, &failed("port in use"), now), []);
    assert_eq!(lifecycle.last_error(), Some("port in use"));
    assert_eq!(lifecycle.state(1), Some(GenerationState::Serving));

    assert_eq!(lifecycle.restart(), [Action::Start(3, Role::Candidate)]);
    assert_eq!(lifecycle.timed_out(3, "not ready".into()), [Action::Kill(3)]);
    assert_eq!(lifecycle.ended(3, &killed(), now), []);
    assert_eq!(lifecycle.last_error(), Some("not ready"));

    lifecycle.restart();
    lifecycle.ready(4, now);
    assert_eq!(lifecycle.last_error(), None);
}

#[test]
fn the_last_wish_counts() {
    let mut lifecycle = serving(Instant::now());
    lifecycle.restart();
    assert_eq!(lifecycle.restart(), [Action::Kill(2), Action::Start(3, Role::Candidate)]);
    assert_eq!(lifecycle.ready(2, Instant::now()), [], "too late");
    assert_eq!(lifecycle.no_restart(), [Action::Kill(3)]);
    assert_eq!(lifecycle.last_error(), None);
}

#[test]
fn crashes_are_replaced_at_once_and_then_ever_more_slowly() {
    let now = Instant::now();
    let mut lifecycle = serving(now);
    let mut number = 1;
    for milliseconds in [0, 100, 200, 400, 800, 1600, 3200, 5000, 5000] {
        let delay = Duration::from_millis(milliseconds);
        assert_eq!(lifecycle.ended(number, &killed(), now), [Action::ReplaceIn(delay)]);
        number += 1;
        assert_eq!(lifecycle.replace(), [Action::Start(number, Role::Replacement)]);
        lifecycle.ready(number, now);
    }
    let later = now + STABLE;
    assert_eq!(lifecycle.ended(number, &killed(), later), [Action::ReplaceIn(Duration::ZERO)]);
}

#[test]
fn a_crash_is_an_error_until_something_serves_in_its_place() {
    let now = Instant::now();
    let mut lifecycle = serving(now);
    lifecycle.ended(1, &killed(), now);
    lifecycle.replace();
    assert_eq!(lifecycle.last_error(), Some("killed by signal 9"));
    lifecycle.ready(2, now);
    assert_eq!(lifecycle.last_error(), None);

    lifecycle.restart();
    lifecycle.ended(3, &failed("port in use"), now);
    lifecycle.ended(2, &killed(), now);
    assert_eq!(lifecycle.last_error(), Some("killed by signal 9"));
    lifecycle.replace();
    lifecycle.ready(4, now);
    assert_eq!(lifecycle.last_error(), Some("port in use"), "that is still so");
}

#[test]
fn a_crash_during_a_handover_is_replaced_beside_the_candidate() {
    let now = Instant::now();
    let mut lifecycle = serving(now);
    lifecycle.restart();
    assert_eq!(lifecycle.ended(1, &killed(), now), [Action::ReplaceIn(Duration::ZERO)]);
    assert_eq!(lifecycle.replace(), [Action::Start(3, Role::Replacement)]);
    assert_eq!(lifecycle.ready(2, now), [Action::Serve(2), Action::Kill(3)]);

    let mut lifecycle = serving(now);
    lifecycle.restart();
    lifecycle.ended(1, &killed(), now);
    lifecycle.replace();
    assert_eq!(lifecycle.ready(3, now), [Action::Serve(3)]);
    assert_eq!(lifecycle.accepts(3), []);
    assert_eq!(lifecycle.ready(2, now), [Action::Serve(2)]);
    assert_eq!(
        lifecycle.accepts(2),
        [Action::Drain(3)],
        "the candidate takes over though it was started before"
    );
}

#[test]
fn an_upgrade_asked_for_during_a_start_begins_after_it() {
    let now = Instant::now();
    let mut lifecycle = Lifecycle::default();
    lifecycle.start();
    assert_eq!(lifecycle.restart(), []);
    assert_eq!(lifecycle.ready(1, now), [Action::Serve(1), Action::Start(2, Role::Candidate)]);
    assert_eq!(lifecycle.ready(2, now), [Action::Serve(2)], "once");
}

#[test]
fn an_upgrade_can_end_crashes() {
    let now = Instant::now();
    let mut lifecycle = serving(now);
    // While the next start is waited out: at once, and the old program has its turn all the same.
    lifecycle.ended(1, &killed(), now);
    assert_eq!(lifecycle.restart(), [Action::Start(2, Role::Candidate)]);
    assert_eq!(lifecycle.replace(), [Action::Start(3, Role::Replacement)]);
    // While one is being started: when that has crashed as well.
    assert_eq!(lifecycle.ended(2, &failed("no better"), now), []);
    assert_eq!(lifecycle.restart(), []);
    let delay = Duration::from_millis(100);
    let next = [Action::ReplaceIn(delay), Action::Start(4, Role::Candidate)];
    assert_eq!(lifecycle.ended(3, &killed(), now), next);
    assert_eq!(lifecycle.ready(4, now), [Action::Serve(4)]);
    assert_eq!(lifecycle.last_error(), None);
}

#[test]
fn one_that_crashes_before_its_first_connection_leaves_the_old_one_alone() {
    let now = Instant::now();
    let mut lifecycle = serving(now);
    lifecycle.restart();
    lifecycle.ready(2, now);
    assert_eq!(lifecycle.ended(2, &killed(), now), [Action::ReplaceIn(Duration::ZERO)]);
    assert_eq!(lifecycle.state(1), Some(GenerationState::Serving));
}

#[test]
fn a_gateway_that_cannot_start_ends_with_the_code_of_its_first_generation() {
    let mut lifecycle = Lifecycle::default();
    lifecycle.start();
    let usage = Ended { reason: "wrong usage".into(), code: Some(2) };
    assert_eq!(lifecycle.ended(1, &usage, Instant::now()), [Action::Exit(Exit::Failed(2))]);

    let mut lifecycle = Lifecycle::default();
    lifecycle.start();
    assert_eq!(lifecycle.ended(1, &killed(), Instant::now()), [Action::ReplaceIn(Duration::ZERO)]);
    assert_eq!(lifecycle.replace(), [Action::Start(2, Role::First)]);
}

#[test]
fn the_end_waits_for_connections_unless_it_is_asked_for_twice() {
    let now = Instant::now();
    let mut lifecycle = serving(now);
    lifecycle.restart();
    assert_eq!(lifecycle.stop(), [Action::Drain(1), Action::Kill(2)]);
    assert_eq!(lifecycle.ended(2, &killed(), now), []);
    assert_eq!(lifecycle.stop(), [Action::Kill(1)]);
    assert_eq!(lifecycle.ended(1, &killed(), now), [Action::Exit(Exit::Stopped)]);
}

#[derive(Clone, Debug)]
enum Event {
    Restart,
    NoRestart,
    Ready(u64),
    Accepts(u64),
    TimedOut(u64),
    Ended(u64, bool),
    Replace,
}

fn event() -> impl Strategy<Value = Event> {
    let number = 1u64..8;
    prop_oneof![
        Just(Event::Restart),
        Just(Event::NoRestart),
        number.clone().prop_map(Event::Ready),
        number.clone().prop_map(Event::Accepts),
        number.clone().prop_map(Event::TimedOut),
        (number, any::<bool>()).prop_map(|(number, killed)| Event::Ended(number, killed)),
        Just(Event::Replace),
    ]
}

proptest! {
    #[test]
    fn somebody_serves_or_is_about_to(events in prop::collection::vec(event(), 0..60)) {
        let now = Instant::now();
        let mut lifecycle = serving(now);
        let (mut due, mut accepting) = (false, vec![1u64]);
        for event in events {
            let actions = match event {
                Event::Restart => lifecycle.restart(),
                Event::NoRestart => lifecycle.no_restart(),
                Event::Ready(n) => lifecycle.ready(n, now),
                Event::Accepts(n) => {
                    if lifecycle.state(n) == Some(GenerationState::Serving) {
                        accepting.push(n);
                    }
                    lifecycle.accepts(n)
                }
                Event::TimedOut(n) => lifecycle.timed_out(n, "late".into()),
                Event::Ended(n, kill) => {
                    accepting.retain(|accepting| *accepting != n);
                    lifecycle.ended(n, &if kill { killed() } else { failed("x") }, now)
                }
                Event::Replace => {
                    due = false;
                    lifecycle.replace()
                }
            };
            for action in actions {
                match action {
                    Action::ReplaceIn(_) => due = true,
                    Action::Drain(n) => {
                        accepting.retain(|accepting| *accepting != n);
                        prop_assert!(!accepting.is_empty(), "{n} drains and nobody takes connections");
                    }
                    Action::Exit(_) => prop_assert!(false, "it was not asked to end"),
                    Action::Start(..) | Action::Serve(_) | Action::Kill(_) => {}
                }
            }
            let count = |role| lifecycle.generations.values().filter(|s| **s == State::Starting(role)).count();
            prop_assert!(count(Role::Candidate) <= 1 && count(Role::Replacement) <= 1);
            prop_assert!(lifecycle.is_serving() || count(Role::Replacement) == 1 || due);
        }
    }
}
