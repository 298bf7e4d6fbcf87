//! A histogram that all workers update without a lock; read when it is scraped.

use std::sync::atomic::{AtomicU64, Ordering};

/// Upper bounds of request and response durations, in microseconds: Prometheus' default buckets.
pub const DURATION_BOUNDS: [u64; 11] =
    [5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000];
/// Upper bounds of the time that a change of the configuration takes, in microseconds.
pub const APPLY_BOUNDS: [u64; 11] =
    [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 100_000, 500_000, 1_000_000];
/// Upper bounds of request and response sizes, in bytes.
pub const SIZE_BOUNDS: [u64; 11] = [
    100,
    1_000,
    10_000,
    100_000,
    1_000_000,
    5_000_000,
    10_000_000,
    50_000_000,
    100_000_000,
    500_000_000,
    1_000_000_000,
];

/// Counts of values up to each of eleven bounds, and beyond.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64; 11],
    counts: [AtomicU64; 12],
    sum: AtomicU64,
}

impl Histogram {
    pub const fn new(bounds: &'static [u64; 11]) -> Self {
        Self { bounds, counts: [const { AtomicU64::new(0) }; 12], sum: AtomicU64::new(0) }
    }

    pub fn observe(&self, value: u64) {
        let bucket = self.bounds.iter().position(|bound| value <= *bound).unwrap_or(self.bounds.len());
        if let Some(count) = self.counts.get(bucket) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Upper bound and count of values up to it; the last has no bound and counts all.
    pub fn cumulative(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        let bounds = self.bounds.iter().copied().map(Some).chain([None]);
        let counts = self.counts.iter().scan(0, |total, count| {
            *total += count.load(Ordering::Relaxed);
            Some(*total)
        });
        bounds.zip(counts)
    }

    pub fn sum(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_up_to_their_bound() {
        let histogram = Histogram::new(&DURATION_BOUNDS);
        [5_000, 5_001, 99_000_000].into_iter().for_each(|value| histogram.observe(value));
        let counts: Vec<_> = histogram.cumulative().collect();
        assert_eq!(counts[0], (Some(5_000), 1));
        assert_eq!(counts[1], (Some(10_000), 2));
        assert_eq!(counts[10], (Some(10_000_000), 2));
        assert_eq!(counts[11], (None, 3));
        assert_eq!(histogram.sum(), 99_010_001);
    }
}
