//! Integration tests: one binary, a module per area.

mod admin;
mod diff;
