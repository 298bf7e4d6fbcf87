//! The data plane above TLS: requests in, responses out.
//!
//! Everything here lives on one worker thread and is `!Send` where that is cheaper: no lock and no channel lies
//! on the way of a request.

pub mod body;
pub mod deadlines;
pub mod upstream;
