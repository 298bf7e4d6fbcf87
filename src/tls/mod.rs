//! The only place that names rustls: keys, certificate choice, tickets, server and client configurations.

pub mod ca_client;
pub mod ca_server;
pub mod keys;
pub mod policy;
pub mod spiffe;
