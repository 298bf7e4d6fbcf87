use super::{Annotation, AnnotationError, NO_ORIGIN, PolicyDraft, Unusable, values};

/// `cors-allow-credentials`.
pub struct CorsAllowCredentials;

impl Annotation for CorsAllowCredentials {
    fn name(&self) -> &'static str {
        "cors-allow-credentials"
    }

    fn doc(&self) -> &'static str {
        "Whether requests of pages of other origins may carry cookies, certificates and passwords, where `enable-cors` is on."
    }

    fn expects(&self) -> &'static str {
        "`true` or `false`"
    }

    fn example(&self) -> &'static str {
        "false"
    }

    fn default(&self) -> &'static str {
        "`true`"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.cors.credentials = values::boolean(value)?;
        Ok(())
    }

    fn unusable(&self) -> Unusable {
        Unusable::Strict { apply: |draft| draft.cors_refused = true, consequence: NO_ORIGIN }
    }
}
