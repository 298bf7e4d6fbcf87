use super::*;

/// For how long a connection may go on after `script`.
async fn goes_on_after(script: impl FnOnce(&watch::Sender<Calls>)) -> Duration {
    let calls = watch::Sender::new(Calls::default());
    let mut seen = calls.subscribe();
    let start = Instant::now();
    let watched = tokio::spawn(async move { falls_silent(&mut seen).await });
    tokio::task::yield_now().await;
    script(&calls);
    watched.await.unwrap();
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_asks_nothing_ends_soon_and_a_silent_one_later() {
    assert_eq!(goes_on_after(|_| {}).await, FIRST_CALL_TIMEOUT);
    assert_eq!(goes_on_after(|calls| drop(Call::begin(calls.clone()))).await, IDLE_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_under_way_is_waited_for() {
    let long = 2 * IDLE_TIMEOUT;
    let lasted = goes_on_after(|calls| {
        let call = Call::begin(calls.clone());
        tokio::spawn(async move {
            tokio::time::sleep(long).await;
            drop(call);
        });
    });
    assert_eq!(lasted.await, long + IDLE_TIMEOUT);
}
