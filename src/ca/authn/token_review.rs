//! Tokens that the API server vouches for (`authentication.k8s.io/v1 TokenReview`).
//!
//! Asking is a trait, because only the Kubernetes side can do it; judging the answer is done here, the same for all.

use futures_util::future::BoxFuture;

use super::{Caller, CallerPod, Method, service_account};
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
