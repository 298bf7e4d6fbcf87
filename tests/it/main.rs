//! Integration tests: one binary, a module per area.

mod admin;
mod certificates;
mod check;
mod demo;
mod diff;
mod rotation;
mod site;
mod tls;
