use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `relative-redirects`.
pub struct RelativeRedirects;

impl Annotation for RelativeRedirects {
    fn name(&self) -> &'static str {
        "relative-redirects"
    }

    fn doc(&self) -> &'static str {
        "Sends the path of `permanent-redirect` and `temporal-redirect` as it is, and not as a URL of the host that was asked for."
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
        draft.relative_redirects = values::boolean(value)?;
        Ok(())
    }
}
