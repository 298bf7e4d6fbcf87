use super::{Annotation, AnnotationError, PolicyDraft};
use crate::snapshot::client_auth::VerifyClient;

/// `auth-tls-verify-client`.
pub struct AuthTlsVerifyClient;

impl Annotation for AuthTlsVerifyClient {
    fn name(&self) -> &'static str {
        "auth-tls-verify-client"
    }

    fn doc(&self) -> &'static str {
        "Which clients are let in: with `on` those with a good certificate, with `optional` those without any too, with `optional_no_ca` those whose authority is unknown as well, which proves nothing but that they have a key; with `off` nobody is asked."
    }

    fn expects(&self) -> &'static str {
        "`on`, `off`, `optional` or `optional_no_ca`"
    }

    fn example(&self) -> &'static str {
        "optional"
    }

    fn default(&self) -> &'static str {
        "`on`, where the host has an `auth-tls-secret`"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.client_auth.verify = Some(match value {
            "on" => VerifyClient::On,
            "off" => VerifyClient::Off,
            "optional" => VerifyClient::Optional,
            "optional_no_ca" => VerifyClient::OptionalNoCa,
            _ => return Err(AnnotationError::Value),
        });
        Ok(())
    }
}
