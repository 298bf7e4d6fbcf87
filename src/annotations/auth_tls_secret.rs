use super::{Annotation, AnnotationError, PolicyDraft};

/// `auth-tls-secret`.
pub struct AuthTlsSecret;

impl Annotation for AuthTlsSecret {
    fn name(&self) -> &'static str {
        "auth-tls-secret"
    }

    fn doc(&self) -> &'static str {
        "Clients of the hosts of the Ingress are asked for a certificate, which must lead to one of those in `ca.crt` of this Secret; where the Secret has a `ca.crl` too, every authority on the way needs a revocation list there that is in force. The host answers 400 without a good certificate, and tells backends about the client in `ssl-client-verify`, `ssl-client-subject-dn` and `ssl-client-issuer-dn`. It holds for the whole host, with the routes of other Ingresses; the oldest Ingress of a host that has the annotation decides. Where the Secret is missing or has nothing to verify with, the host answers 403. Without TLS the host redirects to HTTPS, or answers 403 where `ssl-redirect` is `false`. See docs/client-certificates.md."
    }

    fn expects(&self) -> &'static str {
        "the name of a Secret of the Ingress's own namespace, or that namespace, `/` and the name"
    }

    fn example(&self) -> &'static str {
        "shop/client-ca"
    }

    fn default(&self) -> &'static str {
        "clients are asked for nothing"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        // An empty value asks for nothing, as everywhere.
        draft.client_auth.secret = Some(value.to_owned()).filter(|value| !value.is_empty());
        Ok(())
    }
}
