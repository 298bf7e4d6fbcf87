//! Sockets: listening, accepting, the PROXY protocol, draining, and the deadlines of all that. The only place
//! with `unsafe`.

pub mod deadlines;
pub mod drain;
pub mod handshakes;
pub mod inherit;
pub mod limited;
pub mod listen;
pub mod proxy_protocol;
pub mod relay;
