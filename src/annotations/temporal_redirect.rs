use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `temporal-redirect`.
pub struct TemporalRedirect;

impl Annotation for TemporalRedirect {
    fn name(&self) -> &'static str {
        "temporal-redirect"
    }

    fn doc(&self) -> &'static str {
        "As `permanent-redirect`, for the time being; wins over it."
    }

    fn expects(&self) -> &'static str {
        "an `http` or `https` URL or a path"
    }

    fn example(&self) -> &'static str {
        "https://elsewhere.example.com"
    }

    fn default(&self) -> &'static str {
        "none"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.temporal_redirect = Some(values::location(value)?);
        Ok(())
    }
}
