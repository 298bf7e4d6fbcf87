//! Phase 3: whether a client has shown what its host asks for, and what backends are told about it.

use http::{HeaderMap, HeaderValue, StatusCode};

use super::misdirected;
use super::redirects::Question;
use super::refusal::Refusal;
use crate::clock;
use crate::proxy::headers::{
    SSL_CLIENT_CERT, SSL_CLIENT_ISSUER_DN, SSL_CLIENT_SUBJECT_DN, SSL_CLIENT_VERIFY,
};
use crate::snapshot::TlsPort;
use crate::snapshot::client_auth::{ClientAuth, ClientCheck, VerifyClient};
use crate::snapshot::hosts::{Action, HttpsRedirect, Route};
use crate::tls::accept::ServedIdentity;
use crate::tls::client_auth::{ClientCertificate, Verdict};

/// What backends of a host that asks for certificates are told.
pub struct Shown {
    verify: HeaderValue,
    subject: Option<HeaderValue>,
    issuer: Option<HeaderValue>,
    certificate: Option<HeaderValue>,
}

impl Shown {
    const NOTHING: Self =
        Self { verify: HeaderValue::from_static("NONE"), subject: None, issuer: None, certificate: None };

    fn new(verify: &'static str, client: &ClientCertificate, check: &ClientCheck) -> Self {
        Self {
            verify: HeaderValue::from_static(verify),
            subject: client.subject().cloned(),
            issuer: client.issuer().cloned(),
            certificate: client.escaped().filter(|_| check.pass_certificate).cloned(),
        }
    }

    /// Puts it into a request, from which all that clients say under these names has gone.
    pub fn insert_into(self, headers: &mut HeaderMap) {
        headers.insert(SSL_CLIENT_VERIFY, self.verify);
        for (name, value) in [
            (SSL_CLIENT_SUBJECT_DN, self.subject),
            (SSL_CLIENT_ISSUER_DN, self.issuer),
            (SSL_CLIENT_CERT, self.certificate),
        ] {
            if let Some(value) = value {
                headers.insert(name, value);
            }
        }
    }
}

/// Judges a request that came over TLS.
pub fn admit(
    auth: &ClientAuth,
    tls: &ServedIdentity,
    question: &Question<'_>,
) -> Result<Shown, Box<Refusal>> {
    let Some(check) = auth.check() else { return Err(cannot_be_checked()) };
    if tls.port == TlsPort::Mesh && auth.wants_tls() {
        // What clients show there is for the mesh alone.
        return Err(misdirected());
    }
    let shown = tls.shown.as_ref().filter(|_| check.verify != VerifyClient::Off);
    let (verified, refused) = match shown {
        Some(client) => verify(client, check),
        None => (Shown::NOTHING, (check.verify == VerifyClient::On).then_some(MISSING)),
    };
    if let Some((reason, message)) = refused {
        // Asked in the name of others, the client may have shown another certificate or none.
        let asked = tls.policy.authorities();
        if asked.is_some_and(|asked| !asked.is_same(&check.authorities)) {
            return Err(misdirected());
        }
        let page = check.error_page.as_ref().and_then(|page| question.elsewhere(page, reason));
        return Err(page.unwrap_or_else(|| Refusal::new(StatusCode::BAD_REQUEST, reason, message)));
    }
    let is_meant = check.subject.as_ref().is_none_or(|subject| match shown {
        Some(client) => client.is_for(subject),
        // Its subject is empty.
        None => subject.is_match(b""),
    });
    match is_meant {
        true => Ok(verified),
        false => Err(Refusal::new(
            StatusCode::FORBIDDEN,
            "client_certificate_subject",
            "this client certificate is not one that is let in here",
        )),
    }
}

/// Judges a request that came without TLS, in which nobody can show anything. It has no redirect to HTTPS before it.
pub fn admit_in_clear(auth: &ClientAuth, route: &Route) -> Result<Shown, Box<Refusal>> {
    let harmless =
        route.policy.redirect == HttpsRedirect::Exempt || matches!(route.action, Action::Redirect(_));
    match auth {
        ClientAuth::Checked(_) if harmless || !auth.wants_tls() => Ok(Shown::NOTHING),
        ClientAuth::Refused if route.policy.redirect == HttpsRedirect::Exempt => Ok(Shown::NOTHING),
        ClientAuth::Refused => Err(cannot_be_checked()),
        ClientAuth::Checked(_) => Err(Refusal::new(
            StatusCode::FORBIDDEN,
            "client_certificate_in_clear",
            "this host is for clients with a certificate, which they show over TLS",
        )),
    }
}

const MISSING: (&str, &str) =
    ("client_certificate_missing", "this host is for clients with a certificate, and none was shown");
const BAD: (&str, &str) = ("client_certificate_bad", "the client certificate was not accepted");

type Fault = (&'static str, &'static str);

fn verify(client: &ClientCertificate, check: &ClientCheck) -> (Shown, Option<Fault>) {
    use crate::tls::client_auth::Fault::TooLong;
    let fault = match client.verdict(&check.authorities, clock::seconds()) {
        Verdict::Good { intermediates } if intermediates <= check.depth => {
            return (Shown::new("SUCCESS", client, check), None);
        }
        Verdict::Good { .. } => TooLong,
        Verdict::Bad(fault) => fault,
    };
    let passes = check.verify == VerifyClient::OptionalNoCa && fault.is_unknown_authority();
    (Shown::new(fault.failed(), client, check), (!passes).then_some(BAD))
}

fn cannot_be_checked() -> Box<Refusal> {
    Refusal::new(
        StatusCode::FORBIDDEN,
        "client_auth_unavailable",
        "this host is for clients with a certificate, and there is nothing to verify it with",
    )
}
