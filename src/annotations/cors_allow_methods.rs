use super::{Annotation, AnnotationError, NO_ORIGIN, PolicyDraft, Unusable, values};

/// `cors-allow-methods`.
pub struct CorsAllowMethods;

impl Annotation for CorsAllowMethods {
    fn name(&self) -> &'static str {
        "cors-allow-methods"
    }

    fn doc(&self) -> &'static str {
        "The methods that pages of other origins may use, where `enable-cors` is on."
    }

    fn expects(&self) -> &'static str {
        "names of methods, separated by commas, or `*`"
    }

    fn example(&self) -> &'static str {
        "GET, PUT"
    }

    fn default(&self) -> &'static str {
        "`GET, PUT, POST, DELETE, PATCH, OPTIONS`"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.cors.methods = values::tokens(value)?;
        Ok(())
    }

    fn unusable(&self) -> Unusable {
        Unusable::Strict { apply: |draft| draft.cors_refused = true, consequence: NO_ORIGIN }
    }
}
