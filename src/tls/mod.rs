//! The only place that names rustls: keys, certificate choice, tickets, server and client configurations.

pub mod keys;
pub mod policy;
pub mod spiffe;
