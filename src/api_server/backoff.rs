//! How long to wait before the API server is asked again: longer each time, never long, and spread out so that
//! replicas don't come back in step.

use std::time::Duration;

use super::ApiError;

/// The first pause, and the longest. Low on purpose: after an outage everything is to be right within 5 s.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// Rights and kinds are given by people; asking more often than this only fills the server's log.
const REFUSED: Duration = Duration::from_secs(5);
/// A server that says when to come back is believed up to this.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The pauses between attempts that fail one after the other.
#[derive(Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// How long to wait after `error`: between half and the whole of a pause that doubles.
    pub fn next(&mut self, error: &ApiError) -> Duration {
        let pause = match error {
            // There is nothing to wait for: the next step is a new list. Only a server that says so again and
            // again is not to be asked without a pause.
            ApiError::Expired | ApiError::Rewound if self.failures == 0 => Duration::ZERO,
            ApiError::Reselected => return Duration::ZERO,
            ApiError::Absent | ApiError::Refused { code: 400 | 401 | 403 | 404, .. } => REFUSED,
            ApiError::Refused { retry_after: Some(wait), .. } => (*wait).clamp(PAUSE.0, RETRY_AFTER),
            _ => (PAUSE.0 * 2u32.saturating_pow(self.failures.min(10))).min(PAUSE.1),
        };
        self.failures = self.failures.saturating_add(1);
        pause.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16, retry_after: Option<Duration>) -> ApiError {
        ApiError::Refused { code, message: String::new(), retry_after }
    }

    #[test]
    fn pauses_grow_to_a_low_cap() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..40).map(|_| backoff.next(&ApiError::Ended)).collect();
        assert!(pauses[0] >= PAUSE.0 / 2 && pauses[0] <= PAUSE.0);
        assert!(pauses[3] >= PAUSE.0 * 4 && pauses[3] <= PAUSE.0 * 8);
        assert!(pauses.iter().skip(5).all(|pause| *pause >= PAUSE.1 / 2 && *pause <= PAUSE.1));
        backoff.reset();
        assert!(backoff.next(&ApiError::Ended) <= PAUSE.0);
    }

    #[test]
    fn an_expired_version_is_listed_anew_at_once_but_not_in_a_loop() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.next(&ApiError::Expired), Duration::ZERO);
        assert!(backoff.next(&ApiError::Expired) > Duration::ZERO);
    }

    #[test]
    fn the_server_may_say_when_within_limits() {
        let next = |error| Backoff::default().next(&error);
        assert!(next(refused(429, Some(Duration::from_secs(3)))) >= Duration::from_millis(1500));
        assert!(next(refused(429, Some(Duration::from_secs(3600)))) <= RETRY_AFTER);
        assert!(next(refused(429, Some(Duration::ZERO))) > Duration::ZERO);
        assert!(next(refused(403, None)) > PAUSE.1);
    }
}
