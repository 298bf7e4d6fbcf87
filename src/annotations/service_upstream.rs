use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `service-upstream`. What it says is asked for backends and for routes by [`super::service_upstream`].
pub struct ServiceUpstream;

pub(super) const NAME: &str = "service-upstream";

impl Annotation for ServiceUpstream {
    fn name(&self) -> &'static str {
        NAME
    }

    fn doc(&self) -> &'static str {
        "Sends requests to the address and port of the Service (its cluster IP) and not to its endpoints, for a mesh or a network that balances them. Whether endpoints are ready is then not seen here. A Service without an address of its own (headless) is reached by its endpoints. Where policies of the mesh could be about its pods, requests are refused (403), for it is not known which of them would answer."
    }

    fn expects(&self) -> &'static str {
        "`true` or `false`"
    }

    fn example(&self) -> &'static str {
        "true"
    }

    fn default(&self) -> &'static str {
        "the setting `service-upstream`"
    }

    fn apply(&self, value: &str, _: &mut PolicyDraft) -> Result<(), AnnotationError> {
        values::boolean(value).map(drop)
    }
}
