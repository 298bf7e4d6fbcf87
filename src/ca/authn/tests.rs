use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::token_review::{ReviewStatus, TokenReview};
use super::*;
use crate::ca::csr::PublicKey;
use crate::ca::fixtures::{HOUR, NOW, authority, web};
use crate::ca::identity::WorkloadNames;
use crate::ca::key::{KeyAlgorithm, PrivateKey};

/// An API server that gives one answer, or hangs.
struct Answer(Option<Result<ReviewStatus, ReviewError>>);

impl TokenReview for Answer {
    fn review<'a>(
        &'a self,
        _: &'a str,
        _: &'a [String],
        _: &'a str,
    ) -> BoxFuture<'a, Result<ReviewStatus, ReviewError>> {
        match self.0.clone() {
            Some(answer) => Box::pin(std::future::ready(answer)),
            None => Box::pin(std::future::pending()),
        }
    }
}

fn good() -> ReviewStatus {
    ReviewStatus {
        authenticated: true,
        username: "system:serviceaccount:shop:web".to_owned(),
        groups: vec!["system:serviceaccounts".to_owned(), "system:serviceaccounts:shop".to_owned()],
        audiences: vec!["istio-ca".to_owned()],
        ..ReviewStatus::default()
    }
}

fn authenticators(answer: Option<Result<ReviewStatus, ReviewError>>) -> Authenticators {
    let audiences = vec!["istio-ca".to_owned()];
    Authenticators {
        trust_domain: "cluster.local".to_owned(),
        jwt: Vec::new(),
        unknown_key: Arc::default(),
        token_review: answer.map(|answer| Reviewer::new(Arc::new(Answer(Some(answer))), audiences)),
    }
}

async fn by_token(status: ReviewStatus) -> Result<Caller, AuthnError> {
    let credentials = Credentials { token: Some("t"), ..Credentials::default() };
    authenticators(Some(Ok(status))).authenticate(credentials, NOW).await
}

async fn certificate(names: &WorkloadNames) -> Certificate {
    let key = PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
    let issued = authority().await.issue(&PublicKey::from_own_key(&key), names, HOUR, NOW).unwrap();
    Certificate::from_der(issued.leaf).unwrap()
}

#[tokio::test]
async fn a_reviewed_token_gives_its_account() {
    let caller = by_token(good()).await.unwrap();
    assert_eq!(caller.id.to_string(), "spiffe://cluster.local/ns/shop/sa/web");
    assert_eq!(caller.method, Method::TokenReview);
}

#[tokio::test]
async fn reviews_that_say_anything_else_are_refused() {
    let refusals = [
        ReviewStatus { authenticated: false, ..good() },
        ReviewStatus { error: "expired".to_owned(), ..good() },
        // An API server that does not know audiences leaves them out.
        ReviewStatus { audiences: Vec::new(), ..good() },
        ReviewStatus { audiences: vec!["other".to_owned()], ..good() },
        ReviewStatus { groups: vec!["system:authenticated".to_owned()], ..good() },
        ReviewStatus { username: "alice".to_owned(), ..good() },
        ReviewStatus { username: "system:serviceaccount:shop:web:x".to_owned(), ..good() },
        ReviewStatus { username: "system:serviceaccount::web".to_owned(), ..good() },
    ];
    for status in refusals {
        assert!(matches!(by_token(status.clone()).await, Err(AuthnError::Review(_))), "{status:?}");
    }
}

#[tokio::test]
async fn an_unknown_cluster_is_an_error_that_lists_the_known_ones() {
    let known = vec!["east".to_owned(), "west".to_owned()];
    let error = ReviewError::UnknownCluster { cluster: "nope".to_owned(), known };
    let credentials = Credentials { token: Some("t"), cluster: "nope", ..Credentials::default() };
    let error = authenticators(Some(Err(error))).authenticate(credentials, NOW).await.unwrap_err();
    assert!(error.to_string().contains("east, west"), "{error}");
}

#[tokio::test]
async fn a_certificate_renews_its_own_identity_only() {
    let certificate = certificate(&web()).await;
    let credentials = Credentials { certificate: Some(Ok(&certificate)), ..Credentials::default() };
    let caller = authenticators(None).authenticate(credentials, NOW).await.unwrap();
    assert_eq!(caller.id, *web().id());
    let error = ClientError::Chain(webpki::Error::UnknownIssuer);
    let refused = Credentials { certificate: Some(Err(&error)), ..Credentials::default() };
    let refused = authenticators(None).authenticate(refused, NOW).await;
    assert_eq!(refused, Err(AuthnError::Certificate(error.clone())));
    let foreign = Authenticators { trust_domain: "other".to_owned(), ..authenticators(None) };
    assert!(matches!(foreign.authenticate(credentials, NOW).await, Err(AuthnError::TrustDomain(_))));
}

#[tokio::test]
async fn certificates_without_exactly_one_uri_identify_nobody() {
    let mut none = certificate(&web()).await;
    none.uris.clear();
    let mut two = certificate(&web()).await;
    two.uris.push("spiffe://cluster.local/ns/shop/sa/db".to_owned());
    for certificate in [none, two] {
        let credentials = Credentials { certificate: Some(Ok(&certificate)), ..Credentials::default() };
        let refused = authenticators(None).authenticate(credentials, NOW).await;
        assert!(matches!(refused, Err(AuthnError::Names(_))));
    }
}

#[tokio::test]
async fn nothing_shown_and_nobody_to_ask() {
    let nobody = authenticators(None);
    assert_eq!(nobody.authenticate(Credentials::default(), NOW).await, Err(AuthnError::NoCredentials));
    let token = Credentials { token: Some("t"), ..Credentials::default() };
    assert_eq!(nobody.authenticate(token, NOW).await, Err(AuthnError::NoTokenAuthenticator));
    let long = "x".repeat(MAX_TOKEN_BYTES + 1);
    let long = Credentials { token: Some(&long), ..Credentials::default() };
    assert_eq!(nobody.authenticate(long, NOW).await, Err(AuthnError::TokenTooLarge));
}

#[tokio::test]
async fn a_token_helps_where_the_certificate_does_not() {
    let mut certificate = certificate(&web()).await;
    certificate.uris.clear();
    let credentials =
        Credentials { certificate: Some(Ok(&certificate)), token: Some("t"), ..Credentials::default() };
    let caller = authenticators(Some(Ok(good()))).authenticate(credentials, NOW).await.unwrap();
    assert_eq!(caller.method, Method::TokenReview);
}

#[tokio::test]
async fn one_address_has_only_so_many_tokens_reviewed_at_once() {
    let reviewer = Reviewer::new(Arc::new(Answer(None)), Vec::new());
    let nobody = Authenticators { token_review: Some(reviewer), ..authenticators(None) };
    let call = |source: &str| {
        let source = Some(source.parse().unwrap());
        nobody.authenticate(Credentials { token: Some("t"), source, ..Credentials::default() }, NOW)
    };
    let mut hanging: Vec<_> = (0..8).map(|_| Box::pin(call("192.0.2.1"))).collect();
    for call in &mut hanging {
        assert!(call.as_mut().now_or_never().is_none());
    }
    let refused = call("192.0.2.1").await.unwrap_err();
    assert!(refused.is_busy(), "{refused}");
    let mut other = Box::pin(call("192.0.2.2"));
    assert!(other.as_mut().now_or_never().is_none(), "another address has its own");
    drop(hanging);
    let mut again = Box::pin(call("192.0.2.1"));
    assert!(again.as_mut().now_or_never().is_none());
}
