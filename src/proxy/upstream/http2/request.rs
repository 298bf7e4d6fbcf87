//! The head of a request as HTTP/2 has it (RFC 9113, section 8.3.1): `:authority` for Host, no connection fields.

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, Uri, header};
use http_body::Body as _;

use crate::proxy::body::Body;
use crate::proxy::upstream::Head;

/// `None` where Host is no authority.
pub fn request_for(head: Head<'_>, scheme: Scheme, body: &Body) -> Option<Request<()>> {
    let Head { parts, about } = head;
    let host = parts.headers.get(header::HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let mut uri = http::uri::Parts::default();
    uri.scheme = Some(scheme);
    uri.authority = host.or_else(|| parts.uri.authority().cloned());
    uri.path_and_query =
        Some(parts.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/")));
    let mut request = Request::new(());
    *request.uri_mut() = Uri::from_parts(uri).ok()?;
    *request.method_mut() = parts.method.clone();
    *request.headers_mut() = headers_for(&parts.headers);
    about.insert_into(request.headers_mut());
    if let Some(length) = content_length(&parts.method, body) {
        request.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    Some(request)
}

fn headers_for(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    for name in [
        header::HOST,
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
        header::CONNECTION,
        header::UPGRADE,
        header::EXPECT,
    ] {
        headers.remove(name);
    }
    for name in ["keep-alive", "proxy-connection", "http2-settings"] {
        headers.remove(name);
    }
    // The one value that may pass, and gRPC insists on it.
    if headers.get(header::TE).is_some_and(|te| te.as_bytes() != b"trailers") {
        headers.remove(header::TE);
    }
    headers
}

/// Where it is known; that there is nothing goes without saying for methods that rarely have a body (RFC 9110,
/// section 8.6).
fn content_length(method: &Method, body: &Body) -> Option<u64> {
    let length = body.size_hint().exact()?;
    let expected = !matches!(*method, Method::GET | Method::HEAD | Method::DELETE);
    (length > 0 || expected).then_some(length)
}
