//! When to ask next. Pure: time and chance are handed in, a delay comes out.
//!
//! A good staple is renewed at half of its validity, so that a responder may be down for as long again before
//! anyone notices. After a failure the delay doubles. Both are jittered: a thousand certificates loaded in one
//! second must not come back in one second. Used by `sources::ocsp`.

use std::time::Duration;

use super::Staple;

/// No certificate is asked about more often than this, however short its responses live.
pub const MIN_DELAY: Duration = Duration::from_secs(1);
/// Delay after the first failure.
pub const FIRST_RETRY: Duration = Duration::from_secs(1);
/// Failures in a row do not push a retry out further than this.
pub const MAX_RETRY: Duration = Duration::from_secs(3600);
/// However long a response lives, a revocation is noticed within this time.
pub const MAX_REFRESH: Duration = Duration::from_secs(7 * 24 * 3600);
/// Share of the validity by which refreshes of equal responses are spread.
const REFRESH_SPREAD: f64 = 0.1;

/// How long to wait after `staple` was received at `now` (time since 1970). `chance` is uniform in `0.0..1.0`.
///
/// A response that is already past its half-life, as caches hand out, is renewed at half of what is left.
pub fn refresh_delay(staple: &Staple, now: Duration, chance: f64) -> Duration {
    let share = 0.5 + (chance.clamp(0.0, 1.0) - 0.5) * REFRESH_SPREAD;
    let issued = Duration::from_secs(staple.this_update);
    let ends = Duration::from_secs(staple.next_update);
    let half_life = issued + ends.saturating_sub(issued).mul_f64(share);
    let delay = match half_life.checked_sub(now) {
        Some(delay) if !delay.is_zero() => delay,
        _ => ends.saturating_sub(now).mul_f64(share),
    };
    delay.clamp(MIN_DELAY, MAX_REFRESH)
}

/// How long to wait after the `failures`-th failure in a row: doubling from [`FIRST_RETRY`] to [`MAX_RETRY`],
/// then cut by up to a half. `chance` is uniform in `0.0..1.0`.
pub fn retry_delay(failures: u32, chance: f64) -> Duration {
    let doublings = failures.saturating_sub(1).min(20);
    let ceiling = (FIRST_RETRY * 2_u32.pow(doublings)).min(MAX_RETRY);
    ceiling.mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn staple(this_update: u64, next_update: u64) -> Staple {
        Staple { der: [].into(), this_update, next_update, produced_at: this_update }
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_staple_is_renewed_around_half_of_its_validity() {
        let staple = staple(1000, 2000);
        assert_eq!(refresh_delay(&staple, secs(1000), 0.5), secs(500));
        assert_eq!(refresh_delay(&staple, secs(1100), 0.0), secs(350));
        assert_eq!(refresh_delay(&staple, secs(1100), 1.0), secs(450));
    }

    #[test]
    fn a_staple_past_its_half_life_is_renewed_at_half_of_the_rest() {
        assert_eq!(refresh_delay(&staple(1000, 2000), secs(1900), 0.5), secs(50));
        assert_eq!(refresh_delay(&staple(1000, 2000), secs(1999), 0.5), MIN_DELAY);
    }

    #[test]
    fn retries_double_up_to_an_hour() {
        let ceilings: Vec<u64> = (1..=14).map(|n| retry_delay(n, 1.0).as_secs()).collect();
        assert_eq!(ceilings, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3600, 3600]);
        assert_eq!(retry_delay(3, 0.0), secs(2));
    }

    proptest! {
        #[test]
        fn a_refresh_comes_before_the_staple_ends(
            this in 0..u64::MAX / 4, validity in 4..=100_000_000_u64, age in 0.0..1.0_f64, chance in 0.0..1.0_f64,
        ) {
            let now = secs(this) + secs(validity).mul_f64(age);
            let delay = refresh_delay(&staple(this, this + validity), now, chance);
            prop_assert!(delay >= MIN_DELAY && delay <= MAX_REFRESH);
            prop_assert!(delay == MIN_DELAY || now + delay < secs(this + validity));
        }

        #[test]
        fn nothing_panics(this: u64, next: u64, now: u64, chance: f64, failures: u32) {
            refresh_delay(&staple(this, next), secs(now), chance);
            prop_assert!(retry_delay(failures, chance) <= MAX_RETRY);
        }
    }
}
