use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `session-cookie-max-age`.
pub struct SessionCookieMaxAge;

impl Annotation for SessionCookieMaxAge {
    fn name(&self) -> &'static str {
        "session-cookie-max-age"
    }

    fn doc(&self) -> &'static str {
        "After how many seconds the cookie of `affinity` ends (`Max-Age`)."
    }

    fn expects(&self) -> &'static str {
        "a whole number of seconds, at least 1"
    }

    fn example(&self) -> &'static str {
        "172800"
    }

    fn default(&self) -> &'static str {
        "`session-cookie-expires`, else the end of the browser's session"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.affinity.cookie.max_age = Some(values::cookie_seconds(value)?);
        Ok(())
    }
}
