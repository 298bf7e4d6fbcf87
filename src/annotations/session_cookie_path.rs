use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `session-cookie-path`.
pub struct SessionCookiePath;

impl Annotation for SessionCookiePath {
    fn name(&self) -> &'static str {
        "session-cookie-path"
    }

    fn doc(&self) -> &'static str {
        "The `Path` of the cookie of `affinity`."
    }

    fn expects(&self) -> &'static str {
        "a path of visible ASCII characters other than `;`"
    }

    fn example(&self) -> &'static str {
        "/shop"
    }

    fn default(&self) -> &'static str {
        "the path of the rule"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.affinity.cookie.path = Some(values::cookie_path(value)?.into());
        Ok(())
    }
}
