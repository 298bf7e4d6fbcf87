use super::{Annotation, AnnotationError, PolicyDraft};

/// `auth-secret-type`.
pub struct AuthSecretType;

impl Annotation for AuthSecretType {
    fn name(&self) -> &'static str {
        "auth-secret-type"
    }

    fn doc(&self) -> &'static str {
        "Where the Secret `auth-secret` has the users: in the lines of its key `auth`, or one under each key, with the hash as the value."
    }

    fn expects(&self) -> &'static str {
        "`auth-file` or `auth-map`"
    }

    fn example(&self) -> &'static str {
        "auth-map"
    }

    fn default(&self) -> &'static str {
        "`auth-file`"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.auth.is_map = match value {
            "auth-file" => false,
            "auth-map" => true,
            _ => return Err(AnnotationError::Value),
        };
        Ok(())
    }
}
