//! Which certificates are in use that may be stapled, and what is known about their staples.
//!
//! Two things come of it: the entries in the snapshot that handshakes read, and the [`StapleDemand`] that tells
//! the OCSP source what to ask about. Both follow from changes of hosts and staples, never from a walk over all
//! certificates. Those that name no responder, most of them, do not occur here at all.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Compiled;
use super::report::Subject;
use crate::diagnostics::{Diagnostic, ObjectRef, Severity};
use crate::snapshot::SharedMap;
use crate::snapshot::certificates::{Certificate, HostCertificates, Stapling};
use crate::store::Store;
use crate::store::objects::Kind;
use crate::tls::ocsp::{OcspState, OcspStatus, Stapled};

/// SHA-256 of a leaf in DER.
type Leaf = [u8; 32];

/// How the set of certificates to keep staples for differs from that of the compile before.
#[derive(Clone, Debug, Default)]
pub struct StapleDemand {
    /// New, or to be asked about on behalf of another Secret or with another chain; one for each leaf.
    pub wanted: Vec<Arc<Certificate>>,
    /// Fingerprints of leaves that are not in use any more.
    pub dropped: Vec<Leaf>,
}

/// The certificates in use that name a responder, by leaf. Copies share structure.
#[derive(Clone, Default)]
pub(super) struct Leaves(SharedMap<Leaf, Arc<[Use]>>);

/// One certificate with a leaf: other Secrets may have the same leaf, with the same or another chain.
#[derive(Clone)]
struct Use {
    certificate: Arc<Certificate>,
    /// Hosts that are served with it.
    served: usize,
    /// Hosts for which it waits for its first staple.
    awaited: usize,
}

impl Leaves {
    /// The one certificate of each leaf to ask about.
    pub fn wanted(&self) -> impl Iterator<Item = &Arc<Certificate>> {
        self.0.values().filter_map(|uses| representative(uses))
    }

    fn uses(&self, leaf: &Leaf) -> &[Use] {
        self.0.get(leaf).map_or(&[], |uses| uses)
    }

    /// Takes into account that a host has `after` instead of `before`. Leaves that are affected go to `touched`.
    fn replace(
        &mut self,
        before: Option<&HostCertificates>,
        after: Option<&HostCertificates>,
        touched: &mut BTreeSet<Leaf>,
    ) {
        if let Some(certificates) = after {
            self.count(certificates, usize::saturating_add, touched);
        }
        if let Some(certificates) = before {
            self.count(certificates, usize::saturating_sub, touched);
        }
    }

    fn count(
        &mut self,
        certificates: &HostCertificates,
        add: fn(usize, usize) -> usize,
        touched: &mut BTreeSet<Leaf>,
    ) {
        let served = certificates.iter().map(|binding| (&binding.certificate, 1, 0));
        let awaited = certificates.awaited().iter().map(|awaited| (&awaited.certificate, 0, 1));
        for (certificate, served, awaited) in served.chain(awaited) {
            if certificate.pair.ocsp_responder.is_none() {
                continue;
            }
            let leaf = certificate.pair.fingerprint;
            let mut uses = self.uses(&leaf).to_vec();
            let known = uses.iter().position(|known| is_same(&known.certificate, certificate));
            let position = known.unwrap_or_else(|| {
                uses.push(Use { certificate: certificate.clone(), served: 0, awaited: 0 });
                uses.len() - 1
            });
            if let Some(used) = uses.get_mut(position) {
                used.served = add(used.served, served);
                used.awaited = add(used.awaited, awaited);
            }
            uses.retain(|used| used.served + used.awaited > 0);
            match uses.is_empty() {
                true => drop(self.0.remove(&leaf)),
                false => drop(self.0.insert(leaf, uses.into())),
            }
            touched.insert(leaf);
        }
    }
}

/// The same chain out of the same Secret, whichever host it was bound to.
fn is_same(a: &Certificate, b: &Certificate) -> bool {
    a.secret == b.secret && a.pair.digest == b.pair.digest
}

/// One with its issuer, if there is any: without it nobody can be asked.
fn representative(uses: &[Use]) -> Option<&Arc<Certificate>> {
    let with_issuer = uses.iter().find(|used| used.certificate.pair.issuer().is_some());
    with_issuer.or(uses.first()).map(|used| &used.certificate)
}

/// What happens to staples in the course of one compile.
pub(super) struct StapleChanges {
    /// The leaves before anything changed.
    before: Leaves,
    touched: BTreeSet<Leaf>,
}

impl StapleChanges {
    /// `news` are the leaves about which something else is known.
    pub fn new(compiled: &Compiled, news: impl Iterator<Item = Leaf>) -> Self {
        Self { before: compiled.leaves.clone(), touched: news.collect() }
    }
}

impl Compiled {
    /// Takes into account that a host, or the default, has `after` instead of `before`.
    pub(super) fn replace_leaves(
        &mut self,
        changes: &mut StapleChanges,
        before: Option<&HostCertificates>,
        after: Option<&HostCertificates>,
    ) {
        self.leaves.replace(before, after, &mut changes.touched);
    }

    /// Brings the snapshot's staples up to date, once hosts are.
    pub(super) fn compile_staples(&mut self, store: &Store, changes: StapleChanges) {
        let StapleChanges { before, touched } = changes;
        self.staple_demand = StapleDemand::default();
        for leaf in touched {
            self.follow_demand(&leaf, &before);
            self.compile_staple(store, &leaf, &before);
        }
    }

    fn follow_demand(&mut self, leaf: &Leaf, before: &Leaves) {
        let (old, new) = (representative(before.uses(leaf)), representative(self.leaves.uses(leaf)));
        match (old, new) {
            (Some(_), None) => self.staple_demand.dropped.push(*leaf),
            (Some(old), Some(new)) if is_same(old, new) => {}
            (_, Some(new)) => self.staple_demand.wanted.push(new.clone()),
            (None, None) => {}
        }
    }

    fn compile_staple(&mut self, store: &Store, leaf: &Leaf, before: &Leaves) {
        let uses = self.leaves.uses(leaf);
        let staples = &mut self.snapshot.certificates.staples;
        let is_used = |digest| uses.iter().any(|used| used.certificate.pair.digest == digest);
        for digest in before.uses(leaf).iter().map(|used| used.certificate.pair.digest) {
            if !is_used(digest) {
                staples.remove(&digest);
            }
        }
        let status = store.staple(leaf).cloned().unwrap_or_else(|| Arc::new(OcspStatus::pending(*leaf)));
        for pair in uses.iter().map(|used| &used.certificate.pair) {
            if staples.get(&pair.digest).is_none_or(|known| !Arc::ptr_eq(&known.status, &status)) {
                let stapled = status.staple.as_ref().map(|staple| Stapled::new(pair, staple));
                staples.insert(pair.digest, Arc::new(Stapling { status: status.clone(), stapled }));
            }
        }
        let found = uses.iter().filter_map(|used| finding(store, used, &status)).collect();
        self.report.set(Subject::Staple(*leaf), found);
    }
}

/// What there is to say about the staple of a certificate. That it names no responder is nothing.
fn finding(store: &Store, used: &Use, status: &OcspStatus) -> Option<Diagnostic> {
    let secret = used.certificate.secret.as_ref()?;
    let must_staple = used.certificate.pair.must_staple;
    let error = status.last_error.as_deref().unwrap_or("no answer yet");
    let (severity, reason, message) = match status.state {
        OcspState::Revoked => {
            let message = "its issuer says that the certificate is revoked: replace it".to_owned();
            (Severity::Error, "CertificateRevoked", message)
        }
        OcspState::Unknown => {
            let message = "the OCSP responder does not know the certificate: it is not stapled".to_owned();
            (Severity::Warning, "CertificateUnknown", message)
        }
        _ if status.staple.is_some() => return None,
        _ if must_staple && used.served > 0 => {
            let message = format!("the certificate must be stapled and is served without: {error}");
            (Severity::Error, "MustStapleUnstapled", message)
        }
        OcspState::IssuerUnknown => {
            let message =
                "the chain lacks the issuer, without which nobody can be asked for a staple".to_owned();
            (Severity::Info, "OcspIssuerUnknown", message)
        }
        OcspState::Error => (Severity::Warning, "OcspFailed", format!("there is no OCSP staple: {error}")),
        OcspState::Disabled | OcspState::NoResponder | OcspState::Pending | OcspState::Good => return None,
    };
    let field = store.certificate_field(secret);
    Some(Diagnostic::new(severity, ObjectRef::new(Kind::Secret, secret), field, reason, message))
}
