//! A small OCSP responder (RFC 6960, RFC 5019): "good" for an hour for what the demo's authority has issued,
//! "unknown" for the rest.

use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;
use rcgen::SigningKey;
use x509_cert::Certificate;
use x509_cert::der::asn1::{BitString, GeneralizedTime, ObjectIdentifier};
use x509_cert::der::{Decode, Encode};
use x509_cert::spki::AlgorithmIdentifierOwned;
use x509_ocsp::{
    BasicOcspResponse, CertStatus, OcspGeneralizedTime, OcspRequest, OcspResponse, ResponderId, ResponseData,
    SingleResponse, Version,
};

use super::authority::Authority;

const ECDSA_WITH_SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.2");
const VALID: Duration = Duration::from_secs(3600);
/// A request about one certificate takes about 80 bytes.
const LARGEST_REQUEST: usize = 4096;

/// Answers one HTTP request, whatever its path: the request is in it with GET and in the body with POST.
pub async fn answer(authority: Rc<Authority>, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let response = match read(request).await.and_then(|request| OcspRequest::from_der(&request).ok()) {
        Some(request) => respond(&authority, &request).unwrap_or_else(OcspResponse::internal_error),
        None => OcspResponse::malformed_request(),
    };
    let mut answer = Response::new(Full::from(response.to_der().unwrap_or_default()));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/ocsp-response"));
    answer
}

async fn read(request: Request<Incoming>) -> Option<Bytes> {
    if request.method() == Method::GET {
        let encoded = request.uri().path().strip_prefix('/')?;
        let encoded: Vec<u8> = percent_decode_str(encoded).collect();
        return STANDARD.decode(encoded).ok().map(Bytes::from);
    }
    let body = Limited::new(request.into_body(), LARGEST_REQUEST).collect().await;
    body.ok().map(|body| body.to_bytes())
}

/// `None` where something of our own goes wrong.
fn respond(authority: &Authority, request: &OcspRequest) -> Option<OcspResponse> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let (this_update, next_update) = (time(now)?, time(now + VALID)?);
    let asked = request.tbs_request.request_list.iter();
    let responses = asked.map(|asked| SingleResponse {
        cert_id: asked.req_cert.clone(),
        cert_status: match authority.has_issued(asked.req_cert.serial_number.as_bytes()) {
            true => CertStatus::good(),
            false => CertStatus::unknown(),
        },
        this_update,
        next_update: Some(next_update),
        single_extensions: None,
    });
    let root = Certificate::from_der(authority.der()).ok()?;
    let data = ResponseData {
        version: Version::V1,
        responder_id: ResponderId::ByName(root.tbs_certificate.subject),
        produced_at: this_update,
        responses: responses.collect(),
        response_extensions: None,
    };
    let signature = authority.key().sign(&data.to_der().ok()?).ok()?;
    let basic = BasicOcspResponse {
        tbs_response_data: data,
        signature_algorithm: AlgorithmIdentifierOwned { oid: ECDSA_WITH_SHA256, parameters: None },
        signature: BitString::from_bytes(&signature).ok()?,
        certs: None,
    };
    OcspResponse::successful(basic).ok()
}

fn time(since_epoch: Duration) -> Option<OcspGeneralizedTime> {
    let seconds = Duration::from_secs(since_epoch.as_secs());
    GeneralizedTime::from_unix_duration(seconds).ok().map(OcspGeneralizedTime)
}
