//! Counters of the OCSP source. Per-certificate values (age, time to nextUpdate) are in its events.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// Handles to the metrics, cheap to clone.
#[derive(Clone, Debug)]
pub struct OcspMetrics {
    fetches: Family<ResultLabel, Counter>,
    duration: Histogram,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

impl OcspMetrics {
    /// Adds the metrics to `registry`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "ocsp_fetches",
            "Attempts to get an OCSP response, by result",
            self.fetches.clone(),
        );
        registry.register(
            "ocsp_fetch_duration_seconds",
            "Time of an attempt from name resolution to the last byte",
            self.duration.clone(),
        );
    }

    pub(super) fn count(&self, result: &'static str, elapsed: Duration) {
        self.fetches.get_or_create(&ResultLabel { result }).inc();
        self.duration.observe(elapsed.as_secs_f64());
    }
}

impl Default for OcspMetrics {
    fn default() -> Self {
        Self { fetches: Family::default(), duration: Histogram::new(exponential_buckets(0.01, 2.0, 10)) }
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn attempts_are_counted_by_result() {
        let (metrics, mut registry) = (OcspMetrics::default(), Registry::default());
        metrics.register(&mut registry);
        metrics.count("good", Duration::from_millis(30));
        metrics.count("good", Duration::from_millis(30));
        metrics.count("timeout", Duration::from_secs(5));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        assert!(text.contains("ocsp_fetches_total{result=\"good\"} 2\n"), "{text}");
        assert!(text.contains("ocsp_fetches_total{result=\"timeout\"} 1\n"), "{text}");
        assert!(text.contains("ocsp_fetch_duration_seconds_count 3\n"), "{text}");
    }
}
