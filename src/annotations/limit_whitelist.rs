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
