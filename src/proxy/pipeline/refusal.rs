//! What the pipeline answers by itself, and why, for the log and metrics.

use std::borrow::Cow;

use http::Response;
use http::StatusCode;

use crate::proxy::answers;
use crate::proxy::body::Body;

/// A request that is answered without a backend.
pub struct Refusal {
    answer: Answer,
    /// For the log and metrics.
    pub reason: &'static str,
}

enum Answer {
    /// A status, and what is wrong in words.
    Error(StatusCode, Cow<'static, str>),
    /// A redirect, or the answer to a preflight.
    Ready(Response<Body>),
}

impl Refusal {
    pub fn new(status: StatusCode, reason: &'static str, message: impl Into<Cow<'static, str>>) -> Box<Self> {
        Box::new(Self { answer: Answer::Error(status, message.into()), reason })
    }

    pub fn bad_request(message: impl Into<Cow<'static, str>>) -> Box<Self> {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    pub fn no_route() -> Box<Self> {
        Self::new(StatusCode::NOT_FOUND, "no_route", "no route for this host and path")
    }

    pub fn ready(response: Response<Body>, reason: &'static str) -> Box<Self> {
        Box::new(Self { answer: Answer::Ready(response), reason })
    }

    /// The answer as the client understands it. A 421 stays one for gRPC too: it has the client open another
    /// connection (RFC 9110, section 15.5.20).
    pub fn into_response(self, grpc: bool) -> Response<Body> {
        match self.answer {
            Answer::Error(status, message) => {
                answers::failure(status, &message, grpc && status != StatusCode::MISDIRECTED_REQUEST)
            }
            Answer::Ready(response) => response,
        }
    }
}
