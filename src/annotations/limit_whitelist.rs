use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `limit-whitelist`.
pub struct LimitWhitelist;

impl Annotation for LimitWhitelist {
    fn name(&self) -> &'static str {
        "limit-whitelist"
    }

    fn doc(&self) -> &'static str {
        "Clients that `limit-rps`, `limit-rpm` and `limit-connections` are not for."
    }

    fn expects(&self) -> &'static str {
        values::NETWORKS
    }

    fn example(&self) -> &'static str {
        values::NETWORKS_EXAMPLE
    }

    fn default(&self) -> &'static str {
        "nobody"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.limits.exempt = values::networks(value)?;
        Ok(())
    }
}
