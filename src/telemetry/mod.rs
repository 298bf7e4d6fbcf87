//! Metrics and the access log.

pub mod route_stats;
