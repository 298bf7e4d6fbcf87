//! Phase 5: what a route changes of a request before its backend sees it.

use http::header::HOST;
use http::{HeaderValue, Request, StatusCode, Uri};

use super::refusal::Refusal;
use crate::proxy::body::Body;
use crate::proxy::headers::X_FORWARDED_PREFIX;
use crate::snapshot::rewrites::{Rewrite, RewriteError};

/// Changes path, Host and X-Forwarded-Prefix as the route says. The path is canonical, and so is the one that it becomes.
pub fn rewrite(request: &mut Request<Body>, rewrite: &Rewrite) -> Result<(), Box<Refusal>> {
    let captures = rewrite.captures(request.uri().path());
    let prefix = rewrite.prefix.as_ref().map(|prefix| {
        let filled = prefix.fill(&captures).and_then(|text| HeaderValue::try_from(text).ok());
        filled.ok_or_else(|| refusal(RewriteError::TooLong))
    });
    let target = rewrite.target.as_ref().map(|target| {
        let filled = target.fill(&captures, request.uri().query()).map_err(refusal)?;
        Uri::try_from(filled).map_err(|_| refusal(RewriteError::TooLong))
    });
    if let Some(target) = target {
        *request.uri_mut() = target?;
    }
    if let Some(prefix) = prefix {
        request.headers_mut().insert(X_FORWARDED_PREFIX, prefix?);
    }
    if let Some(host) = &rewrite.host {
        request.headers_mut().insert(HOST, host.clone());
    }
    Ok(())
}

fn refusal(error: RewriteError) -> Box<Refusal> {
    let status = match error {
        RewriteError::Path(_) => StatusCode::BAD_REQUEST,
        RewriteError::TooLong => StatusCode::URI_TOO_LONG,
    };
    Refusal::new(status, "rewrite", format!("the path of the request cannot be rewritten: {error}"))
}
