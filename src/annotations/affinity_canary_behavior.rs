use super::{Annotation, AnnotationError, PolicyDraft};

/// `affinity-canary-behavior`.
pub struct AffinityCanaryBehavior;

impl Annotation for AffinityCanaryBehavior {
    fn name(&self) -> &'static str {
        "affinity-canary-behavior"
    }

    fn doc(&self) -> &'static str {
        "On a canary whose main Ingress has `affinity`: with `sticky`, a session stays with the canary or with the main backend, whichever it began with, before any other rule. With `legacy` the rules decide for each request, and sessions of the canary have the affinity that its own annotations say."
    }

    fn expects(&self) -> &'static str {
        "`sticky` or `legacy`"
    }

    fn example(&self) -> &'static str {
        "legacy"
    }

    fn default(&self) -> &'static str {
        "`sticky`"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.canary.legacy = match value {
            "sticky" => false,
            "legacy" => true,
            _ => return Err(AnnotationError::Value),
        };
        Ok(())
    }
}
