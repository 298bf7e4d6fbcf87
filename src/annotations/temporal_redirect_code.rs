use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `temporal-redirect-code`.
pub struct TemporalRedirectCode;

impl Annotation for TemporalRedirectCode {
    fn name(&self) -> &'static str {
        "temporal-redirect-code"
    }

    fn doc(&self) -> &'static str {
        "Status of `temporal-redirect`."
    }

    fn expects(&self) -> &'static str {
        "301, 302, 303, 307 or 308"
    }

    fn example(&self) -> &'static str {
        "307"
    }

    fn default(&self) -> &'static str {
        "302"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.temporal_redirect_code = values::redirect_code(value)?;
        Ok(())
    }
}
