//! Counters of one route.

/// Counters of one route, updated by all workers without a lock.
#[derive(Debug, Default)]
pub struct RouteStats {}
