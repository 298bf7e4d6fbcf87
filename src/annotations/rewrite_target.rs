use std::sync::Arc;

use super::{Annotation, AnnotationError, CLOSES, PolicyDraft, Unusable};
use crate::snapshot::rewrites::Target;

/// `rewrite-target`.
pub struct RewriteTarget;

impl Annotation for RewriteTarget {
    fn name(&self) -> &'static str {
        "rewrite-target"
    }

    fn doc(&self) -> &'static str {
        "The path that backends get in place of the one that was asked for, with `$1` to `$9` for what the groups of the path have matched; a query stays, after one that the target has. Paths that are not this very text become regular expressions, with all that `use-regex` says. What is forwarded is a canonical path: a request whose groups make `.` or `..` of it gets 400. A value that cannot be used closes the routes of the Ingress (503)."
    }

    fn expects(&self) -> &'static str {
        "a path, with `$1` to `$9` for groups"
    }

    fn example(&self) -> &'static str {
        "/$2"
    }

    fn default(&self) -> &'static str {
        "none"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.rewriting.target = match value {
            "" => None,
            target => Some(Arc::new(Target::parse(target)?)),
        };
        Ok(())
    }

    fn unusable(&self) -> Unusable {
        Unusable::Strict { apply: |draft| draft.refusal = Some("rewrite-target"), consequence: CLOSES }
    }
}
