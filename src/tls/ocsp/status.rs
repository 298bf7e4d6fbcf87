//! Where a certificate stands with its OCSP responder: what `sources::ocsp` tells, the store keeps, `compile`
//! publishes and the admin port shows. It carries a staple only if that staple was verified for exactly this leaf.

use std::sync::Arc;

use serde::Serialize;

use super::Staple;

/// Where a certificate stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OcspState {
    /// Stapling is switched off.
    Disabled,
    /// The certificate names no responder. The usual case.
    NoResponder,
    /// The chain lacks the issuer, without which nobody can be asked.
    IssuerUnknown,
    /// Not yet asked, or waiting for the first answer.
    Pending,
    /// A staple is there. Later attempts may have failed, see `last_error`.
    Good,
    /// The issuer says that the certificate is revoked.
    Revoked,
    /// The responder says that it does not know the certificate.
    Unknown,
    /// No staple, for the reason in `last_error`.
    Error,
}

impl OcspState {
    /// Its name in the API and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::NoResponder => "no_responder",
            Self::IssuerUnknown => "issuer_unknown",
            Self::Pending => "pending",
            Self::Good => "good",
            Self::Revoked => "revoked",
            Self::Unknown => "unknown",
            Self::Error => "error",
        }
    }

    /// Whether a staple may come without anyone changing anything.
    pub fn may_become_good(self) -> bool {
        !matches!(self, Self::Disabled | Self::NoResponder | Self::IssuerUnknown)
    }
}

/// Everything known about one certificate. Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OcspStatus {
    /// SHA-256 of the leaf's DER.
    pub fingerprint: [u8; 32],
    pub state: OcspState,
    /// To be sent until its [`Staple::next_update`], and not in that second.
    pub staple: Option<Arc<Staple>>,
    pub this_update: Option<u64>,
    pub next_update: Option<u64>,
    pub next_fetch: Option<u64>,
    /// Why the last attempt failed; never holds text of a responder.
    pub last_error: Option<Arc<str>>,
}

impl OcspStatus {
    /// What is known of a certificate before its source has said anything.
    pub fn pending(fingerprint: [u8; 32]) -> Self {
        Self {
            fingerprint,
            state: OcspState::Pending,
            staple: None,
            this_update: None,
            next_update: None,
            next_fetch: None,
            last_error: None,
        }
    }
}
