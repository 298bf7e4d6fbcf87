//! Phase 5: whether a route is for the client that asks, and how often.

use std::net::IpAddr;
use std::time::Instant;

use http::StatusCode;

use super::Client;
use super::refusal::Refusal;
use crate::proxy::limiter::{Excess, Slot};
use crate::settings::Settings;
use crate::snapshot::hosts::Route;

impl Client {
    /// Lets a request in, or says why not. `client` is whoever the connection, or a peer that is believed, says it is.
    pub(super) fn enter(
        &self,
        route: &Route,
        client: IpAddr,
        settings: &Settings,
        now: Instant,
    ) -> Result<Option<Slot>, Box<Refusal>> {
        if let Some(sources) = &route.policy.sources
            && !sources.admit(client)
        {
            return Err(denied());
        }
        let Some(limits) = &route.policy.limits else { return Ok(None) };
        self.worker
            .limiter
            .admit(limits, &route.ingress, client, now)
            .map_err(|excess| limited(excess, settings))
    }
}

fn limited(excess: Excess, settings: &Settings) -> Box<Refusal> {
    let (code, message) = match excess {
        Excess::Requests => (settings.limit_req_status_code, "your network asks too often"),
        Excess::Connections => (settings.limit_conn_status_code, "your network asks for too much at once"),
    };
    Refusal::new(Excess::status(code), excess.name(), message)
}

/// The answer to a client whose address is not wanted.
pub fn denied() -> Box<Refusal> {
    Refusal::new(StatusCode::FORBIDDEN, "source_denied", "this is not for clients of your network")
}
