use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `proxy-send-timeout`.
pub struct ProxySendTimeout;

impl Annotation for ProxySendTimeout {
    fn name(&self) -> &'static str {
        "proxy-send-timeout"
    }

    fn doc(&self) -> &'static str {
        "Longest pause while a request is sent to an endpoint, in seconds."
    }

    fn expects(&self) -> &'static str {
        "a whole number of seconds, at least 1"
    }

    fn example(&self) -> &'static str {
        "3600"
    }

    fn default(&self) -> &'static str {
        "the setting `proxy-send-timeout`"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.send_timeout = values::seconds(value)?;
        Ok(())
    }
}
