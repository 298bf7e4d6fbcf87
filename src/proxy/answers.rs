//! Answers of the gateway's own: refusals, redirects and what is said when a backend fails. Plain text with a
//! plain reason; gRPC clients get theirs as gRPC status, which is all they understand.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use super::body::Body;

/// `status` with its reason in words.
pub fn plain(status: StatusCode, reason: &str) -> Response<Body> {
    let title = status.canonical_reason().unwrap_or("Error");
    let text = format!("{} {title}: {reason}\n", status.as_u16());
    let mut response = Response::new(Body::Full(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// A redirect to `location`.
pub fn redirect(status: StatusCode, location: HeaderValue) -> Response<Body> {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = status;
    response.headers_mut().insert(LOCATION, location);
    response
}

/// The failure as this client understands it: for gRPC (by the request's content type) status 200 with
/// `grpc-status` 4 for a timeout, 7 where policy forbids it, 8 for what is too large, 12 where there is nothing, 13 for
/// a malformed request, 16 without a password and 14 for the rest, else [`plain`].
pub fn failure(status: StatusCode, reason: &str, grpc: bool) -> Response<Body> {
    if !grpc {
        return plain(status, reason);
    }
    let code = match status {
        StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => "4",
        StatusCode::UNAUTHORIZED => "16",
        StatusCode::FORBIDDEN => "7",
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => "8",
        StatusCode::NOT_FOUND => "12",
        StatusCode::BAD_REQUEST | StatusCode::METHOD_NOT_ALLOWED => "13",
        _ => "14",
    };
    let mut response = Response::new(Body::Empty);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(HeaderName::from_static("grpc-status"), HeaderValue::from_static(code));
    let message = HeaderValue::from_str(reason).unwrap_or(HeaderValue::from_static("failed"));
    headers.insert(HeaderName::from_static("grpc-message"), message);
    response
}

/// Whether a request comes from a gRPC client.
pub fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}
