//! The CSR service, `istio.v1.auth.IstioCertificateService`.
//!
//! One call is: authenticate, admit (limits), decide the identity, check the request, sign. The identity comes from
//! authentication, or from impersonation that is allowed; from the request only the public key is taken. Failures
//! are opaque to callers where they concern credentials, and clear in the log; neither holds a token or a key.

mod limits;

use std::sync::Arc;

use arc_swap::ArcSwap;
use time::OffsetDateTime;
use tonic::{Code, Request, Response, Status};

pub use self::limits::Limits;
use self::limits::{Admission, Refusal};
use super::authn::impersonation::{self, Impersonation};
use super::authn::{Authenticators, Caller, Credentials};
use super::authority::{Authority, IssueError, TtlPolicy};
use super::csr::{MAX_CSR_BYTES, PublicKey};
use super::identity::WorkloadNames;
use super::listener::{PeerAddress, PeerChain};
use super::metrics::Metrics;
use super::proto::istio_certificate_service_server::{
    IstioCertificateService, IstioCertificateServiceServer,
};
use super::proto::{IstioCertificateRequest, IstioCertificateResponse};
use crate::tls::spiffe::SpiffeId;

/// Largest message that is decoded: a request with the largest CSR and room for metadata.
const MAX_MESSAGE_BYTES: usize = 4 * MAX_CSR_BYTES;

/// What all calls share.
pub struct CertificateService {
    authority: Arc<ArcSwap<Authority>>,
    authenticators: ArcSwap<Authenticators>,
    impersonation: ArcSwap<Impersonation>,
    ttl: TtlPolicy,
    admission: Admission,
    metrics: Metrics,
    clock: fn() -> OffsetDateTime,
}

impl CertificateService {
    /// `authority` is swapped by whoever rotates; each call uses the one it finds.
    pub fn new(
        authority: Arc<ArcSwap<Authority>>,
        authenticators: Authenticators,
        ttl: TtlPolicy,
        limits: Limits,
        metrics: Metrics,
        clock: fn() -> OffsetDateTime,
    ) -> Self {
        Self {
            authority,
            authenticators: ArcSwap::from_pointee(authenticators),
            impersonation: ArcSwap::default(),
            ttl,
            admission: Admission::new(limits),
            metrics,
            clock,
        }
    }

    /// New keys or issuers; calls that are under way finish with the old ones.
    pub fn set_authenticators(&self, authenticators: Authenticators) {
        self.authenticators.store(Arc::new(authenticators));
    }

    /// New rules or pods.
    pub fn set_impersonation(&self, impersonation: Impersonation) {
        self.impersonation.store(Arc::new(impersonation));
    }

    /// As a tower service for a listener.
    pub fn into_server(self: Arc<Self>) -> IstioCertificateServiceServer<Self> {
        IstioCertificateServiceServer::from_arc(self).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    async fn sign(&self, request: Request<IstioCertificateRequest>) -> Result<Vec<String>, Failure> {
        self.metrics.csr_count.inc();
        let now = (self.clock)();
        let caller = self.authenticate(&request, now).await?;
        // Only now: whoever shows nothing takes no place from those who do.
        let _slot = self.admission.enter().ok_or(Failure::Busy)?;
        self.admission.count(&caller.id, now).map_err(|Refusal| Failure::TooMany(caller.id.clone()))?;
        let id = self.subject(&caller, &request)?;
        let message = request.get_ref();
        let issue = || {
            let ttl = self.ttl.resolve(message.validity_duration)?;
            let key = PublicKey::from_csr(message.csr.as_bytes())?;
            let names = WorkloadNames::of(id.clone());
            let authority = self.authority.load();
            let issued = authority.issue(&key, &names, ttl, now)?;
            Ok((authority.answer(&issued.leaf), issued.serial))
        };
        let (answer, serial) = issue().map_err(|error| {
            self.metrics.count_sign_error(&error);
            Failure::Issue { caller: caller.id.clone(), error }
        })?;
        self.metrics.issued.inc();
        tracing::info!(caller = %caller.id, id = %id, method = ?caller.method, serial, "certificate issued");
        Ok(answer)
    }

    async fn authenticate(
        &self,
        request: &Request<IstioCertificateRequest>,
        now: OffsetDateTime,
    ) -> Result<Caller, Failure> {
        // The handshake may be long ago: roots have left since, lists have come, certificates have ended.
        let authority = self.authority.load_full();
        let peer = request.extensions().get::<PeerChain>();
        let certificate = peer.map(|peer| authority.verify_client(&peer.0, now));
        let credentials = Credentials {
            certificate: certificate.as_ref().map(Result::as_ref),
            token: header(request, "authorization").and_then(bearer),
            cluster: header(request, "clusterid").unwrap_or_default(),
            source: request.extensions().get::<PeerAddress>().map(|peer| peer.0),
        };
        let caller = self.authenticators.load_full().authenticate(credentials, now).await;
        caller.map_err(|error| {
            self.metrics.authentication_failures.inc();
            if error.is_about_identity() {
                self.metrics.id_extraction_errors.inc();
            }
            match error.is_busy() {
                true => Failure::Busy,
                false => Failure::Unauthenticated(error.to_string()),
            }
        })
    }

    /// Whom the certificate is for: the caller, or the workload it may impersonate.
    fn subject(
        &self,
        caller: &Caller,
        request: &Request<IstioCertificateRequest>,
    ) -> Result<SpiffeId, Failure> {
        let Some(requested) = impersonated(request.get_ref()) else { return Ok(caller.id.clone()) };
        let cluster = header(request, "clusterid").unwrap_or_default();
        self.impersonation.load().authorize(caller, requested, cluster).map_err(|error| {
            self.metrics.authentication_failures.inc();
            Failure::Impersonation { caller: caller.id.clone(), reason: error.to_string() }
        })
    }
}

#[tonic::async_trait]
impl IstioCertificateService for CertificateService {
    async fn create_certificate(
        &self,
        request: Request<IstioCertificateRequest>,
    ) -> Result<Response<IstioCertificateResponse>, Status> {
        match self.sign(request).await {
            Ok(cert_chain) => Ok(Response::new(IstioCertificateResponse { cert_chain })),
            Err(failure) => {
                tracing::warn!(reason = %failure, "certificate refused");
                Err(failure.into())
            }
        }
    }
}

/// Why a call failed. `Display` is for the log, [`Status`] for the caller.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("too many requests at once")]
    Busy,
    #[error("{0} sends more requests than its rate allows")]
    TooMany(SpiffeId),
    #[error("not authenticated: {0}")]
    Unauthenticated(String),
    #[error("{caller} may not impersonate: {reason}")]
    Impersonation { caller: SpiffeId, reason: String },
    #[error("{caller}: {} {error}", .error.label())]
    Issue { caller: SpiffeId, error: IssueError },
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        match &failure {
            Failure::Busy | Failure::TooMany(_) => Self::new(Code::ResourceExhausted, "too many requests"),
            Failure::Unauthenticated(_) => Self::new(Code::Unauthenticated, "request authenticate failure"),
            Failure::Impersonation { .. } => {
                Self::new(Code::Unauthenticated, "request impersonation authentication failure")
            }
            // The caller can repair its request and is told how; the state of the CA is not its business.
            Failure::Issue { error, .. } if error.is_callers_fault() => {
                Self::new(Code::InvalidArgument, format!("CSR signing error ({error})"))
            }
            Failure::Issue { .. } => Self::new(Code::Internal, "CSR signing error"),
        }
    }
}

fn header<'a>(request: &'a Request<IstioCertificateRequest>, name: &str) -> Option<&'a str> {
    request.metadata().get(name).and_then(|value| value.to_str().ok())
}

/// The token of an `Authorization` header; the scheme is not case-sensitive (RFC 9110 section 11.1).
fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

fn impersonated(message: &IstioCertificateRequest) -> Option<&str> {
    use prost_types::value::Kind;
    match message.metadata.as_ref()?.fields.get(impersonation::METADATA_KEY)?.kind.as_ref()? {
        Kind::StringValue(identity) if !identity.is_empty() => Some(identity),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
