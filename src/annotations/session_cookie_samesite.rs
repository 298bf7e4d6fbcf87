use super::{Annotation, AnnotationError, PolicyDraft};
use crate::snapshot::affinity::SameSite;

/// `session-cookie-samesite`.
pub struct SessionCookieSamesite;

impl Annotation for SessionCookieSamesite {
    fn name(&self) -> &'static str {
        "session-cookie-samesite"
    }

    fn doc(&self) -> &'static str {
        "The `SameSite` of the cookie of `affinity`. Browsers take `None` with `Secure` only."
    }

    fn expects(&self) -> &'static str {
        "`None`, `Lax` or `Strict`"
    }

    fn example(&self) -> &'static str {
        "Lax"
    }

    fn default(&self) -> &'static str {
        "no such attribute"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        let known = [SameSite::None, SameSite::Lax, SameSite::Strict];
        let same_site = known.into_iter().find(|known| known.as_str().eq_ignore_ascii_case(value));
        draft.affinity.cookie.same_site = Some(same_site.ok_or(AnnotationError::Value)?);
        Ok(())
    }
}
