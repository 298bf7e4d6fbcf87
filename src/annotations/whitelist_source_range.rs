use super::{Annotation, AnnotationError, CLOSES, PolicyDraft, Unusable, values};

/// `whitelist-source-range`.
pub struct WhitelistSourceRange;

impl Annotation for WhitelistSourceRange {
    fn name(&self) -> &'static str {
        "whitelist-source-range"
    }

    fn doc(&self) -> &'static str {
        "The clients that may use the routes; others get **403**. The client is the one of the connection, of its PROXY protocol header, or of `X-Forwarded-For` where the setting `use-forwarded-headers` has it believed. Requests that are redirected are redirected first. An empty value says nothing."
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
            apply: |draft| draft.refusal = Some("whitelist-source-range"),
            consequence: CLOSES,
        }
    }
}
