use tonic::Code;

use super::*;
use crate::ca::authn::Method;
use crate::ca::certificate::Certificate;
use crate::ca::csr;
use crate::ca::fixtures;
use crate::ca::fixtures::{HOUR, Made, NOW, ca_params, greedy_request, web};
use crate::ca::key::{KeyAlgorithm, PrivateKey};

fn service(authority: Arc<Authority>, limits: Limits) -> CertificateService {
    let authenticators = Authenticators {
        trust_domain: "cluster.local".to_owned(),
        jwt: Vec::new(),
        unknown_key: Arc::default(),
        token_review: None,
    };
    let authority = Arc::new(ArcSwap::new(authority));
    let ttl = TtlPolicy { default: HOUR, max: 2 * HOUR };
    CertificateService::new(authority, authenticators, ttl, limits, Metrics::default(), || NOW)
}

/// A request on a connection whose client certificate is for `web`.
fn request(authority: &Authority, message: IstioCertificateRequest) -> Request<IstioCertificateRequest> {
    let issued = fixtures::issue(authority, HOUR, NOW);
    let mut request = Request::new(message);
    request.extensions_mut().insert(PeerChain(authority.chain_der(issued.leaf).into()));
    request
}

fn message(csr: &str, validity_duration: i64) -> IstioCertificateRequest {
    IstioCertificateRequest { csr: csr.to_owned(), validity_duration, metadata: None }
}

fn good_csr() -> String {
    csr::create(&PrivateKey::generate(KeyAlgorithm::EcdsaP256).unwrap()).unwrap()
}

async fn call(authority: &Arc<Authority>, message: IstioCertificateRequest) -> Result<Vec<String>, Status> {
    let service = service(Arc::clone(authority), Limits::default());
    let answer = service.create_certificate(request(authority, message)).await?;
    Ok(answer.into_inner().cert_chain)
}

fn leaf(chain: &[String]) -> Certificate {
    Certificate::first_from_pem(chain[0].as_bytes()).unwrap()
}

#[tokio::test]
async fn ca_12_ca_13_wishes_in_the_request_are_ignored() {
    let authority = fixtures::authority().await;
    let (_, csr) = greedy_request(&rcgen::PKCS_ECDSA_P256_SHA256);
    let chain = call(&authority, message(&csr, 0)).await.unwrap();
    let leaf = leaf(&chain);
    assert_eq!(leaf.uris, ["spiffe://cluster.local/ns/shop/sa/web"]);
    assert!(leaf.dns_names.is_empty());
    assert!(!leaf.rights.is_ca && !leaf.rights.may_sign && leaf.rights.usages_nest);
    assert_eq!(leaf.subject_text, "");
}

#[tokio::test]
async fn ca_18_the_last_element_holds_every_root() {
    let ca = Made::root(ca_params("root")).below(ca_params("signer"));
    let second = Made::root(ca_params("second"));
    let mut roots = ca.root_bundle();
    roots.insert(second.signer().clone());
    let authority =
        Authority::new(ca.signer().clone(), ca.key(), ca.chain(), roots, Vec::new(), NOW).unwrap();
    let chain = call(&Arc::new(authority), message(&good_csr(), 0)).await.unwrap();
    assert_eq!(chain.len(), 3);
    assert_eq!(Certificate::from_pem(chain[2].as_bytes()).unwrap().len(), 2);
}

#[tokio::test]
async fn codes_say_whose_fault_it_is() {
    let authority = fixtures::authority().await;
    let code = async |message| call(&authority, message).await.unwrap_err().code();
    assert_eq!(code(message("garbage", 0)).await, Code::InvalidArgument);
    assert_eq!(code(message(&good_csr(), 7201)).await, Code::InvalidArgument);
    assert!(call(&authority, message(&good_csr(), 7200)).await.is_ok());
    assert_eq!(leaf(&call(&authority, message(&good_csr(), -1)).await.unwrap()).not_after, NOW + HOUR);
}

#[tokio::test]
async fn failures_inside_are_opaque() {
    let mut short = ca_params("short");
    short.not_after = NOW;
    let ca = Made::root(short);
    let before = NOW - time::Duration::minutes(5);
    let other = fixtures::authority().await;
    let mut roots = ca.root_bundle();
    roots.insert(other.signer().clone());
    let authority =
        Authority::new(ca.signer().clone(), ca.key(), Vec::new(), roots, Vec::new(), before).unwrap();
    let authority = Arc::new(authority);
    let status = service(Arc::clone(&authority), Limits::default())
        .create_certificate(request(&other, message(&good_csr(), 0)))
        .await
        .unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Internal, "CSR signing error"));
}

#[tokio::test]
async fn callers_without_proof_learn_nothing() {
    let authority = fixtures::authority().await;
    let service = service(Arc::clone(&authority), Limits::default());
    let bare = Request::new(message(&good_csr(), 0));
    let status = service.create_certificate(bare).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unauthenticated, "request authenticate failure"));
    assert_eq!(service.metrics.authentication_failures.get(), 1);
    let mut with_token = Request::new(message(&good_csr(), 0));
    with_token.metadata_mut().insert("authorization", "Bearer x.y.z".parse().unwrap());
    let status = service.create_certificate(with_token).await.unwrap_err();
    assert_eq!(status.message(), "request authenticate failure");
}

#[tokio::test]
async fn a_genuine_certificate_that_names_nobody_is_counted() {
    let ca = Made::root(ca_params("root"));
    let authority =
        Authority::new(ca.signer().clone(), ca.key(), Vec::new(), ca.root_bundle(), Vec::new(), NOW).unwrap();
    let service = service(Arc::new(authority), Limits::default());
    let mut params = rcgen::CertificateParams::new(vec!["web.shop".to_owned()]).unwrap();
    (params.not_before, params.not_after) = (NOW, NOW + HOUR);
    let mut request = Request::new(message(&good_csr(), 0));
    let leaf = ca.below(params).signer().der().clone();
    request.extensions_mut().insert(PeerChain([leaf].into()));
    let status = service.create_certificate(request).await.unwrap_err();
    assert_eq!(status.message(), "request authenticate failure");
    assert_eq!(service.metrics.id_extraction_errors.get(), 1);
}

#[tokio::test]
async fn impersonation_is_off_unless_configured() {
    use prost_types::value::Kind;
    let authority = fixtures::authority().await;
    let kind = Some(Kind::StringValue("spiffe://cluster.local/ns/shop/sa/db".to_owned()));
    let fields = [("ImpersonatedIdentity".to_owned(), prost_types::Value { kind })];
    let metadata = Some(prost_types::Struct { fields: fields.into_iter().collect() });
    let status =
        call(&authority, IstioCertificateRequest { metadata, ..message(&good_csr(), 0) }).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
    assert_eq!(status.message(), "request impersonation authentication failure");
}

#[tokio::test]
async fn each_caller_has_its_own_rate() {
    let authority = fixtures::authority().await;
    let limits = Limits { burst: 2.0, per_second: 1.0, ..Limits::default() };
    let service = service(Arc::clone(&authority), limits);
    let codes = async || {
        let answer = service.create_certificate(request(&authority, message(&good_csr(), 0))).await;
        answer.map(|_| Code::Ok).unwrap_or_else(|status| status.code())
    };
    assert_eq!([codes().await, codes().await, codes().await], [Code::Ok, Code::Ok, Code::ResourceExhausted]);
    let other = SpiffeId::new("cluster.local", "shop", "db").unwrap();
    assert_eq!(service.admission.count(&other, NOW), Ok(()));
    assert_eq!(service.admission.count(web().id(), NOW + time::Duration::seconds(1)), Ok(()));
    assert_eq!(service.admission.count(web().id(), NOW + time::Duration::seconds(1)), Err(Refusal));
}

#[tokio::test]
async fn calls_at_once_are_bounded() {
    let authority = fixtures::authority().await;
    let service = service(Arc::clone(&authority), Limits { concurrent: 1, ..Limits::default() });
    let slot = service.admission.enter();
    let status = service.create_certificate(request(&authority, message(&good_csr(), 0))).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    drop(slot);
    assert!(service.create_certificate(request(&authority, message(&good_csr(), 0))).await.is_ok());
}

#[test]
fn failures_in_the_log_name_the_caller_and_no_secret() {
    let caller = web().id().clone();
    let failure = Failure::Issue { caller, error: IssueError::SignerExpired(NOW) };
    assert_eq!(
        failure.to_string(),
        "spiffe://cluster.local/ns/shop/sa/web: CERT_GEN_ERROR signing certificate has expired at 2026-03-01 12:00:00.0 +00:00:00"
    );
    assert_eq!(format!("{:?}", Method::Jwt), "Jwt");
}

#[test]
fn bearer_headers() {
    assert_eq!(bearer("Bearer abc"), Some("abc"));
    assert_eq!(bearer("bearer abc "), Some("abc"));
    assert_eq!(bearer("Basic abc"), None);
    assert_eq!(bearer("abc"), None);
}

#[tokio::test]
async fn a_certificate_is_verified_for_each_call_as_roots_lists_and_time_are_then() {
    let mut params = ca_params("root");
    params.key_usages.push(rcgen::KeyUsagePurpose::CrlSign);
    let (ca, other) = (Made::root(params), Made::root(ca_params("other")));
    let authority = |lists| {
        let (signer, key) = (ca.signer().clone(), ca.key());
        Arc::new(Authority::new(signer, key, Vec::new(), ca.root_bundle(), lists, NOW).unwrap())
    };
    let first = authority(Vec::new());
    let issued = fixtures::issue(&first, HOUR, NOW);
    let chain = PeerChain([issued.leaf.clone()].into());
    let call = async |authority: Arc<Authority>, clock: fn() -> OffsetDateTime| {
        let service = CertificateService { clock, ..service(authority, Limits::default()) };
        let mut request = Request::new(message(&good_csr(), 0));
        request.extensions_mut().insert(chain.clone());
        service.create_certificate(request).await.map(drop).map_err(|status| status.code())
    };
    assert_eq!(call(first.clone(), || NOW).await, Ok(()));
    assert_eq!(call(first, || NOW + 2 * HOUR).await, Err(Code::Unauthenticated), "it has ended");
    let (signer, key) = (other.signer().clone(), other.key());
    let next = Authority::new(signer, key, Vec::new(), other.root_bundle(), Vec::new(), NOW).unwrap();
    assert_eq!(call(Arc::new(next), || NOW).await, Err(Code::Unauthenticated), "its root was dropped");
    let serial = Certificate::from_der(issued.leaf.clone()).unwrap().serial;
    let revoked = authority(vec![fixtures::revocation_list(&ca, &serial)]);
    assert_eq!(call(revoked, || NOW).await, Err(Code::Unauthenticated), "a list revokes it");
}
