//! When a restart that changed settings need is tried again after it has failed. What made it fail may pass: a port that
//! somebody else still has, an API server that is restarting itself.

use std::time::Duration;

use tokio::time::Instant;

/// The pause after the first failure; it doubles with each further one…
const FIRST: Duration = Duration::from_secs(10);
/// …and does not get longer than this.
const LONGEST: Duration = Duration::from_secs(300);

/// A restart that is wanted, if any, and when it is tried again.
#[derive(Debug, Default)]
pub struct Retry {
    wanted: bool,
    failures: u32,
    at: Option<Instant>,
}

impl Retry {
    /// A restart is being tried, now and until it succeeds.
    pub fn wanted() -> Self {
        Self { wanted: true, ..Self::default() }
    }

    /// A new generation came to nothing.
    pub fn failed(&mut self, now: Instant) {
        if self.wanted {
            let pause = FIRST.saturating_mul(1 << self.failures.min(16)).min(LONGEST);
            self.failures = self.failures.saturating_add(1);
            self.at = Some(now + pause);
        }
    }

    /// When the next try is due.
    pub fn at(&self) -> Option<Instant> {
        self.at
    }

    /// Whether it is due; the next one is not planned before this one has failed.
    pub fn take_due(&mut self, now: Instant) -> bool {
        self.at.take_if(|at| *at <= now).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_is_tried_again_ever_more_slowly() {
        let mut retry = Retry::wanted();
        let now = Instant::now();
        assert_eq!(retry.at(), None);
        let mut pauses = Vec::new();
        for _ in 0..8 {
            retry.failed(now);
            let at = retry.at().unwrap();
            pauses.push(at.duration_since(now).as_secs());
            assert!(!retry.take_due(at - Duration::from_millis(1)));
            assert!(retry.take_due(at));
            assert!(!retry.take_due(at + LONGEST), "until it has failed again");
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 300, 300, 300]);
    }

    #[test]
    fn what_nobody_waits_for_is_not_tried_again() {
        let mut retry = Retry::default();
        retry.failed(Instant::now());
        assert_eq!(retry.at(), None);
    }
}
