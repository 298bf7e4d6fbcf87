use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `permanent-redirect-code`.
pub struct PermanentRedirectCode;

impl Annotation for PermanentRedirectCode {
    fn name(&self) -> &'static str {
        "permanent-redirect-code"
    }

    fn doc(&self) -> &'static str {
        "Status of `permanent-redirect`."
    }

    fn expects(&self) -> &'static str {
        "301, 302, 303, 307 or 308"
    }

    fn example(&self) -> &'static str {
        "308"
    }

    fn default(&self) -> &'static str {
        "301"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.permanent_redirect_code = values::redirect_code(value)?;
        Ok(())
    }
}
