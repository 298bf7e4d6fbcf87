//! Tokens that the API server vouches for (`authentication.k8s.io/v1 TokenReview`).
//!
//! Asking is a trait, because only the Kubernetes side can do it; judging the answer is done here, the same for all.

use std::net::IpAddr;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;

use super::{Caller, CallerPod, Method, service_account};
use crate::ca::per_source::PerSource;
use crate::tls::spiffe::{SpiffeError, SpiffeId};

/// Asks an API server about a token.
pub trait TokenReview: Send + Sync {
    /// Reviews `token` for any of `audiences` at the API server of `cluster` (empty: the own one). An unknown
    /// cluster is [`ReviewError::UnknownCluster`], never another cluster's answer.
    fn review<'a>(
        &'a self,
        token: &'a str,
        audiences: &'a [String],
        cluster: &'a str,
    ) -> BoxFuture<'a, Result<ReviewStatus, ReviewError>>;
}

/// Reviews under way at once, over all callers. They keep the API server busy for tokens that may be worth nothing…
const MAX_REVIEWS: usize = 64;
/// …and so of one address there are only so many.
const MAX_REVIEWS_OF_ONE_SOURCE: usize = 8;

/// Who reviews tokens, for which audiences, and how many at once. Clones share the places.
#[derive(Clone)]
pub struct Reviewer {
    pub review: Arc<dyn TokenReview>,
    /// A token must be for one of these.
    pub audiences: Vec<String>,
    places: Arc<Semaphore>,
    sources: PerSource,
}

impl Reviewer {
    pub fn new(review: Arc<dyn TokenReview>, audiences: Vec<String>) -> Self {
        let (places, sources) = (Semaphore::new(MAX_REVIEWS), PerSource::new(MAX_REVIEWS_OF_ONE_SOURCE));
        Self { review, audiences, places: Arc::new(places), sources }
    }

    /// Whose token it is. `source` is where the call came from, where that is known.
    pub async fn caller(
        &self,
        token: &str,
        cluster: &str,
        source: Option<IpAddr>,
        trust_domain: &str,
    ) -> Result<Caller, ReviewError> {
        let own = source.map(|source| self.sources.enter(source).ok_or(ReviewError::Busy)).transpose()?;
        let place = self.places.try_acquire().map_err(|_| ReviewError::Busy)?;
        let status = self.review.review(token, &self.audiences, cluster).await?;
        drop((own, place));
        status.caller(&self.audiences, trust_domain)
    }
}

/// `status` of a TokenReview, as far as it is needed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReviewStatus {
    pub authenticated: bool,
    pub error: String,
    pub username: String,
    pub groups: Vec<String>,
    pub audiences: Vec<String>,
    /// `authentication.kubernetes.io/pod-name` and `…/pod-uid` of `user.extra`.
    pub pod: Option<CallerPod>,
}

/// Why a review gave no identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReviewError {
    #[error("too many tokens are being reviewed")]
    Busy,
    #[error("the API server did not answer: {0}")]
    Unavailable(String),
    #[error("cluster {cluster:?} is not known; known are: {}", .known.join(", "))]
    UnknownCluster { cluster: String, known: Vec<String> },
    #[error("the API server refused it")]
    NotAuthenticated,
    #[error("it is for other audiences ({}) than ours", .0.join(", "))]
    Audience(Vec<String>),
    #[error("it does not belong to a ServiceAccount")]
    NotServiceAccount,
    #[error("{0}")]
    Identity(#[from] SpiffeError),
}

impl ReviewStatus {
    /// Judges the answer. The audiences are checked here too: an API server that does not know the field in the
    /// request accepts any token.
    pub fn caller(self, audiences: &[String], trust_domain: &str) -> Result<Caller, ReviewError> {
        if !self.authenticated || !self.error.is_empty() {
            return Err(ReviewError::NotAuthenticated);
        }
        if !self.audiences.iter().any(|audience| audiences.contains(audience)) {
            return Err(ReviewError::Audience(self.audiences));
        }
        if !self.groups.iter().any(|group| group == "system:serviceaccounts") {
            return Err(ReviewError::NotServiceAccount);
        }
        let (namespace, account) = service_account(&self.username).ok_or(ReviewError::NotServiceAccount)?;
        let id = SpiffeId::new(trust_domain, namespace, account)?;
        Ok(Caller { id, pod: self.pod, method: Method::TokenReview })
    }
}
