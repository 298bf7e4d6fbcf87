use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `canary-by-header`.
pub struct CanaryByHeader;

impl Annotation for CanaryByHeader {
    fn name(&self) -> &'static str {
        "canary-by-header"
    }

    fn doc(&self) -> &'static str {
        "The name of a header field that says whether a request is the canary's: `always` or `never`, unless `canary-by-header-value` or `canary-by-header-pattern` says otherwise. It comes before `canary-by-cookie` and `canary-weight`, which decide where it says nothing."
    }

    fn expects(&self) -> &'static str {
        "the name of a header field"
    }

    fn example(&self) -> &'static str {
        "X-Canary"
    }

    fn default(&self) -> &'static str {
        "no such field"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        let name = values::token(value)?.parse().map_err(|_| AnnotationError::Value)?;
        draft.canary.header = Some(name);
        Ok(())
    }
}
