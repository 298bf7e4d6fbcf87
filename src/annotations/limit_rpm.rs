use super::{Annotation, AnnotationError, CLOSES, PolicyDraft, Unusable, values};

/// `limit-rpm`.
pub struct LimitRpm;

impl Annotation for LimitRpm {
    fn name(&self) -> &'static str {
        "limit-rpm"
    }

    fn doc(&self) -> &'static str {
        "The same in a minute. Both count where both are there."
    }

    fn expects(&self) -> &'static str {
        "a number, or `0` for no limit"
    }

    fn example(&self) -> &'static str {
        "300"
    }

    fn default(&self) -> &'static str {
        "no limit"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.limits.per_minute = values::whole(value)?;
        Ok(())
    }

    fn unusable(&self) -> Unusable {
        Unusable::Strict { apply: |draft| draft.refusal = Some("limit-rpm"), consequence: CLOSES }
    }
}
