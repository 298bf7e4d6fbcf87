//! The workload CA: a root, certificates for accounts, and a service that signs requests.
//!
//! ```text
//! store ──material──► roots / plugged ──► Authority ──► accounts (Secrets) ── distribution (ConfigMaps)
//!                                            └────────► service (gRPC) ◄── authn
//! ```
//!
//! An [`authority::Authority`] is immutable; rotation and reload publish a new one. Every clock is passed in.
//! Private keys never appear in logs, errors or `Debug`.

pub mod accounts;
pub mod authn;
pub mod authority;
pub mod bundle;
pub mod certificate;
pub mod client;
pub mod controller;
pub mod csr;
pub mod distribution;
#[cfg(test)]
mod fixtures;
pub mod hosts;
pub mod identity;
pub mod instance;
pub mod key;
pub mod listener;
pub mod metrics;
pub mod own_certificate;
pub mod pem;
mod per_source;
pub mod plugged;
mod profile;
pub mod proto;
pub mod renewal;
pub mod roots;
pub mod server;
pub mod service;
pub mod store;
