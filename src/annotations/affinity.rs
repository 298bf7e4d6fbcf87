use std::sync::Arc;

use super::{Annotation, AnnotationError, PolicyDraft};
use crate::snapshot::affinity::{self, AffinityMode, SessionCookie};

/// `affinity`.
pub struct Affinity;

/// What this and the annotations beside it decide.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AffinityDraft {
    pub by_cookie: bool,
    pub mode: AffinityMode,
    pub change_on_failure: bool,
    pub cookie: SessionCookie,
}

impl AffinityDraft {
    pub fn finish(self) -> Option<Arc<affinity::Affinity>> {
        let Self { by_cookie, mode, change_on_failure, cookie } = self;
        by_cookie.then(|| Arc::new(affinity::Affinity { mode, change_on_failure, cookie }))
    }
}

impl Annotation for Affinity {
    fn name(&self) -> &'static str {
        "affinity"
    }

    fn doc(&self) -> &'static str {
        "`cookie`: requests of one session go to one endpoint of the backend, which a cookie tells. The cookie names no address, and every replica of the gateway reads it alike. Where the endpoint has gone, another takes the session over; where it is listed but cannot be reached, another answers."
    }

    fn expects(&self) -> &'static str {
        "`cookie`"
    }

    fn example(&self) -> &'static str {
        "cookie"
    }

    fn default(&self) -> &'static str {
        "requests go to the endpoints in turn"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        match value {
            "cookie" => draft.affinity.by_cookie = true,
            _ => return Err(AnnotationError::Value),
        }
        Ok(())
    }
}
