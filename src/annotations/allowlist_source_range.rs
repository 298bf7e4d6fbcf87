use super::{Annotation, AnnotationError, CLOSES, PolicyDraft, Unusable, values};

/// `allowlist-source-range`.
pub struct AllowlistSourceRange;

impl Annotation for AllowlistSourceRange {
    fn name(&self) -> &'static str {
        "allowlist-source-range"
    }

    fn doc(&self) -> &'static str {
        "The same as `whitelist-source-range`, and wins over it."
    }

    fn expects(&self) -> &'static str {
        values::NETWORKS
    }

    fn example(&self) -> &'static str {
        values::NETWORKS_EXAMPLE
    }

    fn default(&self) -> &'static str {
        "the setting `whitelist-source-range`"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        let networks = values::networks(value)?;
        if !networks.is_empty() {
            draft.allowed_sources = networks;
        }
        Ok(())
    }

    fn unusable(&self) -> Unusable {
        Unusable::Strict {
            apply: |draft| draft.refusal = Some("allowlist-source-range"),
            consequence: CLOSES,
        }
    }
}
