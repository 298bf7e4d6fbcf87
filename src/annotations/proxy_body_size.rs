use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `proxy-body-size`.
pub struct ProxyBodySize;

impl Annotation for ProxyBodySize {
    fn name(&self) -> &'static str {
        "proxy-body-size"
    }

    fn doc(&self) -> &'static str {
        "Largest request body, in bytes or with `k`, `m` or `g`; a larger one is answered with 413. 0 means no limit."
    }

    fn expects(&self) -> &'static str {
        "a size such as `8m`, or `0` for no limit"
    }

    fn example(&self) -> &'static str {
        "8m"
    }

    fn default(&self) -> &'static str {
        "the setting `proxy-body-size`"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        let size = values::size(value)?;
        draft.max_body = (size > 0).then_some(size);
        Ok(())
    }
}
