use super::{Annotation, AnnotationError, PolicyDraft};
use crate::snapshot::hosts::BackendProtocol as Protocol;

/// `backend-protocol`.
pub struct BackendProtocol;

impl Annotation for BackendProtocol {
    fn name(&self) -> &'static str {
        "backend-protocol"
    }

    fn doc(&self) -> &'static str {
        "What the endpoints speak, in upper or lower case: `HTTP` (HTTP/1.1), `HTTPS`, `GRPC` (HTTP/2 without TLS) or `GRPCS`. `AUTO_HTTP` and `FCGI` are not supported."
    }

    fn expects(&self) -> &'static str {
        "`HTTP`, `HTTPS`, `GRPC` or `GRPCS`"
    }

    fn example(&self) -> &'static str {
        "GRPC"
    }

    fn default(&self) -> &'static str {
        "`HTTP`"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.protocol = match value.to_ascii_uppercase().as_str() {
            "HTTP" => Protocol::Http1,
            "HTTPS" => Protocol::Https,
            "GRPC" => Protocol::H2c,
            "GRPCS" => Protocol::Grpcs,
            "AUTO_HTTP" | "FCGI" => return Err(AnnotationError::Unsupported),
            _ => return Err(AnnotationError::Value),
        };
        Ok(())
    }
}
