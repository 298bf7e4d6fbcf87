//! The subcommands, one file each.

pub mod check;
pub mod demo;
pub mod diff;
pub mod policy;
pub mod serve;
