use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `session-cookie-secure`.
pub struct SessionCookieSecure;

impl Annotation for SessionCookieSecure {
    fn name(&self) -> &'static str {
        "session-cookie-secure"
    }

    fn doc(&self) -> &'static str {
        "Whether the cookie of `affinity` is `Secure`."
    }

    fn expects(&self) -> &'static str {
        "`true` or `false`"
    }

    fn example(&self) -> &'static str {
        "true"
    }

    fn default(&self) -> &'static str {
        "it is where the client came over TLS, to the gateway or to a load balancer that is believed about it"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.affinity.cookie.secure = Some(values::boolean(value)?);
        Ok(())
    }
}
