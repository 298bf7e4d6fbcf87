//! The subcommands, one file each.

pub mod admin;
pub mod ca;
pub mod certs;
pub mod check;
pub mod demo;
pub mod diff;
pub mod generation;
pub mod policy;
pub mod restart;
pub mod serve;
pub mod status;
pub mod table;
pub mod tickets;
