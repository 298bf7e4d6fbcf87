use super::{Annotation, AnnotationError, CLOSES, PolicyDraft, Unusable, values};

/// `denylist-source-range`.
pub struct DenylistSourceRange;

impl Annotation for DenylistSourceRange {
    fn name(&self) -> &'static str {
        "denylist-source-range"
    }

    fn doc(&self) -> &'static str {
        "Clients that get **403**, also where `whitelist-source-range` names them."
    }

    fn expects(&self) -> &'static str {
        values::NETWORKS
    }

    fn example(&self) -> &'static str {
        "192.0.2.0/24"
    }

    fn default(&self) -> &'static str {
        "the setting `denylist-source-range`"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        let networks = values::networks(value)?;
        if !networks.is_empty() {
            draft.denied_sources = networks;
        }
        Ok(())
    }

    fn unusable(&self) -> Unusable {
        Unusable::Strict { apply: |draft| draft.refusal = Some("denylist-source-range"), consequence: CLOSES }
    }
}
