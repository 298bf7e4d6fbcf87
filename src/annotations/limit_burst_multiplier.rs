use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `limit-burst-multiplier`.
pub struct LimitBurstMultiplier;

impl Annotation for LimitBurstMultiplier {
    fn name(&self) -> &'static str {
        "limit-burst-multiplier"
    }

    fn doc(&self) -> &'static str {
        "How many times the number of `limit-rps` and `limit-rpm` may come ahead of their time."
    }

    fn expects(&self) -> &'static str {
        "a number"
    }

    fn example(&self) -> &'static str {
        "1"
    }

    fn default(&self) -> &'static str {
        "`5`"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.limits.burst_multiplier = values::whole(value)?;
        Ok(())
    }
}
