//! What tests of the library, of the binary and of other crates share (feature `testing`): certificates, backends
//! that remember what they were asked, and clients that send exactly the bytes a test wants.
//!
//! Everything blocks and panics where it cannot go on: in a test that is the right answer.

pub mod backend;
pub mod certificates;
pub mod client;
pub mod frames;
pub mod fuzz;
pub mod grpc;
pub mod hbone;
pub mod http2;
pub mod message;
pub mod openssl;
pub mod ports;
pub mod tcp;
pub mod wire;

use std::thread;
use std::time::{Duration, Instant};

/// How long anything in a test may take before it counts as never.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until `condition` holds; says `what` was awaited where it never does.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "never came true: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// As [`eventually`], for tests whose connections need this thread meanwhile.
pub async fn eventually_async(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "never came true: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
