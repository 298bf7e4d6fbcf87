use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `cors-max-age`.
pub struct CorsMaxAge;

impl Annotation for CorsMaxAge {
    fn name(&self) -> &'static str {
        "cors-max-age"
    }

    fn doc(&self) -> &'static str {
        "The number of seconds for which browsers remember the answer to a preflight, where `enable-cors` is on."
    }

    fn expects(&self) -> &'static str {
        "a number of seconds"
    }

    fn example(&self) -> &'static str {
        "600"
    }

    fn default(&self) -> &'static str {
        "`1728000`"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.cors.max_age = values::whole(value)?.into();
        Ok(())
    }
}
