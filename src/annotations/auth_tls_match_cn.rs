use std::sync::Arc;

use super::{Annotation, AnnotationError, PolicyDraft};
use crate::snapshot::client_auth::SUBJECT_PATTERN;
use crate::snapshot::search::SearchPattern;

/// `auth-tls-match-cn`.
pub struct AuthTlsMatchCn;

impl Annotation for AuthTlsMatchCn {
    fn name(&self) -> &'static str {
        "auth-tls-match-cn"
    }

    fn doc(&self) -> &'static str {
        "Only clients are let in whose subject matches; others get 403. The pattern is matched against the whole subject, such as `CN=web,O=Shop,C=DE`, anywhere in it and with regard to case: `CN=web` is for `CN=website` and for `O=CN=web` too, `^CN=web(,|$)` is not. Lookaround and backreferences do not exist; with a pattern that cannot be used the host answers 403."
    }

    fn expects(&self) -> &'static str {
        "a regular expression"
    }

    fn example(&self) -> &'static str {
        "^CN=(web|app)(,|$)"
    }

    fn default(&self) -> &'static str {
        "every subject is let in"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        let pattern = || SearchPattern::new(value, SUBJECT_PATTERN).map(Arc::new);
        draft.client_auth.subject = (!value.is_empty()).then(pattern);
        Ok(())
    }
}
