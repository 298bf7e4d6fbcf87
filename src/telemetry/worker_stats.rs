//! What one worker counts beside its routes. Each worker has its own, so that no two write to one cache line;
//! a scrape adds them up.

use std::sync::atomic::{AtomicU64, Ordering};

use super::policy_stats::PolicyStats;
use super::route_stats::RouteStats;

/// A number that goes up.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// One more, until the guard is dropped.
    pub fn enter(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub fn leave(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters of one worker.
#[derive(Debug, Default)]
pub struct WorkerStats {
    pub accepted: Counter,
    /// Connections from clients that are open.
    pub connections: Gauge,
    pub requests: Counter,
    /// Requests whose response is not over.
    pub requests_in_flight: Gauge,
    /// Responses that ended before they were whole, whoever broke them off.
    pub responses_broken: Counter,
    /// Handshakes under way.
    pub handshakes: Gauge,
    pub handshakes_full: Counter,
    pub handshakes_resumed: Counter,
    /// Full handshakes for which a fresh staple was at hand, to be sent to clients that ask for one.
    pub handshakes_stapled: Counter,
    /// Full handshakes without a staple though the certificate names a responder.
    pub handshakes_unstapled: Counter,
    /// Full handshakes without a staple though the certificate must be stapled (RFC 7633).
    pub must_staple_unstapled: Counter,
    pub handshakes_failed: HandshakeFailures,
    /// Handshakes that asked for a name which no certificate is bound to, and got the default certificate.
    pub sni_no_match: Counter,
    /// Full handshakes with the default certificate for a host that is served: its own certificate is missing.
    pub default_for_host: Counter,
    /// Full handshakes with the default certificate for no name or for one that nobody serves.
    pub default_for_others: Counter,
    /// Requests that no route was found for.
    pub unrouted: RouteStats,
    /// Connections and streams that ended in a panic; the worker goes on.
    pub panics: Counter,
    /// Connections without a usable PROXY protocol header on a port that wants one.
    pub proxy_headers_refused: Counter,
    pub upstream_idle: Gauge,
    pub policies: PolicyStats,
    pub tunnels: Tunnels,
}

/// Tunnels of the HBONE port: those that are open, and what became of those that were asked for.
#[derive(Debug, Default)]
pub struct Tunnels {
    pub open: Gauge,
    pub opened: Counter,
    /// Policy refused them (401).
    pub denied: Counter,
    /// They asked for something that is no workload here (400).
    pub refused: Counter,
    /// The workload could not be reached (503).
    pub unavailable: Counter,
}

/// Handshakes that came to nothing, by reason.
#[derive(Debug, Default)]
pub struct HandshakeFailures([Counter; Self::REASONS.len()]);

impl HandshakeFailures {
    /// The reasons there are; anything else counts as the last.
    pub const REASONS: [&'static str; 7] =
        ["closed", "not_tls", "timeout", "unrecognized_name", "no_trust", "crowded_out", "failed"];

    pub fn count(&self, reason: &str) {
        let index =
            Self::REASONS.iter().position(|known| *known == reason).unwrap_or(Self::REASONS.len() - 1);
        if let Some(counter) = self.0.get(index) {
            counter.add_one();
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Self::REASONS.into_iter().zip(self.0.iter().map(Counter::get))
    }
}
