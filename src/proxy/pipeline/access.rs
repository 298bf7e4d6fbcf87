//! Phase 5: whether a route is for the client that asks, how often, and with which password.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use http::header::WWW_AUTHENTICATE;
use http::{HeaderMap, StatusCode};

use super::Client;
use super::refusal::Refusal;
use crate::proxy::answers;
use crate::proxy::limiter::{Excess, Slot};
use crate::proxy::passwords::{Credentials, Verdict};
use crate::settings::Settings;
use crate::snapshot::hosts::Route;
use crate::snapshot::passwords::BasicAuth;

/// What a request that was let in has.
pub struct Entry {
    /// Its place among those of its client.
    pub slot: Option<Slot>,
    /// Who it must say to be yet.
    pub auth: Option<Arc<BasicAuth>>,
}

impl Client {
    /// Lets a request in, or says why not. `client` is whoever the connection, or a peer that is believed, says it is.
    pub(super) fn enter(
        &self,
        route: &Route,
        client: IpAddr,
        settings: &Settings,
        now: Instant,
    ) -> Result<Entry, Box<Refusal>> {
        let policy = &route.policy;
        let is_listed = policy.sources.as_ref().map(|sources| sources.admit(client));
        let auth = match &policy.auth {
            Some(auth) if auth.or_source => Some(auth).filter(|_| is_listed != Some(true)),
            _ if is_listed == Some(false) => return Err(denied()),
            auth => auth.as_ref(),
        };
        let slot = match &policy.limits {
            None => None,
            Some(limits) => self
                .worker
                .limiter
                .admit(limits, &route.ingress, client, now)
                .map_err(|excess| limited(excess, settings))?,
        };
        Ok(Entry { slot, auth: auth.cloned() })
    }

    /// Whether the request says the password of one of the users.
    pub(super) async fn authenticate(
        &self,
        auth: &BasicAuth,
        headers: &HeaderMap,
        grpc: bool,
    ) -> Result<(), Box<Refusal>> {
        let verdict = match Credentials::of(headers) {
            Some(credentials) => self.worker.passwords.check(&auth.users, credentials).await,
            None => Verdict::Wrong,
        };
        match verdict {
            Verdict::Right => Ok(()),
            Verdict::Wrong => {
                let status = StatusCode::UNAUTHORIZED;
                let mut response = answers::failure(status, "a name and a password are needed", grpc);
                response.headers_mut().insert(WWW_AUTHENTICATE, auth.challenge.clone());
                Err(Refusal::ready(response, "unauthorized"))
            }
            Verdict::Busy => Err(Refusal::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "passwords_busy",
                "too many passwords are being checked",
            )),
        }
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
