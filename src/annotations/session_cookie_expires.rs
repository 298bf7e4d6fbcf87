use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `session-cookie-expires`.
pub struct SessionCookieExpires;

impl Annotation for SessionCookieExpires {
    fn name(&self) -> &'static str {
        "session-cookie-expires"
    }

    fn doc(&self) -> &'static str {
        "The same as a date (`Expires`), for browsers that do not know `Max-Age`."
    }

    fn expects(&self) -> &'static str {
        "a whole number of seconds, at least 1"
    }

    fn example(&self) -> &'static str {
        "172800"
    }

    fn default(&self) -> &'static str {
        "`session-cookie-max-age`, else the end of the browser's session"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.affinity.cookie.expires = Some(values::cookie_seconds(value)?);
        Ok(())
    }
}
