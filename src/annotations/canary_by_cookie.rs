use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `canary-by-cookie`.
pub struct CanaryByCookie;

impl Annotation for CanaryByCookie {
    fn name(&self) -> &'static str {
        "canary-by-cookie"
    }

    fn doc(&self) -> &'static str {
        "The name of a cookie that says whether a request is the canary's: `always` or `never`. It comes before `canary-weight`, which decides where it says nothing."
    }

    fn expects(&self) -> &'static str {
        "the name of a cookie"
    }

    fn example(&self) -> &'static str {
        "canary"
    }

    fn default(&self) -> &'static str {
        "no such cookie"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.canary.cookie = Some(values::token(value)?.into());
        Ok(())
    }
}
