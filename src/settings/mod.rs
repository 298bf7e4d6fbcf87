//! Settings: one schema for flags, environment, file and ConfigMap.
//!
//! `schema` is the table from which everything else follows: the struct, the defaults, the names, the classes
//! (dynamic or restart-requiring), the diff and `docs/settings.md`. Nothing outside this module parses a
//! setting, and `Settings` is immutable once loaded: the rest of the gateway only reads it.

mod check;
pub mod choices;
#[cfg(test)]
mod docs;
pub mod field;
pub mod flags;
mod ingress_nginx;
mod listeners;
pub mod load;
pub mod places;
pub mod reload;
pub mod schema;
pub mod value;

pub use field::{Change, ChangeCounts, Class};
pub use schema::Settings;
