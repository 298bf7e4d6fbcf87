use std::sync::Arc;

use http::HeaderName;

use super::{Annotation, AnnotationError, PolicyDraft, values};
use crate::snapshot::canary::{CanaryRules, HeaderRule, HeaderValues};
use crate::snapshot::search::SearchPattern;

/// `canary`.
pub struct Canary;

/// What this and the annotations beside it decide.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CanaryDraft {
    pub enabled: bool,
    pub legacy: bool,
    pub header: Option<HeaderName>,
    /// Wins over `pattern`.
    pub value: Option<Box<str>>,
    pub pattern: Option<SearchPattern>,
    pub cookie: Option<Box<str>>,
    pub weight: u32,
    pub total: u32,
}

impl CanaryDraft {
    pub fn finish(&self) -> Option<Arc<CanaryRules>> {
        let header = self.header.clone().map(|name| HeaderRule { name, values: self.values() });
        let rules = || CanaryRules {
            sticky: !self.legacy,
            header,
            cookie: self.cookie.clone(),
            weight: self.weight,
            total: self.total.max(100),
        };
        self.enabled.then(|| Arc::new(rules()))
    }

    fn values(&self) -> HeaderValues {
        match (&self.value, &self.pattern) {
            (Some(value), _) => HeaderValues::Exactly(value.clone()),
            (None, Some(pattern)) => HeaderValues::Matching(pattern.clone()),
            (None, None) => HeaderValues::Words,
        }
    }
}

/// Whether an annotation of a canary has an effect there.
pub fn is_about_canaries(name: &str) -> bool {
    name.starts_with("canary") || name.starts_with("affinity") || name.starts_with("session-cookie-")
}

impl Annotation for Canary {
    fn name(&self) -> &'static str {
        "canary"
    }

    fn doc(&self) -> &'static str {
        "`true`: the Ingress is a canary. It gives some of the requests for the paths of another Ingress, the main one, to a backend of its own: see the annotations below. A path must be one of the main Ingress, with the same host and kind, in the same namespace; of several canaries for one path the oldest counts. Everything else, TLS included, is the main Ingress's: other annotations of a canary have no effect, but for `affinity` where `affinity-canary-behavior` is `legacy`."
    }

    fn expects(&self) -> &'static str {
        "`true` or `false`"
    }

    fn example(&self) -> &'static str {
        "true"
    }

    fn default(&self) -> &'static str {
        "`false`"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.canary.enabled = values::boolean(value)?;
        Ok(())
    }
}
