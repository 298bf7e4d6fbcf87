use std::future::{pending, poll_fn};

use super::*;

fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_deadline_fires_at_its_time_and_not_before() {
    let deadlines = Deadlines::new();
    let mut future = Box::pin(deadlines.timeout(Duration::from_millis(250), pending::<()>()));
    for _ in 0..3 {
        assert_eq!(poll_once(future.as_mut()), Poll::Pending);
        deadlines.advance(1);
    }
    assert_eq!(poll_once(future.as_mut()), Poll::Pending, "250 ms may not have passed at the third tick");
    deadlines.advance(1);
    assert_eq!(poll_once(future.as_mut()), Poll::Ready(Err(Elapsed)));
}

#[test]
fn a_finished_future_wins_over_its_deadline() {
    let deadlines = Deadlines::new();
    let mut future = Box::pin(deadlines.timeout(Duration::ZERO, async { 7 }));
    deadlines.advance(10);
    assert_eq!(poll_once(future.as_mut()), Poll::Ready(Ok(7)));
}

#[test]
fn a_moved_deadline_fires_at_the_new_time() {
    let deadlines = Deadlines::new();
    let mut deadline = deadlines.deadline(TICK);
    let mut cx = Context::from_waker(Waker::noop());
    assert!(deadline.poll_passed(&mut cx).is_pending());
    deadlines.advance(1);
    deadline.reset(TICK * 3);
    assert!(deadline.poll_passed(&mut cx).is_pending());
    deadlines.advance(3);
    assert!(deadline.poll_passed(&mut cx).is_pending());
    deadlines.advance(1);
    assert!(deadline.poll_passed(&mut cx).is_ready());
}

#[test]
fn dropping_leaves_nothing_behind() {
    let deadlines = Deadlines::new();
    let mut cx = Context::from_waker(Waker::noop());
    let mut waiting: Vec<_> = (1..=100).map(|n| deadlines.deadline(TICK * n)).collect();
    waiting.iter_mut().for_each(|deadline| assert!(deadline.poll_passed(&mut cx).is_pending()));
    assert_eq!(deadlines.0.entries.borrow().len(), 100);
    drop(waiting);
    assert_eq!(deadlines.0.entries.borrow().len(), 0);
}

#[test]
fn endless_durations_do_not_overflow() {
    let deadlines = Deadlines::new();
    deadlines.advance(5);
    let mut deadline = deadlines.deadline(Duration::MAX);
    assert!(deadline.poll_passed(&mut Context::from_waker(Waker::noop())).is_pending());
}

#[tokio::test(flavor = "local")]
async fn the_interval_wakes_who_waits() {
    let deadlines = Deadlines::new();
    let driver = deadlines.clone();
    let driver = tokio::task::spawn_local(async move { driver.run(|| None).await });
    assert_eq!(deadlines.timeout(TICK, pending::<()>()).await, Err(Elapsed));
    driver.abort();
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn an_idle_worker_is_not_woken_and_its_clock_is_right_all_the_same() {
    let deadlines = Deadlines::new();
    let (busy, ticks) = (Rc::new(Cell::new(true)), Rc::new(Cell::new(0)));
    let driver = deadlines.clone();
    let (asked, counted) = (busy.clone(), ticks.clone());
    tokio::task::spawn_local(async move {
        let at_tick = || {
            counted.set(counted.get() + 1);
            asked.get().then_some(TICK)
        };
        driver.run(at_tick).await
    });
    tokio::time::sleep(TICK * 50).await;
    assert!(ticks.get() >= 49, "{}", ticks.get());

    busy.set(false);
    tokio::time::sleep(TICK * 2).await;
    ticks.set(0);
    let before = deadlines.now();
    tokio::time::sleep(TICK * 1000).await;
    assert_eq!(ticks.get(), 0, "nobody needs the time");
    assert_eq!(deadlines.now().since(before), TICK * 1000);

    // A deadline starts the clock, is neither early nor late, and lets it stop again, also until it is due.
    let begun = Instant::now();
    assert_eq!(deadlines.timeout(TICK * 500, pending::<()>()).await, Err(Elapsed));
    assert!((TICK * 500..=TICK * 502).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    tokio::time::sleep(TICK * 1000).await;
    assert!((1..5).contains(&ticks.get()), "{}", ticks.get());

    ticks.set(0);
    deadlines.wake();
    tokio::time::sleep(TICK * 10).await;
    assert_eq!(ticks.get(), 1, "once, for what there may be to do");
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_nearer_deadline_does_not_wait_for_the_one_that_the_clock_sleeps_until() {
    let deadlines = Deadlines::new();
    let driver = deadlines.clone();
    tokio::task::spawn_local(async move { driver.run(|| Some(TICK * 2000)).await });
    let far = deadlines.clone();
    let far = tokio::task::spawn_local(async move {
        let begun = Instant::now();
        let _ = far.timeout(TICK * 900, pending::<()>()).await;
        begun.elapsed()
    });
    // At odd moments, for the parts of ticks that remain, and so often that they would add up.
    for _ in 0..100 {
        tokio::time::sleep(TICK * 7 + TICK / 3).await;
        let begun = Instant::now();
        let mut near = deadlines.deadline(TICK * 900);
        assert!(poll_fn(|cx| Poll::Ready(near.poll_passed(cx))).await.is_pending());
        near.reset(TICK / 2);
        poll_fn(|cx| near.poll_passed(cx)).await;
        assert!((TICK / 2..=TICK * 3).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    }
    let far = far.await.unwrap();
    assert!((TICK * 900..=TICK * 903).contains(&far), "{far:?}");
}
