use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `session-cookie-name`.
pub struct SessionCookieName;

impl Annotation for SessionCookieName {
    fn name(&self) -> &'static str {
        "session-cookie-name"
    }

    fn doc(&self) -> &'static str {
        "The name of the cookie of `affinity`. Services that share a host and the path of the cookie should have one each."
    }

    fn expects(&self) -> &'static str {
        "the name of a cookie, of at most 128 letters, digits and marks"
    }

    fn example(&self) -> &'static str {
        "route"
    }

    fn default(&self) -> &'static str {
        "`INGRESSCOOKIE`"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.affinity.cookie.name = values::token(value)?.into();
        Ok(())
    }
}
