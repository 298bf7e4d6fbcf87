//! What the pipeline answers by itself, and why, for the log and metrics.

use http::Response;
use http::StatusCode;

use crate::proxy::answers;
use crate::proxy::body::Body;

/// A request that is answered without a backend.
pub struct Refusal {
    pub response: Response<Body>,
    /// For the log and metrics.
    pub reason: &'static str,
}

impl Refusal {
    pub fn new(status: StatusCode, reason: &'static str, message: &str) -> Box<Self> {
        Box::new(Self { response: answers::plain(status, message), reason })
    }

    pub fn bad_request(message: &str) -> Box<Self> {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    pub fn no_route() -> Box<Self> {
        Self::new(StatusCode::NOT_FOUND, "no_route", "no route for this host and path")
    }
}
