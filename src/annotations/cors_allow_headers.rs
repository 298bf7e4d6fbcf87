use super::{Annotation, AnnotationError, NO_ORIGIN, PolicyDraft, Unusable, values};

/// `cors-allow-headers`.
pub struct CorsAllowHeaders;

impl Annotation for CorsAllowHeaders {
    fn name(&self) -> &'static str {
        "cors-allow-headers"
    }

    fn doc(&self) -> &'static str {
        "The request header fields that pages of other origins may set, where `enable-cors` is on."
    }

    fn expects(&self) -> &'static str {
        "names of fields, separated by commas, or `*`"
    }

    fn example(&self) -> &'static str {
        "X-Forwarded-For, X-App123-XPTO"
    }

    fn default(&self) -> &'static str {
        "`DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,Cache-Control,Content-Type,Range,Authorization`"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.cors.headers = values::tokens(value)?;
        Ok(())
    }

    fn unusable(&self) -> Unusable {
        Unusable::Strict { apply: |draft| draft.cors_refused = true, consequence: NO_ORIGIN }
    }
}
