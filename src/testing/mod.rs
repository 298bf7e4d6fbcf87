//! What tests of the library, of the binary and of other crates share (feature `testing`).

pub mod certificates;
