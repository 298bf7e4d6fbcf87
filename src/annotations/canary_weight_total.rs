use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `canary-weight-total`.
pub struct CanaryWeightTotal;

impl Annotation for CanaryWeightTotal {
    fn name(&self) -> &'static str {
        "canary-weight-total"
    }

    fn doc(&self) -> &'static str {
        "What `canary-weight` is a part of; less than 100 counts as 100."
    }

    fn expects(&self) -> &'static str {
        "a whole number"
    }

    fn example(&self) -> &'static str {
        "1000"
    }

    fn default(&self) -> &'static str {
        "100"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.canary.total = values::whole(value)?;
        Ok(())
    }
}
