//! The time of day, counted from the Unix epoch. A clock that is set before it counts as at it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time since the Unix epoch.
pub fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Seconds since the Unix epoch, as staples and the ends of client certificates have them. No system call on Linux.
pub fn seconds() -> u64 {
    since_epoch().as_secs()
}

/// Seconds since the Unix epoch, as certificates and findings have them.
pub fn now() -> i64 {
    i64::try_from(seconds()).unwrap_or(i64::MAX)
}
