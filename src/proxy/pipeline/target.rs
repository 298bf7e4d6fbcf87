//! What a request asks for: the host that it names and its path, each in the canonical form by which routes are found,
//! or a refusal. What is matched here is what the backend gets, or what the route makes of it, so the two can never disagree.

use std::borrow::Cow;

use http::header::HOST;
use http::{HeaderValue, Request, Uri, Version};

use super::refusal::Refusal;
use crate::names::canonical_host;
use crate::proxy::body::Body;
use crate::snapshot::paths::canonical_path;

/// The host and port that the client named. HTTP/1.0 clients may do without.
pub fn authority(request: &Request<Body>) -> Result<Option<HeaderValue>, Box<Refusal>> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let field = hosts.next();
    if hosts.next().is_some() {
        return Err(Refusal::bad_request("the request has more than one Host"));
    }
    let Some(target) = request.uri().authority() else {
        // RFC 9113, section 8.3.1: one of the two must be there.
        return match field {
            None if request.version() == Version::HTTP_2 => {
                Err(Refusal::bad_request("the request has no host"))
            }
            field => Ok(field.cloned()),
        };
    };
    // RFC 9113, section 8.3.1, and RFC 9112, section 3.2.2: the target wins; one that contradicts is refused.
    if let Some(field) = field
        && canonical_host(authority_text(field)).ok() != canonical_host(target.as_str()).ok()
    {
        return Err(Refusal::bad_request("Host and the target of the request name different hosts"));
    }
    let value = HeaderValue::from_str(target.as_str());
    value.map(Some).map_err(|_| Refusal::bad_request("the host of the request is malformed"))
}

/// Its text; what is not ASCII is no host either.
pub fn authority_text(value: &HeaderValue) -> &str {
    value.to_str().unwrap_or("\u{0}")
}

/// Brings the path into its canonical form, the one that is matched and forwarded.
pub fn canonicalise_path(request: &mut Request<Body>) -> Result<(), Box<Refusal>> {
    let uri = request.uri();
    if !uri.path().starts_with('/') {
        return Err(Refusal::bad_request("the request target is not a path"));
    }
    let path = canonical_path(uri.path())
        .map_err(|error| Refusal::bad_request(format!("the path of the request is malformed: {error}")))?;
    if let Cow::Owned(path) = path {
        let target = match uri.query() {
            Some(query) => format!("{path}?{query}"),
            None => path,
        };
        *request.uri_mut() = Uri::try_from(target)
            .map_err(|_| Refusal::bad_request("the path of the request is malformed"))?;
    }
    Ok(())
}
