//! What the `auth-tls-*` annotations of an Ingress ask for, as they say it: the Secret is looked up, and one Ingress chosen
//! among those of a host, by `compile`.

use std::sync::Arc;

use crate::snapshot::client_auth::VerifyClient;
use crate::snapshot::redirects::Location;
use crate::snapshot::search::{NoPattern, SearchPattern};

/// What an Ingress asks of its clients' certificates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientAuthDraft {
    /// As written.
    pub secret: Option<String>,
    pub verify: Option<VerifyClient>,
    pub depth: Option<usize>,
    pub subject: Option<Result<Arc<SearchPattern>, NoPattern>>,
    pub pass_certificate: bool,
    pub error_page: Option<Location>,
}

impl ClientAuthDraft {
    /// The annotation that should keep somebody out, apart from the Secret that all of them need.
    pub fn protection(&self) -> Option<&'static str> {
        match self {
            Self { subject: Some(_), .. } => Some("auth-tls-match-cn"),
            Self { verify: Some(verify), .. } if *verify != VerifyClient::Off => {
                Some("auth-tls-verify-client")
            }
            _ => None,
        }
    }
}
