use std::collections::BTreeMap;

use super::{Annotation, AnnotationError, OWN_PREFIX, PolicyDraft, values};

/// `issue-certificate`. What it asks for is done by the workload CA; for routes it means nothing.
pub struct IssueCertificate;

pub(super) const NAME: &str = "issue-certificate";

/// Whether these annotations of an Ingress ask for certificates, under our own prefix: nobody else has this one.
pub fn is_asked_for(annotations: &BTreeMap<String, String>) -> bool {
    let is_it = |key: &str| key.split_once('/') == Some((OWN_PREFIX, NAME));
    annotations.iter().any(|(key, value)| is_it(key) && values::boolean(value.trim()) == Ok(true))
}

/// What there is to say about it under another prefix than our own.
pub(super) fn foreign(prefix: &str) -> String {
    format!("There is no annotation {NAME} under {prefix}; did you mean {OWN_PREFIX}/{NAME}?")
}

impl Annotation for IssueCertificate {
    fn name(&self) -> &'static str {
        NAME
    }

    fn doc(&self) -> &'static str {
        "Has the workload CA (setting `ca`) make and renew the Secrets that the `tls` section names, for the hosts there. Only under the prefix `portcullis.dev`; under another it is an `UnknownAnnotation`. A Secret that somebody else made is left alone."
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

    fn apply(&self, value: &str, _: &mut PolicyDraft) -> Result<(), AnnotationError> {
        values::boolean(value).map(drop)
    }
}
