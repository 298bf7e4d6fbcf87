use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `session-cookie-change-on-failure`.
pub struct SessionCookieChangeOnFailure;

impl Annotation for SessionCookieChangeOnFailure {
    fn name(&self) -> &'static str {
        "session-cookie-change-on-failure"
    }

    fn doc(&self) -> &'static str {
        "Where the endpoint of a session could not answer and another did: `true` gives the session to the other one by a new cookie, `false` tries the old one first the next time."
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
        draft.affinity.change_on_failure = values::boolean(value)?;
        Ok(())
    }
}
