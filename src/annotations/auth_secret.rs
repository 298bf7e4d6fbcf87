use super::{Annotation, AnnotationError, PolicyDraft};

/// `auth-secret`.
pub struct AuthSecret;

impl Annotation for AuthSecret {
    fn name(&self) -> &'static str {
        "auth-secret"
    }

    fn doc(&self) -> &'static str {
        "The Secret with the users and their hashed passwords: bcrypt (a cost of 16 at most), `$apr1$`, `$1$`, `{SHA}` or `{SSHA}`, as `htpasswd` makes them. It must be of the namespace of the Ingress. Without it, or with nobody in it, requests are refused (503). A password that is slow to check is checked beside the traffic, one at a time for each worker, and known again afterwards."
    }

    fn expects(&self) -> &'static str {
        "the name of a Secret"
    }

    fn example(&self) -> &'static str {
        "users"
    }

    fn default(&self) -> &'static str {
        "nobody"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.auth.secret = (!value.is_empty()).then(|| value.to_owned());
        Ok(())
    }
}
