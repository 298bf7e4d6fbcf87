//! A server certificate from an authority of ours, made when it is needed and kept until half of its life is over:
//! for the CSR service and for the admission webhook.
//!
//! [`Endpoint::refresh`] is cheap and called at every turn; it publishes new TLS only if the
//! authority changed (other signer, roots or revocations) or the certificate is due.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;
use tokio::sync::watch;

use super::authority::{Authority, IssueError};
use super::csr::PublicKey;
use super::key::{KeyError, PrivateKey};
use super::profile::SubjectName;
use crate::tls::services::{ChainAndKey, Protocol, ServiceTls, ServiceTlsError};

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
    Tls(#[from] ServiceTlsError),
}

/// Makes the TLS of a listener of its certificate.
pub type MakeTls = fn(ChainAndKey, &Authority, OffsetDateTime) -> Result<ServiceTls, ServiceTlsError>;

/// The TLS side of a service.
pub struct Endpoint {
    make: MakeTls,
    names: Vec<SubjectName>,
    tls: watch::Sender<ServiceTls>,
    made_for: Arc<Authority>,
    renew_at: OffsetDateTime,
}

impl Endpoint {
    /// Issues the first certificate, for `hosts` (DNS names and addresses).
    pub fn new(
        make: MakeTls,
        hosts: &[String],
        authority: Arc<Authority>,
        now: OffsetDateTime,
    ) -> Result<Self, EndpointError> {
        let names = names_of(hosts);
        let (tls, renew_at) = issue(make, &names, &authority, now)?;
        Ok(Self { make, names, tls: watch::Sender::new(tls), made_for: authority, renew_at })
    }

    /// Makes the next certificate one for `hosts`; at once, if those are others than before.
    pub fn set_hosts(&mut self, hosts: &[String]) {
        let names = names_of(hosts);
        if names != self.names {
            self.names = names;
            self.renew_at = OffsetDateTime::UNIX_EPOCH;
        }
    }

    /// The TLS as the listener reads it, for each connection anew.
    pub fn tls(&self) -> watch::Receiver<ServiceTls> {
        self.tls.subscribe()
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
        let (tls, renew_at) = issue(self.make, &self.names, authority, now)?;
        self.tls.send_replace(tls);
        self.made_for = Arc::clone(authority);
        self.renew_at = renew_at;
        Ok(true)
    }
}

/// For the CSR service: HTTP/2, and client certificates that verify against the authority's roots.
pub fn csr_tls(
    certificate: ChainAndKey,
    authority: &Authority,
    now: OffsetDateTime,
) -> Result<ServiceTls, ServiceTlsError> {
    let roots = authority.roots().iter().filter(|root| root.is_valid_at(now)).map(|root| root.der());
    ServiceTls::that_verifies(certificate, Protocol::Http2, roots, authority.revocations().to_vec())
}

fn names_of(hosts: &[String]) -> Vec<SubjectName> {
    let name = |host: &String| match host.parse::<IpAddr>() {
        Ok(address) => SubjectName::Ip(address),
        Err(_) => SubjectName::Dns(host.clone()),
    };
    hosts.iter().map(name).collect()
}

fn issue(
    make: MakeTls,
    names: &[SubjectName],
    authority: &Authority,
    now: OffsetDateTime,
) -> Result<(ServiceTls, OffsetDateTime), EndpointError> {
    let key = PrivateKey::generate(authority.key_algorithm())?;
    let issued = authority.issue_server(&PublicKey::from_own_key(&key), names, LIFE, now)?;
    let renew_at = now + (issued.not_after - now) / 2;
    let chain = authority.chain_der(issued.leaf);
    let key = key.to_der().ok_or(KeyError::Malformed)?;
    Ok((make((chain, key), authority, now)?, renew_at))
}

#[cfg(test)]
mod tests;
