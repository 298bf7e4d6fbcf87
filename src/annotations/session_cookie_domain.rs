use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `session-cookie-domain`.
pub struct SessionCookieDomain;

impl Annotation for SessionCookieDomain {
    fn name(&self) -> &'static str {
        "session-cookie-domain"
    }

    fn doc(&self) -> &'static str {
        "The `Domain` of the cookie of `affinity`, for hosts below it to share."
    }

    fn expects(&self) -> &'static str {
        "a host name, which may begin with a dot"
    }

    fn example(&self) -> &'static str {
        "example.com"
    }

    fn default(&self) -> &'static str {
        "the host of the request alone"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.affinity.cookie.domain = Some(values::cookie_domain(value)?.into());
        Ok(())
    }
}
