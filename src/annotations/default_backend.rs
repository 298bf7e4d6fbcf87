use super::{Annotation, AnnotationError, PolicyDraft};
use crate::names::annotation::DEFAULT_BACKEND;
use crate::store::objects::is_subdomain;

/// `default-backend`. Which Service it names is asked for by [`super::default_backend`].
pub struct DefaultBackend;

impl Annotation for DefaultBackend {
    fn name(&self) -> &'static str {
        DEFAULT_BACKEND
    }

    fn doc(&self) -> &'static str {
        "The Service, in the namespace of the Ingress, whose first port requests go to while the Service of their path has no endpoint, in place of a 503. It does not answer for other errors: there is no `custom-http-errors` yet."
    }

    fn expects(&self) -> &'static str {
        "the name of a Service"
    }

    fn example(&self) -> &'static str {
        "sorry"
    }

    fn default(&self) -> &'static str {
        "none"
    }

    fn apply(&self, value: &str, _: &mut PolicyDraft) -> Result<(), AnnotationError> {
        match value.is_empty() || is_subdomain(value) {
            true => Ok(()),
            false => Err(AnnotationError::Value),
        }
    }
}
