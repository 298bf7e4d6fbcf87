use super::{Annotation, AnnotationError, PolicyDraft, values};
use crate::names::annotation::FROM_TO_WWW_REDIRECT;

/// `from-to-www-redirect`.
pub struct FromToWwwRedirect;

impl Annotation for FromToWwwRedirect {
    fn name(&self) -> &'static str {
        FROM_TO_WWW_REDIRECT
    }

    fn doc(&self) -> &'static str {
        "Redirects requests for the hosts of the Ingress with `www.` before them, or without it where they have it, to the hosts themselves, with the status of the setting `http-redirect-code`. Paths for which an Ingress has a rule are served there. The other host has the certificate of the host where that covers it."
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
        draft.from_to_www_redirect = values::boolean(value)?;
        Ok(())
    }
}
