//! What the servers of both protocols ask of whoever answers requests.

use std::time::Duration;

use bytes::BytesMut;
use http::{Request, Response, Version};

use super::body::Body;
use super::client_stream::ClientStream;
use super::http1::{HeadError, HeadLimits};
use super::upstream::http1::Upgraded;

/// How long clients may take, and how much they may send, as the settings say at the time of each request.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub head: HeadLimits,
    /// From the first byte of a head to its last.
    pub header_timeout: Duration,
    /// Between two requests; zero ends the connection after each.
    pub keep_alive: Duration,
    /// Longest pause between two reads of a body or two writes of a response.
    pub body_timeout: Duration,
}

/// Answers requests.
pub trait Service {
    /// Answers one request.
    fn call(&self, request: Request<Body>) -> impl Future<Output = Response<Body>>;

    /// Answers what is no request: its head could not be read.
    fn refuse(&self, error: HeadError, version: Version) -> Response<Body>;

    /// The limits for the next request.
    fn limits(&self) -> Limits;

    /// Counts a request that ended in a panic while its connection goes on.
    fn panicked(&self);

    /// Takes over a connection whose protocol changed.
    fn upgraded(
        &self,
        client: ClientStream,
        read_ahead: BytesMut,
        backend: Upgraded,
    ) -> impl Future<Output = ()>;
}
