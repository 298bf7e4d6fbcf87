//! What a host asks of its clients' certificates: the oldest Ingress of the host that names authorities decides, for all of
//! its routes. What should keep somebody out and cannot be done lets nobody in.

use std::sync::Arc;

use crate::annotations::{self, ClientAuthDraft};
use crate::diagnostics::{Diagnostic, ObjectRef, Severity, quoted};
use crate::names::HostPattern;
use crate::names::annotation::AUTH_TLS_SECRET;
use crate::settings::Settings;
use crate::snapshot::client_auth::{ClientAuth, ClientCheck, VerifyClient};
use crate::snapshot::redirects::Redirect;
use crate::store::objects::{Ingress, Kind};
use crate::store::{Store, own_secret};
use crate::tls::client_auth::ClientAuthorities;
use crate::tls::policy::TlsPolicy;

/// What is compiled of a host's client certificates.
#[derive(Default)]
pub(super) struct Outcome {
    pub auth: Option<Arc<ClientAuth>>,
    pub found: Vec<Diagnostic>,
    /// When to look again although nothing changed, in seconds since the Unix epoch.
    pub recheck_at: Option<i64>,
}

pub(super) struct ClientAuths<'a> {
    pub store: &'a Store,
    pub settings: &'a Settings,
    /// The TLS policy of hosts that ask for nothing.
    pub tls: Arc<TlsPolicy>,
    /// In seconds since the Unix epoch.
    pub now: i64,
}

/// An Ingress of the host, with what it asks for.
pub(super) struct Wish<'a> {
    pub ingress: &'a Ingress,
    pub draft: ClientAuthDraft,
}

impl ClientAuths<'_> {
    /// `wishes` are those of all Ingresses of the host, oldest first.
    pub fn compile(
        &self,
        pattern: &HostPattern,
        wishes: &[Wish<'_>],
        previous: Option<&Arc<ClientAuth>>,
    ) -> Outcome {
        let Some(first) = wishes.iter().find(|wish| wish.draft.secret.is_some()) else {
            return self.without_authorities(wishes);
        };
        let mut outcome = Outcome::default();
        let check = self.check(first, &mut outcome);
        let auth = match check {
            Some(check) => ClientAuth::Checked(check),
            None => ClientAuth::Refused,
        };
        outcome.auth = Some(match previous.filter(|previous| previous.is_same(&auth)) {
            Some(previous) => previous.clone(),
            None => Arc::new(auth),
        });
        for other in wishes {
            let asks = other.draft != ClientAuthDraft::default();
            let same = std::ptr::eq(other, first)
                || (other.draft == first.draft
                    && other.ingress.metadata.name.namespace == first.ingress.metadata.name.namespace);
            if asks && !same {
                let winner = &first.ingress.metadata.name;
                let message = format!(
                    "Clients of host {pattern} are asked for certificates as the older Ingress {winner} says; what this one \
                     asks of them has no effect there."
                );
                outcome.add(
                    self,
                    other,
                    name_of(&other.draft),
                    Severity::Warning,
                    "ClientAuthConflict",
                    message,
                );
            }
        }
        outcome
    }

    /// What should keep somebody out closes the host, as there is nothing to verify clients with.
    fn without_authorities(&self, wishes: &[Wish<'_>]) -> Outcome {
        let mut outcome = Outcome::default();
        for wish in wishes.iter().filter(|wish| wish.draft != ClientAuthDraft::default()) {
            let (severity, name, consequence) = match wish.draft.protection() {
                Some(name) => {
                    outcome.auth = Some(Arc::new(ClientAuth::Refused));
                    (Severity::Error, name, "requests of its hosts are refused (403)")
                }
                None => (Severity::Warning, name_of(&wish.draft), "it has no effect"),
            };
            let message =
                format!("{name} needs {AUTH_TLS_SECRET}, which no Ingress of the host has; {consequence}.");
            outcome.add(self, wish, name, severity, "ClientCaMissing", message);
        }
        outcome
    }

    fn check(&self, wish: &Wish<'_>, outcome: &mut Outcome) -> Option<ClientCheck> {
        let authorities = self.authorities(wish, outcome);
        let subject = match wish.draft.subject.clone().transpose() {
            Ok(subject) => subject,
            Err(_) => {
                let message = "auth-tls-match-cn must be a regular expression without lookaround and backreferences; \
                               requests of the host are refused (403).";
                outcome.add(
                    self,
                    wish,
                    "auth-tls-match-cn",
                    Severity::Error,
                    "InvalidAnnotation",
                    message.into(),
                );
                return None;
            }
        };
        let authorities = authorities?;
        let verify = wish.draft.verify.unwrap_or_default();
        if verify == VerifyClient::OptionalNoCa {
            let message = "Whoever has any key is let in with a certificate of his own making: backends must look at \
                           ssl-client-verify themselves, and auth-tls-match-cn keeps nobody out.";
            let name = "auth-tls-verify-client";
            outcome.add(self, wish, name, Severity::Warning, "UnverifiedClients", message.into());
        }
        let policy = match verify {
            VerifyClient::Off => None,
            // What could not be had was reported with the settings, and this is made of the same.
            _ => Some(self.tls.asking(&authorities).ok()?),
        };
        let redirect = |location| Redirect { status: http::StatusCode::FOUND, location };
        Some(ClientCheck {
            verify,
            depth: wish.draft.depth.unwrap_or(1),
            subject,
            pass_certificate: wish.draft.pass_certificate,
            error_page: wish.draft.error_page.clone().map(redirect),
            authorities,
            policy,
        })
    }

    fn authorities(&self, wish: &Wish<'_>, outcome: &mut Outcome) -> Option<Arc<ClientAuthorities>> {
        let written = wish.draft.secret.as_deref().unwrap_or_default();
        let mut refuse = |reason, why: String| {
            let message = format!("{why}; requests of the host are refused (403).");
            outcome.add(self, wish, AUTH_TLS_SECRET, Severity::Error, reason, message);
        };
        let name = match own_secret(wish.ingress, written) {
            Ok(name) => name,
            Err(error) => {
                refuse("InvalidSecretName", format!("{} {error}", quoted(written)));
                return None;
            }
        };
        let Some(secret) = self.store.secret(&name) else {
            refuse("SecretNotFound", format!("There is no Secret {name} to verify clients with"));
            return None;
        };
        let Some(ca) = &secret.client_ca else {
            refuse("ClientCaMissing", format!("Secret {name} has no ca.crt to verify clients with"));
            return None;
        };
        let authorities = match ca.authorities() {
            Ok(authorities) => authorities.clone(),
            Err(error) => {
                let why = format!("Secret {name} cannot be used to verify clients with: {error}");
                refuse("InvalidClientCa", why.clone());
                let object = ObjectRef::new(Kind::Secret, &name);
                outcome.found.push(Diagnostic::new(
                    Severity::Error,
                    object,
                    error.field(),
                    "InvalidClientCa",
                    error.to_string(),
                ));
                return None;
            }
        };
        self.look_at_ends(wish, &name.to_string(), &authorities, outcome);
        Some(authorities)
    }

    /// What has ended lets nobody in: clients are told so, and the operator.
    fn look_at_ends(
        &self,
        wish: &Wish<'_>,
        secret: &str,
        authorities: &ClientAuthorities,
        outcome: &mut Outcome,
    ) {
        let now = u64::try_from(self.now).unwrap_or(0);
        outcome.recheck_at = authorities.next_change(now).and_then(|time| i64::try_from(time).ok());
        let mut warn = |severity, reason, message| {
            outcome.add(self, wish, AUTH_TLS_SECRET, severity, reason, message);
        };
        if authorities.lists_have_ended(now) {
            let message = format!(
                "A revocation list in ca.crl of Secret {secret} has ended: clients whose authorities need it are refused."
            );
            warn(Severity::Error, "RevocationListExpired", message);
        }
        match authorities.ended(now) {
            (0, _) => {}
            (_, true) => {
                let message = format!(
                    "No certificate in ca.crt of Secret {secret} is in force: every client is refused."
                );
                warn(Severity::Error, "ClientCaExpired", message);
            }
            (ended, false) => {
                let message =
                    format!("{ended} of the certificates in ca.crt of Secret {secret} are not in force.");
                warn(Severity::Warning, "ClientCaExpired", message);
            }
        }
    }
}

impl Outcome {
    fn add(
        &mut self,
        all: &ClientAuths<'_>,
        wish: &Wish<'_>,
        annotation: &str,
        severity: Severity,
        reason: &'static str,
        message: String,
    ) {
        let metadata = &wish.ingress.metadata;
        let field = annotations::field_of(metadata, all.settings, annotation);
        let object = ObjectRef::new(Kind::Ingress, &metadata.name);
        self.found.push(Diagnostic::new(severity, object, field, reason, message));
    }
}

/// The annotation by which to name what a draft asks for.
fn name_of(draft: &ClientAuthDraft) -> &'static str {
    match draft {
        ClientAuthDraft { secret: Some(_), .. } => AUTH_TLS_SECRET,
        ClientAuthDraft { verify: Some(_), .. } => "auth-tls-verify-client",
        ClientAuthDraft { subject: Some(_), .. } => "auth-tls-match-cn",
        ClientAuthDraft { depth: Some(_), .. } => "auth-tls-verify-depth",
        ClientAuthDraft { error_page: Some(_), .. } => "auth-tls-error-page",
        _ => "auth-tls-pass-certificate-to-upstream",
    }
}
