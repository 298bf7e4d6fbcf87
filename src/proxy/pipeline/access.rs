//! Phase 5: whether a route is for the client that asks.

use std::net::IpAddr;

use http::StatusCode;

use super::refusal::Refusal;
use crate::snapshot::hosts::Route;

/// `client` is whoever the connection, or a peer that is believed, says it is.
pub fn admit(route: &Route, client: IpAddr) -> Result<(), Box<Refusal>> {
    match &route.policy.sources {
        Some(sources) if !sources.admit(client) => Err(denied()),
        _ => Ok(()),
    }
}

/// The answer to a client whose address is not wanted.
pub fn denied() -> Box<Refusal> {
    Refusal::new(StatusCode::FORBIDDEN, "source_denied", "this is not for clients of your network")
}
