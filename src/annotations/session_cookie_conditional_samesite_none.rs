use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `session-cookie-conditional-samesite-none`.
pub struct SessionCookieConditionalSamesiteNone;

impl Annotation for SessionCookieConditionalSamesiteNone {
    fn name(&self) -> &'static str {
        "session-cookie-conditional-samesite-none"
    }

    fn doc(&self) -> &'static str {
        "Leaves out `SameSite=None` for browsers that do not know it and would take the cookie for `Strict` or not at all: Chrome 40 to 69, iOS 12, Safari on macOS 10.14."
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
        draft.affinity.cookie.conditional_same_site_none = values::boolean(value)?;
        Ok(())
    }
}
