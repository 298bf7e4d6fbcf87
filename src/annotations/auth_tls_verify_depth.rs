use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `auth-tls-verify-depth`.
pub struct AuthTlsVerifyDepth;

impl Annotation for AuthTlsVerifyDepth {
    fn name(&self) -> &'static str {
        "auth-tls-verify-depth"
    }

    fn doc(&self) -> &'static str {
        "Most certificates between that of a client and one in `ca.crt`; six at most are ever followed."
    }

    fn expects(&self) -> &'static str {
        "a whole number from 1"
    }

    fn example(&self) -> &'static str {
        "2"
    }

    fn default(&self) -> &'static str {
        "`1`"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.client_auth.depth = Some(values::count(value)?);
        Ok(())
    }
}
