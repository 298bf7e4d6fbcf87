use super::{Annotation, AnnotationError, PolicyDraft};

/// `auth-realm`.
pub struct AuthRealm;

impl Annotation for AuthRealm {
    fn name(&self) -> &'static str {
        "auth-realm"
    }

    fn doc(&self) -> &'static str {
        "What browsers call the place that a password is for."
    }

    fn expects(&self) -> &'static str {
        "printable ASCII"
    }

    fn example(&self) -> &'static str {
        "Protected area"
    }

    fn default(&self) -> &'static str {
        "nothing"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        if !value.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') {
            return Err(AnnotationError::Value);
        }
        draft.auth.realm = value.to_owned();
        Ok(())
    }
}
