use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `auth-tls-pass-certificate-to-upstream`.
pub struct AuthTlsPassCertificateToUpstream;

impl Annotation for AuthTlsPassCertificateToUpstream {
    fn name(&self) -> &'static str {
        "auth-tls-pass-certificate-to-upstream"
    }

    fn doc(&self) -> &'static str {
        "Backends get the client's certificate in `ssl-client-cert`, as percent-encoded PEM."
    }

    fn expects(&self) -> &'static str {
        "`true` or `false`"
    }

    fn example(&self) -> &'static str {
        "true"
    }

    fn default(&self) -> &'static str {
        "`false`"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.client_auth.pass_certificate = values::boolean(value)?;
        Ok(())
    }
}
