use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `proxy-connect-timeout`.
pub struct ProxyConnectTimeout;

impl Annotation for ProxyConnectTimeout {
    fn name(&self) -> &'static str {
        "proxy-connect-timeout"
    }

    fn doc(&self) -> &'static str {
        "Time to connect to an endpoint, in seconds."
    }

    fn expects(&self) -> &'static str {
        "a whole number of seconds, at least 1"
    }

    fn example(&self) -> &'static str {
        "5"
    }

    fn default(&self) -> &'static str {
        "the setting `proxy-connect-timeout`"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.connect_timeout = values::seconds(value)?;
        Ok(())
    }
}
