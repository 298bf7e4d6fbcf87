//! Ten restarts in a row while clients open as many TLS connections as the machine gives: how many a second, and what
//! was lost, which has to be nothing. `RESTART_CLIENTS` says how many threads of clients there are, 2 by default.
//!
//! The gateway is the real binary on the loopback address. It stops by itself.

#[allow(dead_code)]
#[path = "../tests/it/restart/backend.rs"]
mod backend;
#[allow(dead_code)]
#[path = "../tests/it/restart/gateway.rs"]
mod gateway;
#[allow(dead_code)]
#[path = "../tests/it/restart/load.rs"]
mod load;

use std::sync::mpsc;
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use gateway::Plan;
use load::{Load, during};

/// What one thread of clients saw: handshakes, requests, losses.
type Seen = (u64, u64, usize);

fn main() {
    let clients = std::env::var("RESTART_CLIENTS").ok().and_then(|text| text.parse().ok()).unwrap_or(2);
    let mut gateway = Plan::new(backend::start()).start();
    let mut serving = gateway.serving();
    let (ends, threads): (Vec<mpsc::Sender<()>>, Vec<JoinHandle<Seen>>) = (0..clients)
        .map(|_| {
            let (address, root) = (gateway.https, gateway.root.clone());
            let (end, ended) = mpsc::channel();
            let load = Load { new_connections: 16, keep_alive: 2, http2: 1, downloads: 2, websockets: 2 };
            let clients = move || {
                let (tally, _) = during(address, &root, load, move || ended.recv());
                tally.losses.borrow().iter().take(10).for_each(|loss| eprintln!("lost: {loss}"));
                (tally.handshakes.get(), tally.requests.get(), tally.losses.borrow().len())
            };
            (end, spawn(clients))
        })
        .unzip();
    let begun = Instant::now();
    sleep(Duration::from_secs(1));
    for restart in 0..10 {
        gateway.set("workers", if restart % 2 == 0 { "3" } else { "2" });
        serving = gateway.until_after(serving);
        sleep(Duration::from_millis(500));
    }
    drop(ends);
    let seen: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("clients")).collect();
    let seconds = begun.elapsed().as_secs_f64();
    let handshakes: u64 = seen.iter().map(|seen| seen.0).sum();
    let requests: u64 = seen.iter().map(|seen| seen.1).sum();
    let losses: usize = seen.iter().map(|seen| seen.2).sum();
    println!(
        "10 restarts in {seconds:.1} s: {handshakes} handshakes ({:.0} a second), {requests} requests, {losses} lost",
        handshakes as f64 / seconds
    );
    assert_eq!((losses, gateway.stop()), (0, Some(0)));
}
