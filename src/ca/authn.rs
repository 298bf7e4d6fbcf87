//! Who is calling the CSR service: one SPIFFE ID, from what was proved and never from what was asked for.
//!
//! Authenticators are tried in a fixed order, first success wins: the client certificate of the connection, then
//! JWT issuers known by their keys, then the API server's TokenReview. What a caller learns of a failure is that
//! it failed; [`AuthnError`] is for the log and holds no part of a token.

pub mod api_server;
mod https;
pub mod impersonation;
pub mod issuers;
pub mod jwt;
pub mod token_review;

use std::net::IpAddr;
use std::sync::Arc;

use time::OffsetDateTime;
use tokio::sync::Notify;

use self::jwt::{JwtError, JwtIssuer};
use self::token_review::{ReviewError, Reviewer};
use super::authority::ClientError;
use super::certificate::Certificate;
use crate::tls::spiffe::{SpiffeError, SpiffeId};

/// Largest bearer token that is looked at.
pub const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub id: SpiffeId,
    /// The pod a token is bound to; needed for impersonation only.
    pub pod: Option<CallerPod>,
    pub method: Method,
}

/// The pod that a token says it was made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerPod {
    pub name: String,
    pub uid: String,
}

/// How a caller proved who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    ClientCertificate,
    Jwt,
    TokenReview,
}

/// What a caller shows.
#[derive(Clone, Copy, Default)]
pub struct Credentials<'a> {
    /// The client certificate of the call's own connection, verified for this call.
    pub certificate: Option<Result<&'a Certificate, &'a ClientError>>,
    /// The token of an `authorization: Bearer …` header.
    pub token: Option<&'a str>,
    /// The `clusterid` the caller says it is in; empty is the own cluster.
    pub cluster: &'a str,
    /// The address of the caller's end of the connection.
    pub source: Option<IpAddr>,
}

/// Why a caller was not authenticated. For the log: callers get one opaque text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthnError {
    #[error("neither a client certificate nor a bearer token was presented")]
    NoCredentials,
    #[error("client certificate: exactly one SPIFFE URI is expected, found {0} URIs")]
    Names(usize),
    #[error("client certificate: {0}")]
    Identity(SpiffeError),
    #[error("client certificate: its trust domain {0:?} is not ours")]
    TrustDomain(String),
    #[error("client certificate: {0}")]
    Certificate(ClientError),
    #[error("the token has more than {MAX_TOKEN_BYTES} bytes")]
    TokenTooLarge,
    #[error("no authenticator for tokens is configured")]
    NoTokenAuthenticator,
    #[error("token: {0}")]
    Jwt(#[from] JwtError),
    #[error("token review: {0}")]
    Review(#[from] ReviewError),
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    All(Vec<AuthnError>),
}

impl AuthnError {
    /// Whether a credential was genuine but did not say who its owner is.
    pub fn is_about_identity(&self) -> bool {
        match self {
            Self::Names(_)
            | Self::Identity(_)
            | Self::TrustDomain(_)
            | Self::Jwt(JwtError::NotServiceAccount | JwtError::Identity(_))
            | Self::Review(ReviewError::NotServiceAccount | ReviewError::Identity(_)) => true,
            Self::All(errors) => errors.iter().any(Self::is_about_identity),
            _ => false,
        }
    }

    /// Whether nobody had the time to look at a token.
    pub fn is_busy(&self) -> bool {
        match self {
            Self::Review(ReviewError::Busy) => true,
            Self::All(errors) => errors.iter().any(Self::is_busy),
            _ => false,
        }
    }
}

/// The configured authenticators.
pub struct Authenticators {
    pub trust_domain: String,
    pub jwt: Vec<JwtIssuer>,
    /// Told when a token names a key that its issuer did not have when it was asked last.
    pub unknown_key: Arc<Notify>,
    /// Asked last.
    pub token_review: Option<Reviewer>,
}

impl Authenticators {
    /// The caller's identity, by the first authenticator that gives one.
    pub async fn authenticate(
        &self,
        credentials: Credentials<'_>,
        now: OffsetDateTime,
    ) -> Result<Caller, AuthnError> {
        let mut failures = Vec::new();
        if let Some(certificate) = credentials.certificate {
            let verified = certificate.map_err(|error| AuthnError::Certificate(error.clone()));
            match verified.and_then(|certificate| self.by_certificate(certificate)) {
                Ok(caller) => return Ok(caller),
                Err(error) => failures.push(error),
            }
        }
        if let Some(token) = credentials.token {
            match self.by_token(token, credentials, now).await {
                Ok(caller) => return Ok(caller),
                Err(error) => failures.push(error),
            }
        }
        match failures.len() {
            0 => Err(AuthnError::NoCredentials),
            1 => Err(failures.remove(0)),
            _ => Err(AuthnError::All(failures)),
        }
    }

    /// A caller with a certificate may have a new one for the same identity, and no other.
    fn by_certificate(&self, certificate: &Certificate) -> Result<Caller, AuthnError> {
        let [uri] = certificate.uris.as_slice() else {
            return Err(AuthnError::Names(certificate.uris.len()));
        };
        let id = SpiffeId::parse(uri).map_err(AuthnError::Identity)?;
        if id.trust_domain() != self.trust_domain {
            return Err(AuthnError::TrustDomain(id.trust_domain().to_owned()));
        }
        Ok(Caller { id, pod: None, method: Method::ClientCertificate })
    }

    /// Only the issuer that the token names is asked.
    fn by_jwt(&self, token: &str, now: OffsetDateTime) -> Result<Caller, JwtError> {
        let issuer = jwt::issuer_of(token)?;
        let trusted = self.jwt.iter().find(|trusted| issuer.as_deref() == Some(trusted.issuer.as_str()));
        let known = || self.jwt.iter().map(|trusted| trusted.issuer.clone()).collect();
        let verified =
            trusted.ok_or_else(|| JwtError::Issuer(known()))?.verify(token, &self.trust_domain, now);
        if verified == Err(JwtError::UnknownKey) {
            self.unknown_key.notify_one();
        }
        verified
    }

    async fn by_token(
        &self,
        token: &str,
        credentials: Credentials<'_>,
        now: OffsetDateTime,
    ) -> Result<Caller, AuthnError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(AuthnError::TokenTooLarge);
        }
        let mut failures = Vec::new();
        if !self.jwt.is_empty() {
            match self.by_jwt(token, now) {
                Ok(caller) => return Ok(caller),
                Err(error) => failures.push(error.into()),
            }
        }
        if let Some(reviewer) = &self.token_review {
            let Credentials { cluster, source, .. } = credentials;
            match reviewer.caller(token, cluster, source, &self.trust_domain).await {
                Ok(caller) => return Ok(caller),
                Err(error) => failures.push(error.into()),
            }
        }
        match failures.len() {
            0 => Err(AuthnError::NoTokenAuthenticator),
            1 => Err(failures.remove(0)),
            _ => Err(AuthnError::All(failures)),
        }
    }
}

/// The account in `system:serviceaccount:NAMESPACE:ACCOUNT`; exactly these four parts, none empty.
fn service_account(subject: &str) -> Option<(&str, &str)> {
    let rest = subject.strip_prefix("system:serviceaccount:")?;
    let (namespace, account) = rest.split_once(':')?;
    (!namespace.is_empty() && !account.is_empty() && !account.contains(':')).then_some((namespace, account))
}

#[cfg(test)]
mod tests;
