use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `limit-allowlist`.
pub struct LimitAllowlist;

impl Annotation for LimitAllowlist {
    fn name(&self) -> &'static str {
        "limit-allowlist"
    }

    fn doc(&self) -> &'static str {
        "The same as `limit-whitelist`, and wins over it."
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
