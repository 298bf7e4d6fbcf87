//! From objects to what the data plane needs: pure functions, without I/O, clock or log.

pub mod policies;
