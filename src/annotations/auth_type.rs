use super::{Annotation, AnnotationError, CLOSES, PolicyDraft, Unusable};

/// `auth-type`.
pub struct AuthType;

impl Annotation for AuthType {
    fn name(&self) -> &'static str {
        "auth-type"
    }

    fn doc(&self) -> &'static str {
        "Asks for a name and password (RFC 7617) that the Secret `auth-secret` knows; without them the answer is **401**. The request goes on with them."
    }

    fn expects(&self) -> &'static str {
        "`basic`"
    }

    fn example(&self) -> &'static str {
        "basic"
    }

    fn default(&self) -> &'static str {
        "`basic` where there is `auth-secret`, else nothing is asked for"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        match value {
            "" => {}
            "basic" => draft.auth.basic = true,
            "digest" => return Err(AnnotationError::Unsupported),
            _ => return Err(AnnotationError::Value),
        }
        Ok(())
    }

    fn unusable(&self) -> Unusable {
        Unusable::Strict { apply: |draft| draft.refusal = Some("auth-type"), consequence: CLOSES }
    }
}
