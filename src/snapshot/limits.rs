//! How much one client may ask of an Ingress.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use super::access::Networks;

/// The limits of the routes of one Ingress, for each client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    pub per_second: Option<Rate>,
    pub per_minute: Option<Rate>,
    /// Requests that are answered at once.
    pub connections: Option<NonZeroU32>,
    /// Clients that may ask for whatever they want.
    pub exempt: Networks,
}

/// A number of requests in a time, and how many may come ahead of theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Nanoseconds that one request takes of the time of its client.
    pub interval: u64,
    /// Nanoseconds that may be taken in advance.
    pub burst: u64,
}

/// What annotations say, 0 where there is no limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stated {
    pub per_second: u32,
    pub per_minute: u32,
    pub connections: u32,
    pub burst_multiplier: u32,
    pub exempt: Vec<IpNet>,
}

impl Default for Stated {
    fn default() -> Self {
        Self { per_second: 0, per_minute: 0, connections: 0, burst_multiplier: 5, exempt: Vec::new() }
    }
}

impl Limits {
    /// `None` where nothing is limited.
    pub fn new(stated: &Stated) -> Option<Arc<Self>> {
        let rate = |number, time| Rate::new(number, time, stated.burst_multiplier);
        let limits = Self {
            per_second: rate(stated.per_second, Duration::from_secs(1)),
            per_minute: rate(stated.per_minute, Duration::from_secs(60)),
            connections: NonZeroU32::new(stated.connections),
            exempt: Networks::new(&stated.exempt),
        };
        let is_limited =
            limits.per_second.is_some() || limits.per_minute.is_some() || limits.connections.is_some();
        is_limited.then(|| Arc::new(limits))
    }
}

impl Rate {
    /// `None` where `number` is 0.
    fn new(number: u32, time: Duration, multiplier: u32) -> Option<Self> {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let interval = time.checked_div(number.into())?;
        // As many as come in that many times.
        Some(Self { interval, burst: time.saturating_mul(multiplier.into()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_stated_is_no_limit() {
        assert_eq!(Limits::new(&Stated::default()), None);
        assert_eq!(Limits::new(&Stated { exempt: vec!["::/0".parse().unwrap()], ..Stated::default() }), None);
        let limits = Limits::new(&Stated { per_minute: 30, ..Stated::default() }).unwrap();
        let rate = Rate { interval: 2_000_000_000, burst: 300_000_000_000 };
        assert_eq!((limits.per_second, limits.per_minute, limits.connections), (None, Some(rate), None));
        let extreme = Stated { per_second: u32::MAX, burst_multiplier: u32::MAX, ..Stated::default() };
        assert!(Limits::new(&extreme).is_some());
    }
}
