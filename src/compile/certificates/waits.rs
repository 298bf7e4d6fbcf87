//! Whether a new certificate waits for its first staple before it takes the place of the one in use.
//!
//! Clients refuse a must-staple certificate (RFC 7633) without a staple, so its rotation waits up to the deadline
//! of the settings. Others wait for a moment only, which is what a responder takes to answer: so the first client
//! that sees them gets a staple too. Nothing waits where there is nothing in use or where no staple can come.

use crate::settings::Settings;
use crate::tls::keys::KeyPair;
use crate::tls::ocsp::{OcspState, OcspStatus};

/// Seconds that a certificate which need not be stapled waits for the first answer of its responder, be it a
/// staple or a failure.
const FIRST_ANSWER: i64 = 2;

/// How long rotations wait, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StapleWaits {
    /// `None` while stapling is switched off.
    must_staple: Option<i64>,
}

impl StapleWaits {
    pub fn of(settings: &Settings) -> Self {
        let deadline = i64::try_from(settings.ocsp_must_staple_deadline.as_secs()).unwrap_or(i64::MAX);
        Self { must_staple: settings.enable_ocsp.then_some(deadline) }
    }

    /// How long a rotation to `pair` waits in all; `None` where it need not wait, going by what is known.
    pub(super) fn wait_of(self, pair: &KeyPair, known: Option<&OcspStatus>) -> Option<i64> {
        let must_staple = self.must_staple?;
        if pair.ocsp_responder.is_none() || pair.issuer().is_none() {
            return None;
        }
        let state = match known {
            Some(status) if status.staple.is_some() => return None,
            Some(status) => status.state,
            None => OcspState::Pending,
        };
        match pair.must_staple {
            true => state.may_become_good().then_some(must_staple),
            false => (state == OcspState::Pending).then_some(FIRST_ANSWER),
        }
    }
}
