//! TokenReview as the API server does it, for the cluster that the CA runs in.

use futures_util::future::BoxFuture;
use http::Method;
use serde::Deserialize;
use serde_json::json;
use zeroize::Zeroizing;

use super::CallerPod;
use super::token_review::{ReviewError, ReviewStatus, TokenReview};
use crate::api_server::Api;

const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

/// Asks the API server of one cluster.
pub struct ApiServer {
    api: Api,
    /// What callers may call this cluster; an empty `clusterid` means it too.
    cluster: String,
}

impl ApiServer {
    pub fn new(api: Api, cluster: &str) -> Self {
        Self { api, cluster: cluster.to_owned() }
    }

    async fn ask(
        &self,
        token: &str,
        audiences: &[String],
        cluster: &str,
    ) -> Result<ReviewStatus, ReviewError> {
        if !cluster.is_empty() && cluster != self.cluster {
            let known = vec![self.cluster.clone()];
            return Err(ReviewError::UnknownCluster { cluster: cluster.to_owned(), known });
        }
        let unavailable = |why: String| ReviewError::Unavailable(why);
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": { "token": token, "audiences": audiences },
        });
        let review = Zeroizing::new(review.to_string());
        let answer = self.api.write(Method::POST, PATH, "application/json", review).await;
        let answer = answer.map_err(|error| unavailable(error.to_string()))?;
        // The answer repeats the token: the parser's own error stays here.
        let answer: Answer = serde_json::from_slice(&answer)
            .map_err(|_| unavailable("its answer is unreadable".to_owned()))?;
        Ok(answer.status.into())
    }
}

impl TokenReview for ApiServer {
    fn review<'a>(
        &'a self,
        token: &'a str,
        audiences: &'a [String],
        cluster: &'a str,
    ) -> BoxFuture<'a, Result<ReviewStatus, ReviewError>> {
        Box::pin(self.ask(token, audiences, cluster))
    }
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    authenticated: bool,
    error: String,
    audiences: Vec<String>,
    user: User,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct User {
    username: String,
    groups: Vec<String>,
    extra: Extra,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Extra {
    #[serde(rename = "authentication.kubernetes.io/pod-name")]
    pod_name: Vec<String>,
    #[serde(rename = "authentication.kubernetes.io/pod-uid")]
    pod_uid: Vec<String>,
}

impl From<Status> for ReviewStatus {
    fn from(status: Status) -> Self {
        let Status { authenticated, error, audiences, user: User { username, groups, extra } } = status;
        let pod = extra.pod_name.into_iter().next().zip(extra.pod_uid.into_iter().next());
        let pod = pod.map(|(name, uid)| CallerPod { name, uid });
        Self { authenticated, error, username, groups, audiences, pod }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_read_with_the_pod_that_the_token_is_bound_to() {
        let answer: Answer = serde_json::from_value(json!({
            "kind": "TokenReview", "spec": { "token": "t" },
            "status": {
                "authenticated": true, "audiences": ["istio-ca"],
                "user": {
                    "username": "system:serviceaccount:shop:web", "uid": "u",
                    "groups": ["system:serviceaccounts"],
                    "extra": {
                        "authentication.kubernetes.io/pod-name": ["web-1"],
                        "authentication.kubernetes.io/pod-uid": ["p"],
                        "authentication.kubernetes.io/node-name": ["n"],
                    },
                },
            },
        }))
        .unwrap();
        let status = ReviewStatus::from(answer.status);
        assert!(status.authenticated && status.error.is_empty());
        assert_eq!(status.pod, Some(CallerPod { name: "web-1".to_owned(), uid: "p".to_owned() }));
        assert_eq!(status.audiences, ["istio-ca"]);
        assert_eq!(status.username, "system:serviceaccount:shop:web");
    }

    #[test]
    fn a_refused_token_has_an_error_and_no_user() {
        let refused = json!({ "status": { "user": {}, "error": "[invalid bearer token]" } });
        let answer: Answer = serde_json::from_value(refused).unwrap();
        let status = ReviewStatus::from(answer.status);
        assert!(!status.authenticated && status.pod.is_none());
        assert_eq!(status.error, "[invalid bearer token]");
    }
}
