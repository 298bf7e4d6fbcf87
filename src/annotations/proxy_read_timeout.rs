use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `proxy-read-timeout`.
pub struct ProxyReadTimeout;

impl Annotation for ProxyReadTimeout {
    fn name(&self) -> &'static str {
        "proxy-read-timeout"
    }

    fn doc(&self) -> &'static str {
        "Longest wait for the response of an endpoint and longest pause within it, in seconds; for WebSockets, and for streams whose request goes on, the longest time without a message."
    }

    fn expects(&self) -> &'static str {
        "a whole number of seconds, at least 1"
    }

    fn example(&self) -> &'static str {
        "3600"
    }

    fn default(&self) -> &'static str {
        "the setting `proxy-read-timeout`"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.read_timeout = values::seconds(value)?;
        Ok(())
    }
}
