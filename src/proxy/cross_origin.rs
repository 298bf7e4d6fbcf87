//! A request of a page and what its response says about other origins.

use std::sync::Arc;

use http::header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};

use super::body::Body;
use crate::snapshot::cors::Cors;

/// The rules of a route, for one request.
pub struct CrossOrigin {
    cors: Arc<Cors>,
    origin: Option<HeaderValue>,
}

impl CrossOrigin {
    pub fn new(cors: &Arc<Cors>, headers: &HeaderMap) -> Self {
        Self { cors: cors.clone(), origin: headers.get(ORIGIN).cloned() }
    }

    /// The answer to a preflight. An `OPTIONS` that is none (Fetch standard, section 3.2.2) is for the backend.
    pub fn preflight(&self, request: &Request<Body>) -> Option<Response<Body>> {
        let is_preflight = *request.method() == Method::OPTIONS
            && self.origin.is_some()
            && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        is_preflight.then(|| {
            let mut response = Response::new(Body::Empty);
            *response.status_mut() = StatusCode::NO_CONTENT;
            *response.headers_mut() = self.cors.preflight(self.origin.as_ref());
            response
        })
    }

    /// Puts what the rules say into any other response.
    pub fn mark(&self, headers: &mut HeaderMap) {
        self.cors.mark(headers, self.origin.as_ref());
    }
}
