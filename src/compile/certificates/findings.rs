//! What there is to say about the `tls` section of an Ingress by itself, whatever host it serves, and about the age of
//! a certificate.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::diagnostics::{Diagnostic, ObjectRef, Severity};
use crate::names::HostPattern;
use crate::store::objects::{Ingress, Kind};
use crate::store::{ingress_hosts, server_aliases, www_partners};
use crate::tls::keys::KeyPair;

/// A certificate that expires within this time is reported, in seconds.
const EXPIRES_SOON: i64 = 10 * 24 * 3600;

/// Which parts of `spec.tls` have no effect.
pub fn ingress_tls_findings(ingress: &Ingress) -> Vec<Diagnostic> {
    let object = ObjectRef::new(Kind::Ingress, &ingress.metadata.name);
    let mut rules = ingress_hosts(ingress);
    if rules.iter().all(|host| *host == HostPattern::Any) {
        let names_secret = ingress.tls.iter().any(|entry| entry.secret.name().is_some());
        let message =
            "rules without a host are served with the default certificate: name hosts to use this one";
        let ignored = Diagnostic::new(Severity::Warning, object, "spec.tls", "TlsIgnored", message);
        return names_secret.then_some(ignored).into_iter().collect();
    }
    rules.extend(www_partners(ingress));
    rules.extend(server_aliases(ingress));
    let mut findings = Vec::new();
    for entry in &ingress.tls {
        for written in &entry.hosts {
            let (severity, reason, message) = match HostPattern::parse(&written.host) {
                Err(error) => (Severity::Error, "InvalidHost", error.to_string()),
                Ok(host) if rules.iter().any(|rule| reaches(&host, rule)) => continue,
                Ok(_) => {
                    let message = "no rule has this host, so the certificate is not served for it".to_owned();
                    (Severity::Warning, "TlsHostWithoutRule", message)
                }
            };
            let field = format!("spec.tls[{}].hosts[{}]", entry.index, written.index);
            findings.push(Diagnostic::new(severity, object.clone(), field, reason, message));
        }
    }
    findings
}

fn reaches(written: &HostPattern, rule: &HostPattern) -> bool {
    match (written, rule) {
        (HostPattern::Wildcard(_), HostPattern::Exact(host)) => written.matches(host.as_str()),
        _ => written == rule,
    }
}

/// What the age of a certificate gives rise to.
pub(super) struct Validity {
    pub finding: Option<(Severity, &'static str, String)>,
    /// When the finding changes, in seconds since the Unix epoch.
    pub next_change: Option<i64>,
}

pub(super) fn validity_at(pair: &KeyPair, now: i64) -> Validity {
    let (from, to) = (pair.not_before, pair.not_after);
    let soon = to.saturating_sub(EXPIRES_SOON);
    let (next_change, finding) = if now > to {
        let what = format!("the certificate expired on {}", date(to));
        (None, Some((Severity::Error, "CertificateExpired", what)))
    } else if now < from {
        let what = format!("the certificate is not valid before {}", date(from));
        (Some(from), Some((Severity::Warning, "CertificateNotYetValid", what)))
    } else if now >= soon {
        let what = format!("the certificate expires on {}", date(to));
        (Some(to.saturating_add(1)), Some((Severity::Warning, "CertificateExpiring", what)))
    } else {
        (Some(soon), None)
    };
    Validity { finding, next_change }
}

pub(super) fn date(seconds: i64) -> String {
    let date = OffsetDateTime::from_unix_timestamp(seconds).ok().and_then(|date| date.format(&Rfc3339).ok());
    date.unwrap_or_else(|| format!("second {seconds} of the Unix epoch"))
}
