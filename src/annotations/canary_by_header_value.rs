use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `canary-by-header-value`.
pub struct CanaryByHeaderValue;

impl Annotation for CanaryByHeaderValue {
    fn name(&self) -> &'static str {
        "canary-by-header-value"
    }

    fn doc(&self) -> &'static str {
        "Requests with exactly this in the field of `canary-by-header` are the canary's."
    }

    fn expects(&self) -> &'static str {
        "what the value of a header field may be, of at most 1024 characters"
    }

    fn example(&self) -> &'static str {
        "beta"
    }

    fn default(&self) -> &'static str {
        "`always` and `never` count"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.canary.value = Some(values::field_value(value)?.into());
        Ok(())
    }
}
