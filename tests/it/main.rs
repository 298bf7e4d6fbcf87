//! Tests of the binary and of the library's public face, a module for each area.

mod admin;
mod ca;
mod diff;
mod policy;
mod restart;
