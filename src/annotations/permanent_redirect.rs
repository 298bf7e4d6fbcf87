use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `permanent-redirect`.
pub struct PermanentRedirect;

impl Annotation for PermanentRedirect {
    fn name(&self) -> &'static str {
        "permanent-redirect"
    }

    fn doc(&self) -> &'static str {
        "Answers every request with a redirect to a URL, without asking the backend; before any redirect to HTTPS. The variables `$scheme`, `$host`, `$http_host`, `$uri`, `$request_uri`, `$is_args`, `$args` and `$query_string` are filled in for each request."
    }

    fn expects(&self) -> &'static str {
        "an `http` or `https` URL or a path"
    }

    fn example(&self) -> &'static str {
        "https://new.example.com$request_uri"
    }

    fn default(&self) -> &'static str {
        "none"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.permanent_redirect = Some(values::location(value)?);
        Ok(())
    }
}
