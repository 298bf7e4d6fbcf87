use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `cors-expose-headers`.
pub struct CorsExposeHeaders;

impl Annotation for CorsExposeHeaders {
    fn name(&self) -> &'static str {
        "cors-expose-headers"
    }

    fn doc(&self) -> &'static str {
        "The response header fields that pages of other origins may read, where `enable-cors` is on."
    }

    fn expects(&self) -> &'static str {
        "names of fields, separated by commas, or `*`"
    }

    fn example(&self) -> &'static str {
        "X-Count, X-Page"
    }

    fn default(&self) -> &'static str {
        "none but those that every page may read"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.cors.exposed = if value.is_empty() { None } else { Some(values::tokens(value)?) };
        Ok(())
    }
}
