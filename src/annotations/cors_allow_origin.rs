use super::{Annotation, AnnotationError, NO_ORIGIN, PolicyDraft, Unusable, values};

/// `cors-allow-origin`.
pub struct CorsAllowOrigin;

impl Annotation for CorsAllowOrigin {
    fn name(&self) -> &'static str {
        "cors-allow-origin"
    }

    fn doc(&self) -> &'static str {
        "The origins whose pages may use the routes, where `enable-cors` is on. `https://*.example.com` stands for those with one more label in front. With `*` alone every page may, without cookies: browsers do not send any there."
    }

    fn expects(&self) -> &'static str {
        "`*`, or origins such as `https://example.com`, `https://*.example.com:8443` or `null`, separated by commas"
    }

    fn example(&self) -> &'static str {
        "https://shop.example.com, https://*.example.com"
    }

    fn default(&self) -> &'static str {
        "`*`"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.cors.origins = values::origins(value)?;
        Ok(())
    }

    fn unusable(&self) -> Unusable {
        Unusable::Strict { apply: |draft| draft.cors_refused = true, consequence: NO_ORIGIN }
    }
}
