use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `auth-tls-error-page`.
pub struct AuthTlsErrorPage;

impl Annotation for AuthTlsErrorPage {
    fn name(&self) -> &'static str {
        "auth-tls-error-page"
    }

    fn doc(&self) -> &'static str {
        "Clients whose certificate is missing or bad are sent there (302) in place of the answer 400. One that asks for that very page of the host itself gets 400."
    }

    fn expects(&self) -> &'static str {
        "an `http` or `https` URL or a path, in which variables of nginx may stand as for `permanent-redirect`"
    }

    fn example(&self) -> &'static str {
        "https://www.example.com/no-certificate"
    }

    fn default(&self) -> &'static str {
        "the answer 400"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.client_auth.error_page = Some(values::location(value)?);
        Ok(())
    }
}
