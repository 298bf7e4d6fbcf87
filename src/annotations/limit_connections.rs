use super::{Annotation, AnnotationError, CLOSES, PolicyDraft, Unusable, values};

/// `limit-connections`.
pub struct LimitConnections;

impl Annotation for LimitConnections {
    fn name(&self) -> &'static str {
        "limit-connections"
    }

    fn doc(&self) -> &'static str {
        "The requests of one client, as for `limit-rps`, that are answered at once, WebSockets among them. More get **503** (setting `limit-conn-status-code`)."
    }

    fn expects(&self) -> &'static str {
        "a number, or `0` for no limit"
    }

    fn example(&self) -> &'static str {
        "20"
    }

    fn default(&self) -> &'static str {
        "no limit"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.limits.connections = values::whole(value)?;
        Ok(())
    }

    fn unusable(&self) -> Unusable {
        Unusable::Strict { apply: |draft| draft.refusal = Some("limit-connections"), consequence: CLOSES }
    }
}
