use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `preserve-trailing-slash`.
pub struct PreserveTrailingSlash;

impl Annotation for PreserveTrailingSlash {
    fn name(&self) -> &'static str {
        "preserve-trailing-slash"
    }

    fn doc(&self) -> &'static str {
        "Whether the redirect to HTTPS of `/` goes to `https://HOST/` and not `https://HOST`, which mean the same. Slashes at the end of longer paths always stay."
    }

    fn expects(&self) -> &'static str {
        "`true` or `false`"
    }

    fn example(&self) -> &'static str {
        "true"
    }

    fn default(&self) -> &'static str {
        "`false`"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.preserve_trailing_slash = values::boolean(value)?;
        Ok(())
    }
}
