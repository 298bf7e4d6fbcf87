//! Tests of the binary and of the library's public face, a module for each area.

mod admin;
mod architecture;
mod ca;
mod certificates;
mod check;
mod demo;
mod diff;
mod policy;
mod rotation;
mod site;
mod tls;
