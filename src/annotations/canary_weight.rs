use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `canary-weight`.
pub struct CanaryWeight;

impl Annotation for CanaryWeight {
    fn name(&self) -> &'static str {
        "canary-weight"
    }

    fn doc(&self) -> &'static str {
        "How many of a hundred requests are the canary's, or of as many as `canary-weight-total` says. A canary whose backend has no ready endpoint gets none."
    }

    fn expects(&self) -> &'static str {
        "a whole number"
    }

    fn example(&self) -> &'static str {
        "10"
    }

    fn default(&self) -> &'static str {
        "0"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.canary.weight = values::whole(value)?;
        Ok(())
    }
}
