use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `backend-mtls`.
pub struct BackendMtls;

impl Annotation for BackendMtls {
    fn name(&self) -> &'static str {
        "backend-mtls"
    }

    fn doc(&self) -> &'static str {
        "Endpoints are workloads of the mesh, spoken to over TLS (`HTTP` means `HTTPS`, `GRPC` means `GRPCS`): the gateway shows them its own certificate (setting `ca-gateway-account`) and accepts only a certificate of the workload CA with an identity in its trust domain. Without that setting nothing is forwarded to them."
    }

    fn expects(&self) -> &'static str {
        "`true` or `false`"
    }

    fn example(&self) -> &'static str {
        "true"
    }

    fn default(&self) -> &'static str {
        "`false`"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.backend_mtls = values::boolean(value)?;
        Ok(())
    }
}
