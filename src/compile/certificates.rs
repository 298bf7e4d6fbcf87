//! Which certificate each host gets, from the `tls` entries of its Ingresses, else from PEM pairs.
//!
//! `compile` calls this for every host that a change touches; all of it is pure, and unchanged input gives the
//! very `Arc` of before. The invariant: nothing that arrives later (a broken, expired or missing Secret, a
//! younger Ingress) takes a working certificate away from a host; only a removal does, after a grace time.

mod claims;
mod findings;
#[cfg(test)]
mod tests;
mod waits;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::diagnostics::{Diagnostic, ObjectRef, Severity};
use crate::names::{HostPattern, canonical_host};
use crate::snapshot::certificates::{Binding, HostCertificates};
use crate::store::Store;
use crate::store::objects::{Ingress, IngressTls, Kind, ObjectName, TlsHost, TlsSecret};
use crate::tls::keys::KeyPair;
use claims::{Claim, Claimant, Resolver};
pub use findings::ingress_tls_findings;
pub use waits::StapleWaits;

/// What came out for one host.
#[derive(Debug)]
pub struct HostOutcome {
    /// `None` where the host has no certificate of its own: the entry goes, and clients get the wildcard
    /// above it or the default.
    pub certificates: Option<Arc<HostCertificates>>,
    pub diagnostics: Vec<Diagnostic>,
    /// When time alone changes the outcome, in seconds since the Unix epoch.
    pub recheck_at: Option<i64>,
}

/// What came out for the default certificate.
#[derive(Debug)]
pub struct DefaultOutcome {
    pub certificates: Arc<HostCertificates>,
    pub diagnostics: Vec<Diagnostic>,
    pub recheck_at: Option<i64>,
}

/// The certificates of `host`.
///
/// Among `ingresses`, those that have a say about it, oldest first, the oldest with a valid certificate wins; without
/// any, the oldest with one that has expired or is not valid yet. PEM pairs come after all Ingresses. `grace` says for
/// how many seconds the certificate of a deleted Secret stays, `waits` how long a new certificate waits for its first
/// staple, and `previous` is the outcome of before, which the host falls back on.
///
/// Rules without a host have no certificate but the default.
pub fn compile_host_certificates(
    store: &Store,
    host: &HostPattern,
    ingresses: &[&Arc<Ingress>],
    previous: Option<&Arc<HostCertificates>>,
    grace: i64,
    waits: StapleWaits,
    now: i64,
) -> HostOutcome {
    if *host == HostPattern::Any {
        return HostOutcome { certificates: None, diagnostics: Vec::new(), recheck_at: None };
    }
    let outcome_after = |previous| {
        let resolver = Resolver::new(store, Some(host), previous, Some(grace), waits, now);
        outcome_of(store, host, ingresses, resolver)
    };
    let outcome = outcome_after(previous);
    let lost = previous.is_some_and(|previous| previous.iter().any(|before| !has_secret(&outcome, before)));
    // What there is to say must not depend on what was served up to now and is not any more.
    if lost { outcome_after(outcome.certificates.as_ref()) } else { outcome }
}

fn has_secret(outcome: &HostOutcome, binding: &Binding) -> bool {
    let mut left = outcome.certificates.iter().flat_map(|certificates| certificates.iter());
    left.any(|left| left.certificate.secret == binding.certificate.secret)
}

fn outcome_of(
    store: &Store,
    host: &HostPattern,
    ingresses: &[&Arc<Ingress>],
    mut resolver: Resolver<'_>,
) -> HostOutcome {
    let now = resolver.now;
    let offers: Vec<_> = ingresses.iter().map(|i| offer_of(i, host, &mut resolver)).collect();

    let bindings = match winner(&offers, now) {
        Some(winner) => {
            report_conflicts(&offers, winner, host, &mut resolver.diagnostics);
            report_doubles(winner, host, now, &mut resolver.diagnostics);
            winner.bindings.clone()
        }
        None => {
            let bindings = pem_pairs(store, host, &mut resolver);
            if bindings.is_empty() {
                report_unmatched(&offers, host, &mut resolver.diagnostics);
            }
            bindings
        }
    };
    let mut bindings = bindings.into_iter();
    let certificates = bindings.next().map(|first| resolver.settle(first, bindings));
    HostOutcome { certificates, diagnostics: resolver.diagnostics, recheck_at: resolver.recheck_at }
}

/// The certificate for clients whose name no other fits: the Secret `default`, else `generated`.
///
/// Once the Secret was usable, its certificate stays until there is a better one, without limit.
pub fn compile_default_certificate(
    store: &Store,
    default: Option<&ObjectName>,
    generated: &Arc<KeyPair>,
    previous: Option<&Arc<HostCertificates>>,
    waits: StapleWaits,
    now: i64,
) -> DefaultOutcome {
    let mut resolver = Resolver::new(store, None, previous, None, waits, now);
    let claim = default.map(|secret| Claim { claimant: Claimant::Default, secret: Some(secret.clone()) });
    let mut bindings = claim.map(|claim| resolver.resolve(&claim)).unwrap_or_default().into_iter();
    let first = bindings.next().unwrap_or_else(|| resolver.generated(generated));
    let certificates = resolver.settle(first, bindings);
    DefaultOutcome { certificates, diagnostics: resolver.diagnostics, recheck_at: resolver.recheck_at }
}

/// What one Ingress has for the host.
struct Offer<'a> {
    ingress: &'a Arc<Ingress>,
    bindings: Vec<Binding>,
    /// The entry for the host has no `secretName`: the default certificate is asked for.
    wants_default: bool,
    /// No entry is for this host, nor does the certificate of any cover it.
    unmatched: bool,
}

impl Offer<'_> {
    fn is_valid(&self, now: i64) -> bool {
        self.wants_default || self.bindings.iter().any(|b| claims::is_valid(&b.certificate.pair, now))
    }
}

/// The entries that name the host textually decide; where they give nothing, those whose certificate covers it.
fn offer_of<'a>(ingress: &'a Arc<Ingress>, host: &HostPattern, resolver: &mut Resolver<'_>) -> Offer<'a> {
    let names_host = |entry: &IngressTls| names_host(entry, host);
    let (textual, others): (Vec<_>, Vec<_>) = claims_of(ingress).partition(|(entry, _)| names_host(entry));
    let wants_default = textual.is_empty() && ingress.tls.iter().any(names_host);

    let mut bindings: Vec<_> = textual.iter().flat_map(|(_, claim)| resolver.resolve(claim)).collect();
    let mut unmatched = textual.is_empty() && !wants_default;
    if bindings.is_empty() && !wants_default {
        let fitting = others.iter().filter(|(entry, claim)| resolver.fits(claim, is_meant_for(entry, host)));
        let fitting: Vec<_> = fitting.collect();
        unmatched &= fitting.is_empty();
        bindings = fitting.into_iter().flat_map(|(_, claim)| resolver.resolve(claim)).collect();
    }
    Offer { ingress, bindings, wants_default, unmatched }
}

/// The entries that name a Secret, or mean to.
fn claims_of(ingress: &Arc<Ingress>) -> impl Iterator<Item = (&IngressTls, Claim<'_>)> {
    let namespace = &ingress.metadata.name.namespace;
    let wanting = ingress.tls.iter().filter(|entry| entry.secret != TlsSecret::Default);
    wanting.map(move |entry| {
        let secret = entry.secret.name().map(|name| ObjectName::new(namespace.clone(), name));
        (entry, Claim { claimant: Claimant::Ingress { ingress, entry: entry.index }, secret })
    })
}

fn names_host(entry: &IngressTls, host: &HostPattern) -> bool {
    entry.hosts.iter().any(|written| is_written_as(host, &written.host))
}

/// Whether `written`, an entry of `spec.tls[].hosts`, is this very pattern, case and a closing dot aside.
fn is_written_as(host: &HostPattern, written: &str) -> bool {
    let (name, written) = match host {
        HostPattern::Exact(name) => (name, Some(written)),
        HostPattern::Wildcard(parent) => (parent, written.strip_prefix("*.")),
        HostPattern::Any => return false,
    };
    written.is_some_and(|written| canonical_host(written).is_ok_and(|canonical| canonical == name.as_str()))
}

/// Whether an entry without the host's name is still about it: it has no hosts or a wildcard above the host.
fn is_meant_for(entry: &IngressTls, host: &HostPattern) -> bool {
    let covers = |written: &TlsHost| match (HostPattern::parse(&written.host), host) {
        (Ok(pattern @ HostPattern::Wildcard(_)), HostPattern::Exact(name)) => pattern.matches(name.as_str()),
        _ => false,
    };
    entry.hosts.is_empty() || entry.hosts.iter().any(covers)
}

fn winner<'o, 'a>(offers: &'o [Offer<'a>], now: i64) -> Option<&'o Offer<'a>> {
    let valid = offers.iter().find(|offer| offer.is_valid(now));
    valid.or_else(|| offers.iter().find(|offer| !offer.bindings.is_empty()))
}

/// Tells the Ingresses whose certificates are not used. The same certificate under another name is no conflict.
fn report_conflicts(
    offers: &[Offer<'_>],
    winner: &Offer<'_>,
    host: &HostPattern,
    diagnostics: &mut Vec<Diagnostic>,
) {
    let digests =
        |offer: &Offer<'_>| offer.bindings.iter().map(|b| b.certificate.pair.digest).collect::<Vec<_>>();
    let served = digests(winner);
    for loser in offers {
        let loses_default = loser.wants_default && !winner.wants_default;
        if loses_default || !digests(loser).iter().all(|digest| served.contains(digest)) {
            let by = &winner.ingress.metadata.name;
            let served = match winner.wants_default {
                true => format!("the default certificate, for which Ingress {by} asks"),
                false => format!("the certificate that Ingress {by} names"),
            };
            let asked = if loses_default { "the default one that is asked for" } else { "the one named" };
            diagnostics.push(Diagnostic::new(
                Severity::Warning,
                ObjectRef::new(Kind::Ingress, &loser.ingress.metadata.name),
                "spec.tls",
                "HostConflict",
                format!("{host} has {served}, not {asked} here"),
            ));
        }
    }
}

/// Tells an Ingress which of its own entries for the host are not served: of several with one kind of key the first is.
fn report_doubles(winner: &Offer<'_>, host: &HostPattern, now: i64, diagnostics: &mut Vec<Diagnostic>) {
    let is_valid = |binding: &&Binding| claims::is_valid(&binding.certificate.pair, now);
    let any_valid = winner.bindings.iter().any(|binding| is_valid(&binding));
    let usable: Vec<_> = winner.bindings.iter().filter(|binding| !any_valid || is_valid(binding)).collect();
    for (first, loser) in doubles(&usable) {
        let is_meant =
            |entry: &&IngressTls| entry.secret.name() == Some(&*loser.name) && names_host(entry, host);
        // One that does not name the host is for whatever else its certificate covers.
        let Some(entry) = winner.ingress.tls.iter().find(is_meant) else { continue };
        diagnostics.push(Diagnostic::new(
            Severity::Warning,
            ObjectRef::new(Kind::Ingress, &winner.ingress.metadata.name),
            format!("spec.tls[{}].secretName", entry.index),
            "HostConflict",
            format!("{host} has the certificate of Secret {first}, which is named first and has a key of the same kind"),
        ));
    }
}

/// The Secrets of bindings that are not served, each after the Secret of the one before it that is: their keys are
/// of one kind. The same certificate twice is none.
fn doubles<'b>(bindings: &'b [&Binding]) -> impl Iterator<Item = (&'b ObjectName, &'b ObjectName)> {
    bindings.iter().enumerate().filter_map(|(position, loser)| {
        let pair = &loser.certificate.pair;
        let mut before = bindings.iter().take(position).map(|binding| &binding.certificate);
        let first = before.find(|first| first.pair.algorithm == pair.algorithm)?;
        let differs = first.pair.digest != pair.digest;
        first.secret.as_ref().zip(loser.certificate.secret.as_ref()).filter(|_| differs)
    })
}

fn report_unmatched(offers: &[Offer<'_>], host: &HostPattern, diagnostics: &mut Vec<Diagnostic>) {
    for offer in offers.iter().filter(|offer| offer.unmatched) {
        diagnostics.push(Diagnostic::new(
            Severity::Warning,
            ObjectRef::new(Kind::Ingress, &offer.ingress.metadata.name),
            "spec.tls",
            "HostMismatch",
            format!("no entry is for {host} and no certificate covers it: it has the default certificate"),
        ));
    }
}

/// The PEM pairs with this host among their names: valid ones first, then in the order of their names.
fn pem_pairs(store: &Store, host: &HostPattern, resolver: &mut Resolver<'_>) -> Vec<Binding> {
    let present = store.pem_pairs_of(host).map(|secret| secret.metadata.name.clone());
    // A pair that became unreadable or was deleted is in no index any more.
    let before = resolver.previous_pem_pairs();
    let secrets: BTreeSet<_> = present.chain(before).collect();

    let mut bindings = Vec::new();
    for secret in secrets {
        let claim = Claim { claimant: Claimant::PemPair, secret: Some(secret) };
        if resolver.fits(&claim, true) {
            bindings.extend(resolver.resolve(&claim));
        }
    }
    bindings.sort_by_key(|b| (!resolver.is_valid(b), b.missing_since.is_some()));
    for (winner, loser) in doubles(&bindings.iter().collect::<Vec<_>>()) {
        resolver.diagnostics.push(Diagnostic::new(
            Severity::Warning,
            ObjectRef::new(Kind::Secret, loser),
            "",
            "HostConflict",
            format!("{host} has the certificate of {winner}, not this one"),
        ));
    }
    bindings
}
