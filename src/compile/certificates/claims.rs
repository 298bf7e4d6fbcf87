//! One claim: a Secret that something names for a host, looked up and weighed against what is served already.
//!
//! A claim gives the Secret's certificate, or the one from before where the Secret is missing, broken, does
//! not cover the host or is worse: "last good". Everything that went wrong becomes a diagnostic.

use std::fmt;
use std::sync::Arc;

use super::StapleWaits;
use super::findings::{date, validity_at};
use crate::diagnostics::{Diagnostic, ObjectRef, Severity};
use crate::names::HostPattern;
use crate::snapshot::certificates::{Awaited, Binding, Certificate, HostCertificates};
use crate::store::Store;
use crate::store::objects::{Ingress, Kind, ObjectName, Secret, SecretOrigin};
use crate::tls::keys::KeyPair;

/// Who names a Secret for the host.
#[derive(Clone, Copy)]
pub(super) enum Claimant<'a> {
    /// `spec.tls[entry]`.
    Ingress { ingress: &'a Arc<Ingress>, entry: usize },
    /// The names in the certificate itself.
    PemPair,
    /// The setting `default-ssl-certificate`.
    Default,
}

pub(super) struct Claim<'a> {
    pub claimant: Claimant<'a>,
    /// `None` where what is written is no name: there is no such Secret.
    pub secret: Option<ObjectName>,
}

impl Claim<'_> {
    fn ingress(&self) -> Option<&ObjectName> {
        match self.claimant {
            Claimant::Ingress { ingress, .. } => Some(&ingress.metadata.name),
            Claimant::PemPair | Claimant::Default => None,
        }
    }

    /// Whether the claimant used to name `secret` and does not any more.
    fn has_dropped(&self, secret: &ObjectName) -> bool {
        match self.claimant {
            Claimant::Ingress { ingress, .. } => {
                let mut named = ingress.tls.iter().filter_map(|entry| entry.secret.name());
                !named.any(|named| *named == *secret.name)
            }
            Claimant::PemPair => false,
            Claimant::Default => Some(secret) != self.secret.as_ref(),
        }
    }
}

/// The Secret, for messages.
impl fmt::Display for Claim<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.secret {
            Some(secret) => write!(f, "Secret {secret}"),
            None => f.write_str("Secret that could be called so"),
        }
    }
}

/// Why a Secret cannot be used for the host.
struct Refusal {
    cause: Cause,
    reason: &'static str,
    message: String,
}

#[derive(PartialEq, Eq)]
enum Cause {
    Missing,
    Unusable,
    /// A fine pair, for other hosts.
    OtherHost,
}

/// Resolves the claims on one host, or on the default certificate, and collects what there is to say.
pub(super) struct Resolver<'a> {
    store: &'a Store,
    /// `None` for the default certificate, which covers what it covers.
    host: Option<&'a HostPattern>,
    previous: Option<&'a Arc<HostCertificates>>,
    /// For how many seconds a deleted Secret's certificate stays; `None` is without limit.
    grace: Option<i64>,
    waits: StapleWaits,
    pub now: i64,
    awaited: Vec<Awaited>,
    pub diagnostics: Vec<Diagnostic>,
    pub recheck_at: Option<i64>,
}

impl<'a> Resolver<'a> {
    pub fn new(
        store: &'a Store,
        host: Option<&'a HostPattern>,
        previous: Option<&'a Arc<HostCertificates>>,
        grace: Option<i64>,
        waits: StapleWaits,
        now: i64,
    ) -> Self {
        let (awaited, diagnostics) = (Vec::new(), Vec::new());
        Self { store, host, previous, grace, waits, now, awaited, diagnostics, recheck_at: None }
    }

    /// Whether a claim that does not name this host is on it all the same: its certificate covers the host, or
    /// served it before. One that is `meant` for the host counts even if its Secret cannot be used.
    pub fn fits(&self, claim: &Claim<'_>, meant: bool) -> bool {
        let served_before = || match &claim.secret {
            Some(secret) => self.served(secret).next().is_some(),
            None => !self.last_good(claim).is_empty(),
        };
        match (self.look_up(claim).map_err(|refusal| refusal.cause), claim.claimant) {
            (Ok(_), _) => true,
            // A pair that is bound by its names lost this one on purpose.
            (Err(Cause::OtherHost), Claimant::PemPair) => false,
            (Err(Cause::OtherHost), _) => served_before(),
            (Err(Cause::Missing | Cause::Unusable), _) => meant || served_before(),
        }
    }

    /// The bindings that come of a claim, one at most unless it falls back on several from before.
    pub fn resolve(&mut self, claim: &Claim<'_>) -> Vec<Binding> {
        let pair = match self.look_up(claim) {
            Ok(pair) => pair,
            Err(refusal) => return self.keep_despite(claim, &refusal),
        };
        let fresh = self.bind(claim, pair);
        if is_valid(pair, self.now) {
            return self.hold_back(claim, &fresh).unwrap_or_else(|| vec![fresh]);
        }
        if self.now < pair.not_before {
            self.recheck(pair.not_before);
        }
        let mut kept = self.last_good(claim);
        kept.retain(|binding| self.is_valid(binding));
        if kept.is_empty() {
            return vec![fresh];
        }
        let (reason, why) = match self.now < pair.not_before {
            true => ("CandidateNotYetValid", format!("is not valid before {}", date(pair.not_before))),
            false => ("CandidateExpired", format!("expired on {}", date(pair.not_after))),
        };
        let severity = if self.now < pair.not_before { Severity::Warning } else { Severity::Error };
        let message = format!("the certificate of {claim} {why}: the one from before stays in use");
        self.report(claim, severity, reason, message);
        kept
    }

    /// What stays in use while `fresh` waits for its first staple; `None` where it does not wait.
    fn hold_back(&mut self, claim: &Claim<'_>, fresh: &Binding) -> Option<Vec<Binding>> {
        let pair = &fresh.certificate.pair;
        let known = self.store.staple(&pair.fingerprint);
        let wait = self.waits.wait_of(pair, known.map(|status| &**status))?;
        if self.bindings().any(|binding| Arc::ptr_eq(&binding.certificate, &fresh.certificate)) {
            return None;
        }
        let mut kept = self.last_good(claim);
        kept.retain(|binding| self.is_valid(binding));
        let waiting =
            self.awaited_before().find(|awaited| awaited.certificate.secret == fresh.certificate.secret);
        let since = waiting.map_or(self.now, |awaited| awaited.since);
        let until = since.saturating_add(wait);
        if kept.is_empty() || self.now >= until {
            return None;
        }
        self.recheck(until);
        self.awaited.push(Awaited { certificate: fresh.certificate.clone(), since });
        if pair.must_staple {
            let until = date(until);
            let message = format!(
                "the certificate of {claim} must be stapled and waits for its staple: the one from before \
                 stays in use until {until} at most"
            );
            self.report(claim, Severity::Info, "AwaitingStaple", message);
        }
        Some(kept)
    }

    /// Makes the certificates of a host of its bindings; those that are not valid count only where none is.
    /// Nothing new gives the very `Arc` of before.
    pub fn settle(
        &mut self,
        first: Binding,
        others: impl IntoIterator<Item = Binding>,
    ) -> Arc<HostCertificates> {
        let mut bindings: Vec<_> = std::iter::once(first.clone()).chain(others).collect();
        bindings.iter().for_each(|binding| self.watch_validity(&binding.certificate));
        if bindings.iter().any(|binding| self.is_valid(binding)) {
            bindings.retain(|binding| self.is_valid(binding));
        }
        let mut bindings = bindings.into_iter();
        let settled = HostCertificates::new(bindings.next().unwrap_or(first), bindings);
        let settled = settled.awaiting(std::mem::take(&mut self.awaited));
        match self.previous {
            Some(previous) if previous.is_same(&settled) => previous.clone(),
            _ => Arc::new(settled),
        }
    }

    /// The generated certificate, where nothing else is there to be the default.
    pub fn generated(&self, pair: &Arc<KeyPair>) -> Binding {
        let known = self
            .bindings()
            .find(|b| b.certificate.secret.is_none() && Arc::ptr_eq(&b.certificate.pair, pair));
        let new = || Arc::new(Certificate { pair: pair.clone(), secret: None, handshakes: Arc::default() });
        let certificate = known.map_or_else(new, |known| known.certificate.clone());
        Binding { certificate, ingress: None, missing_since: None }
    }

    /// The PEM pairs that serve the host up to now.
    pub fn previous_pem_pairs(&self) -> impl Iterator<Item = ObjectName> {
        let unnamed = self.bindings().filter(|binding| binding.ingress.is_none());
        unnamed.filter_map(|binding| binding.certificate.secret.clone())
    }

    pub fn is_valid(&self, binding: &Binding) -> bool {
        is_valid(&binding.certificate.pair, self.now)
    }

    fn look_up(&self, claim: &Claim<'_>) -> Result<&'a Arc<KeyPair>, Refusal> {
        let secret = claim.secret.as_ref().and_then(|name| self.store.secret(name));
        // A Secret of a manifest may have the name by now; it binds itself to no host.
        let is_meant = |secret: &&Arc<Secret>| {
            !matches!(claim.claimant, Claimant::PemPair) || secret.origin == SecretOrigin::PemPair
        };
        let secret = secret.filter(is_meant);
        let (cause, reason, message) = match secret.map(|secret| &secret.pair) {
            Some(Some(Ok(pair))) => match self.host {
                Some(host) if !is_for(claim, pair, host) => {
                    let names = names_of(pair);
                    let message = format!("the certificate of {claim} does not cover {host}: {names}");
                    (Cause::OtherHost, "HostMismatch", message)
                }
                _ => return Ok(pair),
            },
            Some(Some(Err(error))) => {
                (Cause::Unusable, error.reason(), format!("{claim} cannot be used: {error}"))
            }
            Some(None) => {
                let message = format!("{claim} contains no keypair: it has neither tls.crt nor tls.key");
                (Cause::Unusable, "KeyPairMissing", message)
            }
            None => {
                let what = if matches!(claim.claimant, Claimant::PemPair) { "PEM pair of " } else { "" };
                (Cause::Missing, "SecretNotFound", format!("there is no {what}{claim}"))
            }
        };
        Err(Refusal { cause, reason, message })
    }

    /// Keeps what an equal pair of the same Secret is served as: a change of labels changes nothing.
    fn bind(&self, claim: &Claim<'_>, pair: &Arc<KeyPair>) -> Binding {
        let served = self.bindings().map(|binding| &binding.certificate);
        let awaited = self.awaited_before().map(|awaited| &awaited.certificate);
        let of_the_secret = served.chain(awaited).filter(|known| known.secret == claim.secret);
        let mut before = None;
        let known =
            of_the_secret.inspect(|known| before = Some(*known)).find(|it| it.pair.digest == pair.digest);
        let certificate = known.cloned().unwrap_or_else(|| {
            let handshakes = before.map(|before| before.handshakes.clone()).unwrap_or_default();
            Arc::new(Certificate { pair: pair.clone(), secret: claim.secret.clone(), handshakes })
        });
        Binding { certificate, ingress: claim.ingress().cloned(), missing_since: None }
    }

    fn keep_despite(&mut self, claim: &Claim<'_>, refusal: &Refusal) -> Vec<Binding> {
        let mut kept = self.last_good(claim);
        if refusal.cause == Cause::Missing {
            kept.retain_mut(|binding| self.is_within_grace(claim, binding));
        } else if let (Claimant::PemPair, Some(grace)) = (claim.claimant, self.grace) {
            // No index leads from an unreadable pair to its hosts, so nothing tells when it is deleted.
            self.recheck(self.now.saturating_add(grace));
        }
        let until = kept.iter().find_map(|binding| Some(binding.missing_since?.saturating_add(self.grace?)));
        let rest = match (kept.is_empty(), until) {
            (true, _) => "it is not used".to_owned(),
            (false, None) => "the certificate from before stays in use".to_owned(),
            (false, Some(until)) => format!("its certificate stays in use until {}", date(until)),
        };
        let severity = match (claim.claimant, until) {
            (Claimant::Ingress { .. } | Claimant::Default, _) => Severity::Error,
            // To delete a file is no fault; what is wrong with one that is there, the Secret's findings say.
            (Claimant::PemPair, Some(_)) => Severity::Info,
            (Claimant::PemPair, None) => return kept,
        };
        self.report(claim, severity, refusal.reason, format!("{}; {rest}", refusal.message));
        kept
    }

    /// Notes since when the Secret is gone, and says whether its certificate may still be served. One that
    /// the claimant named before it switched to this Secret stays until this Secret is usable.
    fn is_within_grace(&mut self, claim: &Claim<'_>, binding: &mut Binding) -> bool {
        let own = claim.secret.as_ref().filter(|secret| binding.certificate.secret.as_ref() == Some(secret));
        let (Some(secret), Some(grace)) = (own, self.grace) else { return true };
        let served = self.served(secret).find(|b| Arc::ptr_eq(&b.certificate, &binding.certificate));
        let since = served.and_then(|served| served.missing_since).unwrap_or(self.now);
        let end = since.saturating_add(grace);
        binding.missing_since = Some(since);
        if self.now < end {
            self.recheck(end);
        }
        self.now < end
    }

    /// What the host falls back on: the certificate from before of the same Secret, else those of Secrets that
    /// the claimant named before it switched to this one.
    fn last_good(&self, claim: &Claim<'_>) -> Vec<Binding> {
        let mut good: Vec<_> = claim.secret.iter().flat_map(|secret| self.served(secret)).collect();
        if good.is_empty() {
            let dropped = |b: &&Binding| {
                b.ingress.as_ref() == claim.ingress()
                    && b.certificate.secret.as_ref().is_some_and(|secret| claim.has_dropped(secret))
            };
            good = self.bindings().filter(dropped).collect();
        }
        let rebind = |binding: &Binding| Binding {
            certificate: binding.certificate.clone(),
            ingress: claim.ingress().cloned(),
            missing_since: None,
        };
        good.into_iter().map(rebind).collect()
    }

    /// What the host has from this Secret up to now.
    fn served(&self, secret: &ObjectName) -> impl Iterator<Item = &'a Binding> {
        self.bindings().filter(move |binding| binding.certificate.secret.as_ref() == Some(secret))
    }

    fn bindings(&self) -> impl Iterator<Item = &'a Binding> + use<'a> {
        self.previous.into_iter().flat_map(|previous| previous.iter())
    }

    /// What waited for a staple up to now.
    fn awaited_before(&self) -> impl Iterator<Item = &'a Awaited> + use<'a> {
        self.previous.into_iter().flat_map(|previous| previous.awaited())
    }

    /// Says what there is to say about the age of a certificate that is served, and when that will change.
    fn watch_validity(&mut self, certificate: &Certificate) {
        let Some(secret) = &certificate.secret else { return };
        let validity = validity_at(&certificate.pair, self.now);
        if let Some(change) = validity.next_change {
            self.recheck(change);
        }
        if let Some((severity, reason, what)) = validity.finding {
            let object = ObjectRef::new(Kind::Secret, secret);
            let field = self.store.certificate_field(secret);
            self.diagnostics.push(Diagnostic::new(severity, object, field, reason, what));
        }
    }

    fn report(&mut self, claim: &Claim<'_>, severity: Severity, reason: &'static str, message: String) {
        let (object, field) = match (claim.claimant, &claim.secret) {
            (Claimant::Ingress { ingress, entry }, _) => {
                let field = format!("spec.tls[{entry}].secretName");
                (ObjectRef::new(Kind::Ingress, &ingress.metadata.name), field)
            }
            (Claimant::PemPair | Claimant::Default, Some(secret)) => {
                (ObjectRef::new(Kind::Secret, secret), String::new())
            }
            // What a PEM pair or a setting names is a name.
            (Claimant::PemPair | Claimant::Default, None) => return,
        };
        self.diagnostics.push(Diagnostic::new(severity, object, field, reason, message));
    }

    fn recheck(&mut self, at: i64) {
        self.recheck_at = Some(self.recheck_at.map_or(at, |known| known.min(at)));
    }
}

/// A PEM pair is bound by its very names: a host that only its wildcard covers belongs to the wildcard.
fn is_for(claim: &Claim<'_>, pair: &KeyPair, host: &HostPattern) -> bool {
    match claim.claimant {
        Claimant::PemPair => pair.names.contains(host),
        Claimant::Ingress { .. } | Claimant::Default => pair.covers(host),
    }
}

pub(super) fn is_valid(pair: &KeyPair, now: i64) -> bool {
    (pair.not_before..=pair.not_after).contains(&now)
}

/// A few names are enough to see what went wrong.
fn names_of(pair: &KeyPair) -> String {
    let shown: Vec<_> = pair.names.iter().take(5).map(HostPattern::to_string).collect();
    match (pair.names.len(), shown.len()) {
        (0, _) => "it has no names".to_owned(),
        (all, few) if all > few => format!("it is for {} and {} more", shown.join(", "), all - few),
        _ => format!("it is for {}", shown.join(", ")),
    }
}
