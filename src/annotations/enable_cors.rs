use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `enable-cors`.
pub struct EnableCors;

impl Annotation for EnableCors {
    fn name(&self) -> &'static str {
        "enable-cors"
    }

    fn doc(&self) -> &'static str {
        "Has the gateway say which pages of other origins may use the routes (CORS): it answers their preflights, also in the clear where others are redirected to HTTPS, and what the backend says about other origins is taken out. The annotations `cors-*` say which."
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
        draft.enable_cors = values::boolean(value)?;
        Ok(())
    }
}
