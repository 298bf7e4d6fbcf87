use super::{Annotation, AnnotationError, PolicyDraft};
use crate::snapshot::affinity::AffinityMode as Mode;

/// `affinity-mode`.
pub struct AffinityMode;

impl Annotation for AffinityMode {
    fn name(&self) -> &'static str {
        "affinity-mode"
    }

    fn doc(&self) -> &'static str {
        "`balanced`: an endpoint that comes takes over its share of the sessions. `persistent`: a session stays where it is for as long as its endpoint is there. The cookie then has a hash of Service and endpoint in it: who knows the Service's name can try addresses until one fits."
    }

    fn expects(&self) -> &'static str {
        "`balanced` or `persistent`"
    }

    fn example(&self) -> &'static str {
        "persistent"
    }

    fn default(&self) -> &'static str {
        "`balanced`"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.affinity.mode = match value {
            "balanced" => Mode::Balanced,
            "persistent" => Mode::Persistent,
            _ => return Err(AnnotationError::Value),
        };
        Ok(())
    }
}
