use super::{Annotation, AnnotationError, PolicyDraft};

/// `satisfy`.
pub struct Satisfy;

impl Annotation for Satisfy {
    fn name(&self) -> &'static str {
        "satisfy"
    }

    fn doc(&self) -> &'static str {
        "Whether a client needs both an address that `whitelist-source-range` and `denylist-source-range` let in and a password, or one of the two."
    }

    fn expects(&self) -> &'static str {
        "`all` or `any`"
    }

    fn example(&self) -> &'static str {
        "any"
    }

    fn default(&self) -> &'static str {
        "`all`"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.auth.or_source = match value {
            "all" => false,
            "any" => true,
            _ => return Err(AnnotationError::Value),
        };
        Ok(())
    }
}
