use std::sync::Arc;

use super::{Annotation, AnnotationError, PolicyDraft};
use crate::snapshot::rewrites::Template;

/// `x-forwarded-prefix`.
pub struct XForwardedPrefix;

impl Annotation for XForwardedPrefix {
    fn name(&self) -> &'static str {
        "x-forwarded-prefix"
    }

    fn doc(&self) -> &'static str {
        "Tells backends in `X-Forwarded-Prefix` below which path they are reached, in place of what a client sent; with `$1` to `$9` for what the groups of the path have matched."
    }

    fn expects(&self) -> &'static str {
        "a path, with `$1` to `$9` for groups"
    }

    fn example(&self) -> &'static str {
        "/shop"
    }

    fn default(&self) -> &'static str {
        "what the client sent"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.rewriting.prefix = match value {
            "" => None,
            prefix => Some(Arc::new(Template::parse(prefix)?)),
        };
        Ok(())
    }
}
