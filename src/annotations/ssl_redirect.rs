use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `ssl-redirect`.
pub struct SslRedirect;

impl Annotation for SslRedirect {
    fn name(&self) -> &'static str {
        "ssl-redirect"
    }

    fn doc(&self) -> &'static str {
        "Redirects plain HTTP to HTTPS where an Ingress of the host has a `tls` section."
    }

    fn expects(&self) -> &'static str {
        "`true` or `false`"
    }

    fn example(&self) -> &'static str {
        "false"
    }

    fn default(&self) -> &'static str {
        "the setting `ssl-redirect`"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.ssl_redirect = values::boolean(value)?;
        Ok(())
    }
}
