//! Tests of the real binary, one module per area.

mod ca;
