//! The signing half of the CA: one signing certificate with its key, the chain above it and the trusted roots.
//!
//! An [`Authority`] is immutable and checked as a whole when it is made, so whoever holds one can sign; a rotation
//! or reload makes a new one and swaps the pointer. `service`, `accounts` and the commands call [`Authority::issue`].

use std::time::Duration;

use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use time::OffsetDateTime;
use webpki::{
    CertRevocationList, EndEntityCert, ExpirationPolicy, KeyUsage, OwnedCertRevocationList,
    RevocationCheckDepth, RevocationOptionsBuilder, UnknownStatusPolicy, anchor_from_trusted_cert,
};

use super::bundle::RootBundle;
use super::certificate::{Certificate, CertificateError};
use super::csr::PublicKey;
use super::identity::WorkloadNames;
use super::key::{KeyAlgorithm, KeyError, PrivateKey};
use super::profile::{self, Leaf, ProfileError, Signer, SubjectName, Usage};
use crate::tls::mesh::check_signature;
use crate::tls::spiffe::SpiffeId;

/// How far certificates are dated back, so that a peer whose clock is a little behind accepts a fresh one.
pub const BACKDATE: time::Duration = time::Duration::seconds(120);

/// Shortest and longest lives that callers get; see [`TtlPolicy::resolve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TtlPolicy {
    pub default: Duration,
    pub max: Duration,
}

impl Default for TtlPolicy {
    fn default() -> Self {
        Self { default: Duration::from_secs(24 * 3600), max: Duration::from_secs(90 * 24 * 3600) }
    }
}

impl TtlPolicy {
    /// The life for a request of `seconds`: zero and less mean the default, the maximum itself is allowed.
    pub fn resolve(&self, seconds: i64) -> Result<Duration, IssueError> {
        let Some(requested) = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0) else {
            return Ok(self.default);
        };
        let requested = Duration::from_secs(requested);
        match requested > self.max {
            true => Err(IssueError::Ttl { requested, max: self.max }),
            false => Ok(requested),
        }
    }
}

/// Why material for a CA was refused. Each cause has a sentence of its own that names the file or key at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MaterialError {
    #[error("{0}: {1}")]
    Certificate(&'static str, CertificateError),
    #[error("{0}: {1}")]
    Key(&'static str, KeyError),
    #[error("signing certificate: the private key does not match it")]
    KeyMismatch,
    #[error("signing certificate: not a CA certificate (basicConstraints CA:TRUE is missing)")]
    NotCa,
    #[error("signing certificate: its keyUsage does not allow signing certificates (keyCertSign is missing)")]
    MayNotSign,
    #[error(
        "signing certificate: its extendedKeyUsage must allow both serverAuth and clientAuth, or be absent, for workload certificates to verify"
    )]
    UsagesDoNotNest,
    #[error("signing certificate: expired at {0}")]
    Expired(OffsetDateTime),
    #[error("signing certificate: not valid before {0}")]
    NotYetValid(OffsetDateTime),
    #[error("signing certificate: its subject is not encoded in DER, chains built on it would not hold")]
    SubjectNotCanonical,
    #[error("root certificates: none given")]
    NoRoot,
    #[error("certificate chain: expired at {at} (subject {subject})")]
    ChainExpired { subject: String, at: OffsetDateTime },
    #[error(
        "certificate chain: a certificate issued now would not verify against the root certificates: {0}"
    )]
    NoPathToRoot(String),
    #[error("annotation {0}: not a value that a rollover has")]
    Rollover(&'static str),
    #[error("revocation list: {0}")]
    RevocationList(String),
}

/// Why a certificate was not issued. [`IssueError::label`] is the value of the `error` label in metrics.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IssueError {
    #[error(transparent)]
    Csr(#[from] super::csr::CsrError),
    #[error("requested TTL {requested:?} is greater than the max allowed TTL {max:?}")]
    Ttl { requested: Duration, max: Duration },
    #[error("signing certificate has expired at {0}")]
    SignerExpired(OffsetDateTime),
    #[error("certificate could not be generated: {0}")]
    Generation(#[from] ProfileError),
}

impl IssueError {
    pub fn label(&self) -> &'static str {
        match self {
            Self::Csr(_) => "CSR_ERROR",
            Self::Ttl { .. } => "TTL_ERROR",
            Self::SignerExpired(_) | Self::Generation(_) => "CERT_GEN_ERROR",
        }
    }

    /// Whether the caller can repair it by asking for something else.
    pub fn is_callers_fault(&self) -> bool {
        matches!(self, Self::Csr(_) | Self::Ttl { .. })
    }
}

/// A certificate that was issued.
#[derive(Clone, Debug)]
pub struct Issued {
    pub leaf: CertificateDer<'static>,
    /// Hexadecimal.
    pub serial: String,
    pub not_after: OffsetDateTime,
}

/// Certificates and key that sign, with the roots that peers trust.
#[derive(Debug)]
pub struct Authority {
    signer: Certificate,
    key: PrivateKey,
    chain: Vec<Certificate>,
    roots: RootBundle,
    revocations: Vec<CertificateRevocationListDer<'static>>,
    /// The same, as they are asked.
    lists: Vec<CertRevocationList<'static>>,
    revoked: bool,
}

impl Authority {
    /// Checks everything that must hold and returns an authority that can sign, or the first reason against it.
    ///
    /// `chain` may repeat the signing certificate and hold roots; what goes into answers is the signing
    /// certificate and the certificates between it and a root, in issuing order, roots left out.
    pub fn new(
        signer: Certificate,
        key: PrivateKey,
        chain: Vec<Certificate>,
        roots: RootBundle,
        revocations: Vec<CertificateRevocationListDer<'static>>,
        now: OffsetDateTime,
    ) -> Result<Self, MaterialError> {
        check_signer(&signer, &key, now)?;
        if roots.is_empty() {
            return Err(MaterialError::NoRoot);
        }
        let chain = issuing_order(&signer, chain, &roots);
        if let Some(expired) = chain.iter().find(|link| link.not_after < now) {
            let subject = expired.subject_text.clone();
            return Err(MaterialError::ChainExpired { subject, at: expired.not_after });
        }
        let lists = parse_lists(&revocations, chain.iter().chain(roots.iter()))?;
        let mut authority = Self { signer, key, chain, roots, revocations, lists, revoked: false };
        authority.revoked = authority.check_path(now)?;
        Ok(authority)
    }

    /// Signs a certificate for `names` and the public key, valid for `ttl` from `now` but never longer than the
    /// signing certificate and the chain above it.
    pub fn issue(
        &self,
        public_key: &PublicKey,
        names: &WorkloadNames,
        ttl: Duration,
        now: OffsetDateTime,
    ) -> Result<Issued, IssueError> {
        self.sign(public_key, &names.to_subject_names(), Usage::ServerAndClient, ttl, now)
    }

    /// As [`Authority::issue`], for names that are not a workload's (those of the CA's own listener, hosts of
    /// Ingresses), and good for a server only.
    pub(super) fn issue_server(
        &self,
        public_key: &PublicKey,
        names: &[SubjectName],
        ttl: Duration,
        now: OffsetDateTime,
    ) -> Result<Issued, IssueError> {
        self.sign(public_key, names, Usage::Server, ttl, now)
    }

    fn sign(
        &self,
        public_key: &PublicKey,
        names: &[SubjectName],
        usage: Usage,
        ttl: Duration,
        now: OffsetDateTime,
    ) -> Result<Issued, IssueError> {
        // Certificates count whole seconds: without this, a life would be cut by a fraction of one.
        let now = now.replace_nanosecond(0).unwrap_or(now);
        let end = self.end_of_life();
        if end <= now {
            return Err(IssueError::SignerExpired(end));
        }
        let ttl = time::Duration::try_from(ttl).unwrap_or(time::Duration::MAX);
        let not_after = now.checked_add(ttl).map_or(end, |wanted| wanted.min(end));
        let not_before = now - BACKDATE;
        let leaf = Leaf { names, usage, public_key_info: public_key.info(), not_before, not_after };
        let signed = profile::sign_leaf(&leaf, &self.as_signer())?;
        Ok(Issued { leaf: signed.der, serial: signed.serial, not_after })
    }

    /// When the first certificate among the signing one and its chain ends; nothing issued lives longer.
    pub fn end_of_life(&self) -> OffsetDateTime {
        self.chain.iter().map(|link| link.not_after).fold(self.signer.not_after, OffsetDateTime::min)
    }

    /// The certificate that signs.
    pub fn signer(&self) -> &Certificate {
        &self.signer
    }

    /// The signing certificate and those above it, below the root; empty when the root itself signs.
    pub fn chain(&self) -> &[Certificate] {
        &self.chain
    }

    pub fn roots(&self) -> &RootBundle {
        &self.roots
    }

    /// What the certificates that the CA makes keys for use: the kind of its own key.
    pub fn key_algorithm(&self) -> KeyAlgorithm {
        self.key.kind()
    }

    /// The CRLs that came with a plugged-in CA.
    pub fn revocations(&self) -> &[CertificateRevocationListDer<'static>] {
        &self.revocations
    }

    /// The same as one PEM text; empty where there are none.
    pub fn revocations_pem(&self) -> String {
        self.revocations.iter().map(|list| super::pem::encode("X509 CRL", list)).collect()
    }

    /// Whether a list among them revokes the signing certificate or one above it: whoever has the list accepts nothing
    /// that is issued here. The list has to reach everybody all the same.
    pub fn is_revoked(&self) -> bool {
        self.revoked
    }

    /// The leaf of a client's chain, leaf first, if it leads to a root as they are now and no list revokes it.
    pub fn verify_client(
        &self,
        chain: &[CertificateDer<'static>],
        now: OffsetDateTime,
    ) -> Result<Certificate, ClientError> {
        let (leaf, above) = chain.split_first().ok_or(CertificateError::Empty)?;
        verify_der(leaf, above, &self.roots, KeyUsage::client_auth(), &self.lists, now)?;
        Ok(Certificate::from_der(leaf.clone())?)
    }

    /// The elements of a CSR answer: the leaf, each intermediate on its own, last the whole root bundle.
    pub fn answer(&self, leaf: &CertificateDer<'_>) -> Vec<String> {
        let mut elements = vec![super::pem::encode("CERTIFICATE", leaf)];
        elements.extend(self.chain.iter().map(Certificate::to_pem));
        elements.push(self.roots.to_pem());
        elements
    }

    /// Leaf and chain as one PEM text, root not included.
    pub fn chain_pem(&self, leaf: &CertificateDer<'_>) -> String {
        let mut text = super::pem::encode("CERTIFICATE", leaf);
        text.extend(self.chain.iter().map(Certificate::to_pem));
        text
    }

    /// Leaf and chain as DER, for a TLS configuration.
    pub fn chain_der(&self, leaf: CertificateDer<'static>) -> Vec<CertificateDer<'static>> {
        std::iter::once(leaf).chain(self.chain.iter().map(|link| link.der().clone())).collect()
    }

    fn as_signer(&self) -> Signer<'_> {
        Signer { name: &self.signer.subject, key_id: self.signer.subject_key_id.as_deref(), key: &self.key }
    }

    /// The proof that counts: what this authority issues verifies against its own bundle, as server and as client. Says
    /// whether its own lists revoke it.
    fn check_path(&self, now: OffsetDateTime) -> Result<bool, MaterialError> {
        let failed = |why: &dyn std::fmt::Display| MaterialError::NoPathToRoot(why.to_string());
        let probe = SpiffeId::new("portcullis.invalid", "self", "check").map_err(|e| failed(&e))?;
        let names = WorkloadNames::new(probe, Vec::new()).map_err(|e| failed(&e))?;
        let leaf = self
            .issue(&PublicKey::from_own_key(&self.key), &names, Duration::from_secs(60), now)
            .map_err(|e| failed(&e))?;
        for usage in [KeyUsage::server_auth(), KeyUsage::client_auth()] {
            verify(&leaf.leaf, &self.chain, &self.roots, usage, now).map_err(|why| failed(&why))?;
        }
        let above: Vec<_> = self.chain.iter().map(|link| link.der().clone()).collect();
        let listed = verify_der(&leaf.leaf, &above, &self.roots, KeyUsage::server_auth(), &self.lists, now);
        Ok(listed == Err(webpki::Error::CertRevoked))
    }
}

/// Why the chain of a client is not believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error(transparent)]
    Chain(#[from] webpki::Error),
}

/// Verifies a chain with webpki; the error is its reason.
pub fn verify(
    leaf: &CertificateDer<'_>,
    intermediates: &[Certificate],
    roots: &RootBundle,
    usage: KeyUsage,
    now: OffsetDateTime,
) -> Result<(), webpki::Error> {
    let intermediates: Vec<_> = intermediates.iter().map(|link| link.der().clone()).collect();
    verify_der(leaf, &intermediates, roots, usage, &[], now)
}

fn verify_der(
    leaf: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    roots: &RootBundle,
    usage: KeyUsage,
    lists: &[CertRevocationList<'static>],
    now: OffsetDateTime,
) -> Result<(), webpki::Error> {
    let leaf = EndEntityCert::try_from(leaf)?;
    // An anchor has no validity of its own for webpki; an ended root anchors nothing here.
    let anchors: Vec<_> = roots
        .iter()
        .filter(|root| root.is_valid_at(now))
        .filter_map(|root| anchor_from_trusted_cert(root.der()).ok())
        .collect();
    let seconds = u64::try_from(now.unix_timestamp()).unwrap_or(0);
    let at = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    let lists: Vec<_> = lists.iter().collect();
    // As in handshakes: not every issuer publishes a list, and one that has ended still revokes what it lists.
    let revocation = RevocationOptionsBuilder::new(&lists).ok().map(|options| {
        options
            .with_depth(RevocationCheckDepth::Chain)
            .with_status_policy(UnknownStatusPolicy::Allow)
            .with_expiration_policy(ExpirationPolicy::Ignore)
            .build()
    });
    let algorithms = webpki::ALL_VERIFICATION_ALGS;
    leaf.verify_for_usage(algorithms, &anchors, intermediates, at, usage, revocation, None).map(|_| ())
}

/// Parses lists. One whose issuer is among `issuers` must have been signed by it.
fn parse_lists<'a>(
    lists: &[CertificateRevocationListDer<'static>],
    issuers: impl Iterator<Item = &'a Certificate>,
) -> Result<Vec<CertRevocationList<'static>>, MaterialError> {
    let refused = |why: String| MaterialError::RevocationList(why);
    let issuers: Vec<_> = issuers.map(|issuer| issuer.der().clone()).collect();
    let parse = |list: &CertificateRevocationListDer<'static>| {
        let parsed = OwnedCertRevocationList::from_der(list).map_err(|error| refused(error.to_string()))?;
        check_signature(list, &issuers).map_err(|error| refused(error.to_string()))?;
        Ok(parsed.into())
    };
    lists.iter().map(parse).collect()
}

fn check_signer(signer: &Certificate, key: &PrivateKey, now: OffsetDateTime) -> Result<(), MaterialError> {
    if signer.public_key_info != key.public_key_info() {
        return Err(MaterialError::KeyMismatch);
    }
    if !signer.rights.is_ca {
        return Err(MaterialError::NotCa);
    }
    if !signer.rights.may_sign {
        return Err(MaterialError::MayNotSign);
    }
    if !signer.rights.usages_nest {
        return Err(MaterialError::UsagesDoNotNest);
    }
    if signer.not_after < now {
        return Err(MaterialError::Expired(signer.not_after));
    }
    if signer.not_before > now {
        return Err(MaterialError::NotYetValid(signer.not_before));
    }
    if !profile::is_canonical_name(&signer.subject) {
        return Err(MaterialError::SubjectNotCanonical);
    }
    Ok(())
}

/// The signing certificate and those above it, each issued by the next, up to a root, which is left out.
fn issuing_order(signer: &Certificate, mut pool: Vec<Certificate>, roots: &RootBundle) -> Vec<Certificate> {
    let mut ordered = Vec::new();
    let mut next = Some(signer.clone());
    while let Some(link) = next {
        if roots.contains(&link) {
            break;
        }
        pool.retain(|other| *other != link);
        let issuer = pool.iter().position(|other| {
            other.subject == link.issuer
                && (link.authority_key_id.is_none()
                    || other.subject_key_id.is_none()
                    || link.authority_key_id == other.subject_key_id)
        });
        let above = if link.is_self_issued() { None } else { issuer.map(|at| pool.swap_remove(at)) };
        ordered.push(link);
        next = above;
    }
    ordered
}

#[cfg(test)]
mod tests;
