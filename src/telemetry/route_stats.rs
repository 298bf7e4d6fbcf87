//! What is counted for each route. Lives in the route itself: a route that goes takes its series with it, one
//! that stays keeps them, and the request path needs no look-up.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{Method, StatusCode};

use super::histogram::{DURATION_BOUNDS, Histogram, SIZE_BOUNDS};

/// Combinations of method and status that one route counts apart; what comes after them counts as the class
/// of its status and method `OTHER`, which has slots of its own.
const SLOTS: usize = 24;
const METHODS: [Method; 7] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];

/// Counters of one route, updated by all workers without a lock; no memory until the first request.
#[derive(Debug, Default)]
pub struct RouteStats(OnceLock<Box<Counters>>);

/// The counters of a route that has had requests.
#[derive(Debug)]
pub struct Counters {
    requests: [Slot; SLOTS],
    other: [AtomicU64; 5],
    pub request_duration: Histogram,
    pub response_duration: Histogram,
    pub request_size: Histogram,
    pub response_size: Histogram,
}

#[derive(Debug, Default)]
struct Slot {
    /// Index of the method and status, plus one; 0 while the slot is free.
    key: AtomicU64,
    count: AtomicU64,
}

/// One request as it is counted.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    pub method: &'a Method,
    pub status: StatusCode,
    /// From the head of the request to the end of the response.
    pub duration: Duration,
    /// From the request sent to the head of the backend's response, where one was asked.
    pub upstream: Option<Duration>,
    /// Bytes of body.
    pub received: u64,
    pub sent: u64,
}

impl RouteStats {
    pub fn observe(&self, request: &Observation<'_>) {
        let counters = self.0.get_or_init(Box::default);
        counters.count(request.method, request.status);
        counters.request_duration.observe(micros(request.duration));
        if let Some(upstream) = request.upstream {
            counters.response_duration.observe(micros(upstream));
        }
        counters.request_size.observe(request.received);
        counters.response_size.observe(request.sent);
    }

    /// `None` while there has been no request.
    pub fn counters(&self) -> Option<&Counters> {
        self.0.get().map(|counters| &**counters)
    }
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            requests: Default::default(),
            other: Default::default(),
            request_duration: Histogram::new(&DURATION_BOUNDS),
            response_duration: Histogram::new(&DURATION_BOUNDS),
            request_size: Histogram::new(&SIZE_BOUNDS),
            response_size: Histogram::new(&SIZE_BOUNDS),
        }
    }
}

impl Counters {
    /// Requests by method (`OTHER` for an unusual one) and status; the status ends in `xx` where only its
    /// class is known.
    pub fn requests(&self) -> impl Iterator<Item = (&'static str, String, u64)> {
        let slots = self.requests.iter().filter_map(|slot| {
            let key = slot.key.load(Ordering::Relaxed).checked_sub(1)?;
            let method =
                usize::try_from(key >> 16).ok().and_then(|index| METHODS.get(index)).map(method_name);
            let count = slot.count.load(Ordering::Relaxed);
            Some((method.unwrap_or("OTHER"), (key & 0xffff).to_string(), count))
        });
        let classes = self.other.iter().zip(1..).filter_map(|(count, class)| {
            let count = count.load(Ordering::Relaxed);
            (count > 0).then(|| ("OTHER", format!("{class}xx"), count))
        });
        slots.chain(classes)
    }

    fn count(&self, method: &Method, status: StatusCode) {
        let method = METHODS.iter().position(|known| known == method).unwrap_or(METHODS.len());
        let key = ((method as u64) << 16 | u64::from(status.as_u16())) + 1;
        for slot in &self.requests {
            let seen = match slot.key.load(Ordering::Relaxed) {
                0 => match slot.key.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => key,
                    Err(taken) => taken,
                },
                taken => taken,
            };
            if seen == key {
                slot.count.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
        let class = usize::from(status.as_u16() / 100).saturating_sub(1);
        if let Some(count) = self.other.get(class) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "OTHER",
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observe(stats: &RouteStats, method: &Method, status: u16) {
        let status = StatusCode::from_u16(status).unwrap();
        let duration = Duration::from_millis(7);
        stats.observe(&Observation { method, status, duration, upstream: None, received: 0, sent: 1024 });
    }

    #[test]
    fn requests_are_counted_by_method_and_status() {
        let stats = RouteStats::default();
        assert!(stats.counters().is_none());
        observe(&stats, &Method::GET, 200);
        observe(&stats, &Method::GET, 200);
        observe(&stats, &Method::from_bytes(b"PROPFIND").unwrap(), 207);
        let requests: Vec<_> = stats.counters().unwrap().requests().collect();
        assert_eq!(requests, [("GET", "200".into(), 2), ("OTHER", "207".into(), 1)]);
    }

    #[test]
    fn no_client_can_make_a_route_count_without_bound() {
        let stats = RouteStats::default();
        (200..300).for_each(|status| observe(&stats, &Method::GET, status));
        let requests: Vec<_> = stats.counters().unwrap().requests().collect();
        assert_eq!(requests.len(), SLOTS + 1);
        assert_eq!(requests.iter().map(|(_, _, count)| count).sum::<u64>(), 100);
        assert_eq!(requests.last().unwrap(), &("OTHER", "2xx".into(), 100 - SLOTS as u64));
    }
}
