use super::{Annotation, AnnotationError, PolicyDraft};
use crate::snapshot::canary::HEADER_PATTERN;
use crate::snapshot::search::SearchPattern;

/// `canary-by-header-pattern`.
pub struct CanaryByHeaderPattern;

impl Annotation for CanaryByHeaderPattern {
    fn name(&self) -> &'static str {
        "canary-by-header-pattern"
    }

    fn doc(&self) -> &'static str {
        "Requests with a match of this regular expression in the field of `canary-by-header` are the canary's; without effect beside `canary-by-header-value`. Look-around and references to groups are not supported."
    }

    fn expects(&self) -> &'static str {
        "a regular expression of at most 1024 characters"
    }

    fn example(&self) -> &'static str {
        "^beta-[0-9]+$"
    }

    fn default(&self) -> &'static str {
        "`always` and `never` count"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.canary.pattern =
            Some(SearchPattern::new(value, HEADER_PATTERN).map_err(|_| AnnotationError::Value)?);
        Ok(())
    }
}
