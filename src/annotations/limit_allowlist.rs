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
        "networks or addresses such as `10.0.0.0/8, 2001:db8::1`, separated by commas"
    }

    fn example(&self) -> &'static str {
        "10.0.0.0/8, 192.0.2.7"
    }

    fn default(&self) -> &'static str {
        "nobody"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.limits.exempt = values::networks(value)?;
        Ok(())
    }
}
