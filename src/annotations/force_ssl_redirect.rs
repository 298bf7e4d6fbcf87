use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `force-ssl-redirect`.
pub struct ForceSslRedirect;

impl Annotation for ForceSslRedirect {
    fn name(&self) -> &'static str {
        "force-ssl-redirect"
    }

    fn doc(&self) -> &'static str {
        "Redirects plain HTTP to HTTPS even where no Ingress of the host has a `tls` section, for TLS that ends in front of Portcullis. Wins over `ssl-redirect`."
    }

    fn expects(&self) -> &'static str {
        "`true` or `false`"
    }

    fn example(&self) -> &'static str {
        "true"
    }

    fn default(&self) -> &'static str {
        "the setting `force-ssl-redirect`"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.force_ssl_redirect = values::boolean(value)?;
        Ok(())
    }
}
