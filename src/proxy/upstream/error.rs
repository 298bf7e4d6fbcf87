//! What goes wrong on the way to a backend: in which phase, whether trying again is safe, and what the client is told.

use std::error::Error;
use std::fmt;

use http::StatusCode;

use crate::proxy::body::BodyError;
use crate::proxy::http1::RequestBodyError;
use crate::snapshot::policies;

/// Why a request got no (whole) response from a backend.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct UpstreamError {
    pub reason: Reason,
    pub retry: Retry,
    #[source]
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl UpstreamError {
    /// An error after which nothing must be sent again.
    pub fn new(reason: Reason) -> Self {
        Self { reason, retry: Retry::Never, source: None }
    }

    pub fn caused_by(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What the client is answered, as long as no response has begun. What was wrong with its own body it is told.
    pub fn status(&self) -> StatusCode {
        match self.body_error() {
            Some(BodyError::TooLarge) => StatusCode::PAYLOAD_TOO_LARGE,
            Some(BodyError::ClientHttp1(RequestBodyError::TimedOut)) => StatusCode::REQUEST_TIMEOUT,
            _ => self.reason.status(),
        }
    }

    /// Why the client's body broke off, however deep a library has wrapped it.
    fn body_error(&self) -> Option<&BodyError> {
        let mut source: Option<&(dyn Error + 'static)> = self.source.as_deref().map(|source| source as _);
        while let Some(error) = source {
            if let Some(error) = error.downcast_ref() {
                return Some(error);
            }
            source = error.source();
        }
        None
    }

    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }
}

impl From<Reason> for UpstreamError {
    fn from(reason: Reason) -> Self {
        Self::new(reason)
    }
}

/// Whether the request may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// No backend can have seen it.
    Safe,
    /// A kept-alive connection was closed before any byte of a response. The backend most likely never read the
    /// request, but nothing proves it: only for methods that may be repeated (RFC 9110, section 9.2.2).
    IfIdempotent,
    Never,
}

/// How far the request got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Connect,
    Tls,
    Send,
    Response,
}

/// One reason for each thing an operator would do something different about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The cluster has no endpoint; the words say why.
    NoEndpoint(&'static str),
    NameNotFound,
    ConnectRefused,
    ConnectFailed,
    ConnectTimeout,
    TlsFailed,
    /// The node proxy of the workload gives the gateway no tunnel.
    TunnelRefused,
    /// The backend takes none of the protocols that its annotation promises.
    TlsProtocol,
    CertUnknownCa,
    CertWrongName,
    CertExpired,
    CertInvalid,
    SendFailed,
    SendTimeout,
    /// The client's request body broke off or was malformed.
    ClientBody,
    /// Host is no authority, which an HTTP/2 request needs.
    ClientHost,
    /// CONNECT cannot be sent to a backend.
    Method,
    /// The policies of the endpoint deny the client.
    Denied(policies::Reason),
    /// They denied it while it was being served.
    PolicyChanged,
    /// Closed before a whole response head.
    Closed,
    ReadTimeout,
    /// Not HTTP, or ambiguous in its framing; the words say what.
    InvalidResponse(&'static str),
    ResponseHeadTooLarge,
    /// Closed in the middle of the response body.
    BodyTruncated,
    /// An HTTP/2 stream or connection error.
    Http2,
}

impl Reason {
    /// A stable word for logs, metrics and error pages.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoEndpoint(_) => "upstream_no_endpoint",
            Self::NameNotFound => "upstream_name_not_found",
            Self::ConnectRefused => "upstream_connect_refused",
            Self::ConnectFailed => "upstream_connect_failed",
            Self::ConnectTimeout => "upstream_connect_timeout",
            Self::TlsFailed => "upstream_tls_failed",
            Self::TunnelRefused => "upstream_tunnel_refused",
            Self::TlsProtocol => "upstream_tls_protocol",
            Self::CertUnknownCa => "upstream_cert_unknown_ca",
            Self::CertWrongName => "upstream_cert_wrong_name",
            Self::CertExpired => "upstream_cert_expired",
            Self::CertInvalid => "upstream_cert_invalid",
            Self::SendFailed => "upstream_send_failed",
            Self::SendTimeout => "upstream_send_timeout",
            Self::ClientBody => "client_body",
            Self::ClientHost => "client_host",
            Self::Method => "method_not_allowed",
            Self::Denied(_) => "policy_denied",
            Self::PolicyChanged => "policy_changed",
            Self::Closed => "upstream_closed",
            Self::ReadTimeout => "upstream_timeout",
            Self::InvalidResponse(_) => "upstream_invalid_response",
            Self::ResponseHeadTooLarge => "upstream_response_head_too_large",
            Self::BodyTruncated => "upstream_body_truncated",
            Self::Http2 => "upstream_http2",
        }
    }

    /// What the client is answered, as long as no response has begun.
    pub fn status(self) -> StatusCode {
        match self {
            Self::NoEndpoint(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::ConnectTimeout | Self::SendTimeout | Self::ReadTimeout => StatusCode::GATEWAY_TIMEOUT,
            Self::ClientBody | Self::ClientHost => StatusCode::BAD_REQUEST,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Denied(_) | Self::PolicyChanged => StatusCode::FORBIDDEN,
            _ => StatusCode::BAD_GATEWAY,
        }
    }

    pub fn phase(self) -> Phase {
        match self {
            Self::NoEndpoint(_)
            | Self::NameNotFound
            | Self::ConnectRefused
            | Self::ConnectFailed
            | Self::ConnectTimeout => Phase::Connect,
            Self::TlsFailed
            | Self::TunnelRefused
            | Self::TlsProtocol
            | Self::CertUnknownCa
            | Self::CertWrongName
            | Self::CertExpired
            | Self::CertInvalid => Phase::Tls,
            Self::SendFailed
            | Self::SendTimeout
            | Self::ClientBody
            | Self::ClientHost
            | Self::Method
            | Self::Denied(_)
            | Self::PolicyChanged => Phase::Send,
            Self::Closed
            | Self::ReadTimeout
            | Self::InvalidResponse(_)
            | Self::ResponseHeadTooLarge
            | Self::BodyTruncated
            | Self::Http2 => Phase::Response,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoEndpoint(why) | Self::InvalidResponse(why) => write!(f, "{}: {why}", self.name()),
            Self::Denied(why) => write!(f, "{}: {}", self.name(), why.to_client()),
            _ => f.write_str(self.name()),
        }
    }
}
