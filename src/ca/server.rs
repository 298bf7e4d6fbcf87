//! The CA's own server certificate, made when it is needed and kept until half of its life is over.
//!
//! [`Endpoint::refresh`] is cheap and called at every turn; it publishes a new TLS configuration only if the
//! authority changed (other signer, roots or revocations) or the certificate is due.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use time::OffsetDateTime;

use super::authority::{Authority, IssueError};
use super::csr::PublicKey;
use super::key::{KeyError, PrivateKey};
use super::profile::SubjectName;
use crate::tls::ca_server::{self, CaServerError, ServerConfig};

/// Life of the server certificate; it is renewed at half of it.
const LIFE: Duration = Duration::from_secs(24 * 3600);

/// Why there is no server certificate.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Issue(#[from] IssueError),
    #[error(transparent)]
    Tls(#[from] CaServerError),
}

/// The TLS side of the CSR service.
pub struct Endpoint {
    names: Vec<SubjectName>,
    config: Arc<ArcSwap<ServerConfig>>,
    made_for: Arc<Authority>,
    renew_at: OffsetDateTime,
}

impl Endpoint {
    /// Issues the first certificate, for `hosts` (DNS names and addresses).
    pub fn new(
        hosts: &[String],
        authority: Arc<Authority>,
        now: OffsetDateTime,
    ) -> Result<Self, EndpointError> {
        let name = |host: &String| match host.parse::<IpAddr>() {
            Ok(address) => SubjectName::Ip(address),
            Err(_) => SubjectName::Dns(host.clone()),
        };
        let names: Vec<SubjectName> = hosts.iter().map(name).collect();
        let (config, renew_at) = make(&names, &authority, now)?;
        Ok(Self { names, config: Arc::new(ArcSwap::new(config)), made_for: authority, renew_at })
    }

    /// The configuration as the listener reads it, for each connection anew.
    pub fn config(&self) -> Arc<ArcSwap<ServerConfig>> {
        Arc::clone(&self.config)
    }

    /// Makes a new certificate if that is due or `authority` is another than before; says whether it did. On an
    /// error the old one stays in use.
    pub fn refresh(
        &mut self,
        authority: &Arc<Authority>,
        now: OffsetDateTime,
    ) -> Result<bool, EndpointError> {
        if Arc::ptr_eq(authority, &self.made_for) && now < self.renew_at {
            return Ok(false);
        }
        let (config, renew_at) = make(&self.names, authority, now)?;
        self.config.store(config);
        self.made_for = Arc::clone(authority);
        self.renew_at = renew_at;
        Ok(true)
    }
}

fn make(
    names: &[SubjectName],
    authority: &Authority,
    now: OffsetDateTime,
) -> Result<(Arc<ServerConfig>, OffsetDateTime), EndpointError> {
    let key = PrivateKey::generate(authority.key_algorithm())?;
    let issued = authority.issue_server(&PublicKey::from_own_key(&key), names, LIFE, now)?;
    let renew_at = now + (issued.not_after - now) / 2;
    let chain = authority.chain_der(issued.leaf);
    let key = key.to_der().ok_or(KeyError::Malformed)?;
    let roots = authority.roots().iter().filter(|root| root.is_valid_at(now)).map(|root| root.der());
    let config = ca_server::config(chain, key, roots, authority.revocations().cloned())?;
    Ok((config, renew_at))
}

#[cfg(test)]
mod tests;
