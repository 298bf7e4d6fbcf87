use super::{Annotation, AnnotationError, CLOSES, PolicyDraft, Unusable, values};

/// `limit-rps`.
pub struct LimitRps;

impl Annotation for LimitRps {
    fn name(&self) -> &'static str {
        "limit-rps"
    }

    fn doc(&self) -> &'static str {
        "The requests in a second that one client may make to the routes of the Ingress together; `limit-burst-multiplier` times as many may come ahead of their time. More get **503** (setting `limit-req-status-code`). Who a client is `whitelist-source-range` says; addresses of IPv6 count by their /64. Each replica of the gateway counts what it sees."
    }

    fn expects(&self) -> &'static str {
        "a number, or `0` for no limit"
    }

    fn example(&self) -> &'static str {
        "10"
    }

    fn default(&self) -> &'static str {
        "no limit"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.limits.per_second = values::whole(value)?;
        Ok(())
    }

    fn unusable(&self) -> Unusable {
        Unusable::Strict { apply: |draft| draft.refusal = Some("limit-rps"), consequence: CLOSES }
    }
}
