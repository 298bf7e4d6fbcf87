//! What the gateway tells of its work: metrics, the access log, its own log. Nothing here holds a request up:
//! counters are atomics, log lines are dropped and counted rather than waited for.

pub mod access_log;
pub mod causes;
pub mod histogram;
pub mod logging;
pub mod policy_stats;
pub mod route_stats;
pub mod worker_stats;
