use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `app-root`.
pub struct AppRoot;

impl Annotation for AppRoot {
    fn name(&self) -> &'static str {
        "app-root"
    }

    fn doc(&self) -> &'static str {
        "Redirects requests for exactly `/` to this path (302), where `/` is served by the Ingress."
    }

    fn expects(&self) -> &'static str {
        "a path without variables"
    }

    fn example(&self) -> &'static str {
        "/shop"
    }

    fn default(&self) -> &'static str {
        "none"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.app_root = Some(values::path(value)?);
        Ok(())
    }
}
