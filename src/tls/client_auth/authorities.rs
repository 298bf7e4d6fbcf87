//! What clients are verified against: the certificates in `ca.crt` of a Secret, and the revocation lists in its `ca.crl`.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use rustls::DistinguishedName;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{TrustAnchor, UnixTime};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};
use webpki::{
    CertRevocationList, EndEntityCert, Error, ExpirationPolicy, KeyUsage, OwnedCertRevocationList,
    RevocationCheckDepth, RevocationOptionsBuilder, UnknownStatusPolicy, VerifiedPath,
    anchor_from_trusted_cert,
};
use x509_parser::prelude::{CertificateRevocationList, FromDer, X509Certificate};

use super::{Fault, Judgement, Verdict, unversioned};
use crate::tls::mesh::{check_signature, end_of};

/// Most bytes of names that clients are told to choose a certificate by; with more they are told none. A handshake
/// message has room for 64 KiB.
const MOST_HINTS: usize = 16 * 1024;

/// `ca.crt` and `ca.crl` of a Secret, read when a host first asks for them: many Secrets have a `ca.crt` that nobody does.
/// Secrets with the same content share one.
pub struct ClientCa {
    certificates: Box<[u8]>,
    lists: Option<Box<[u8]>>,
    read: OnceLock<Result<Arc<ClientAuthorities>, AuthoritiesError>>,
}

/// Why clients cannot be verified.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthoritiesError {
    #[error("no certificate can be read in ca.crt")]
    NoCertificate,
    #[error("a certificate in ca.crt cannot be used: {0}")]
    Certificate(String),
    #[error("no revocation list can be read in ca.crl")]
    NoList,
    #[error("a revocation list in ca.crl cannot be used: {0}")]
    List(String),
}

impl AuthoritiesError {
    /// The field of the Secret that it is about.
    pub fn field(&self) -> &'static str {
        match self {
            Self::NoCertificate | Self::Certificate(_) => "data.ca.crt",
            Self::NoList | Self::List(_) => "data.ca.crl",
        }
    }
}

impl ClientCa {
    pub fn new(certificates: &[u8], lists: Option<&[u8]>) -> Arc<Self> {
        static KNOWN: LazyLock<Mutex<HashMap<[u8; 32], Weak<ClientCa>>>> = LazyLock::new(Mutex::default);
        let id = digest([&[u8::from(lists.is_some())], certificates, lists.unwrap_or_default()]);
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = known.get(&id).and_then(Weak::upgrade) {
            return shared;
        }
        if known.len() == known.capacity() {
            known.retain(|_, shared| shared.strong_count() > 0);
        }
        let (certificates, lists) = (certificates.into(), lists.map(Into::into));
        let new = Arc::new(Self { certificates, lists, read: OnceLock::new() });
        known.insert(id, Arc::downgrade(&new));
        new
    }

    /// What is in it.
    pub fn authorities(&self) -> Result<&Arc<ClientAuthorities>, &AuthoritiesError> {
        let read = || ClientAuthorities::read(&self.certificates, self.lists.as_deref()).map(Arc::new);
        self.read.get_or_init(read).as_ref()
    }
}

/// A set of authorities, with their revocation lists.
pub struct ClientAuthorities {
    pub(super) trusted: Vec<Trusted>,
    /// Those of `trusted`, as the verifier takes them.
    anchors: Vec<TrustAnchor<'static>>,
    hints: Vec<DistinguishedName>,
    pub(super) lists: Vec<CertRevocationList<'static>>,
    /// When the first list ends, in seconds since the Unix epoch.
    pub(super) lists_end: u64,
    id: [u8; 32],
}

pub(super) struct Trusted {
    pub certificate: CertificateDer<'static>,
    starts: u64,
    pub ends: u64,
}

impl Trusted {
    /// Whether it is in force at `now`: to the verifier an anchor has no validity of its own.
    pub fn check(&self, now: u64) -> Result<(), Fault> {
        match () {
            () if now > self.ends => Err(Fault::Expired),
            () if now < self.starts => Err(Fault::NotYetValid),
            () => Ok(()),
        }
    }
}

impl ClientAuthorities {
    fn read(certificates: &[u8], lists: Option<&[u8]>) -> Result<Self, AuthoritiesError> {
        let (mut trusted, mut anchors) = (Vec::new(), Vec::new());
        for certificate in CertificateDer::pem_slice_iter(certificates) {
            let certificate = certificate.map_err(|_| AuthoritiesError::NoCertificate)?;
            let refused = |error: &dyn fmt::Display| AuthoritiesError::Certificate(error.to_string());
            let anchor = anchor_from_trusted_cert(&certificate).map_err(|error| refused(&error))?.to_owned();
            let (_, parsed) = X509Certificate::from_der(&certificate).map_err(|_| refused(&"malformed"))?;
            let at = |time: i64| u64::try_from(time).unwrap_or(0);
            let validity = parsed.validity();
            let (starts, ends) = (at(validity.not_before.timestamp()), at(validity.not_after.timestamp()));
            trusted.push(Trusted { certificate, starts, ends });
            anchors.push(anchor);
        }
        if trusted.is_empty() {
            return Err(AuthoritiesError::NoCertificate);
        }
        let ders = match lists {
            Some(lists) => read_lists(lists, &trusted)?,
            None => Vec::new(),
        };
        let list = |der: &CertificateRevocationListDer<'_>| {
            OwnedCertRevocationList::from_der(der).map(CertRevocationList::from)
        };
        let lists: Result<Vec<_>, _> = ders.iter().map(list).collect();
        let hints: Vec<_> =
            anchors.iter().map(|anchor| DistinguishedName::in_sequence(anchor.subject.as_ref())).collect();
        let size: usize = hints.iter().map(|hint| hint.as_ref().len() + 2).sum();
        let parts = trusted.iter().map(|it| &*it.certificate).chain([&b"lists"[..]]);
        Ok(Self {
            id: digest(parts.chain(ders.iter().map(|list| &**list))),
            lists_end: ders.iter().filter_map(next_update).min().unwrap_or(u64::MAX),
            lists: lists.map_err(|error| AuthoritiesError::List(error.to_string()))?,
            hints: if size > MOST_HINTS { Vec::new() } else { hints },
            trusted,
            anchors,
        })
    }

    /// Whether both are made of the same certificates and lists.
    pub fn is_same(&self, other: &Self) -> bool {
        self.id == other.id
    }

    pub(in crate::tls) fn id(&self) -> &[u8; 32] {
        &self.id
    }

    pub(super) fn hints(&self) -> &[DistinguishedName] {
        &self.hints
    }

    /// Whether revocation lists must be there for every authority, and one has ended by `now`: then nobody is let in.
    pub fn lists_have_ended(&self, now: u64) -> bool {
        !self.lists.is_empty() && now >= self.lists_end
    }

    /// How many certificates are not in force at `now`, and whether none is.
    pub fn ended(&self, now: u64) -> (usize, bool) {
        let ended = self.trusted.iter().filter(|trusted| trusted.check(now).is_err()).count();
        (ended, ended == self.trusted.len())
    }

    /// When something of it ends or begins next, in seconds since the Unix epoch.
    pub fn next_change(&self, now: u64) -> Option<u64> {
        let of_certificates = self.trusted.iter().flat_map(|it| [it.starts, it.ends.saturating_add(1)]);
        of_certificates.chain([self.lists_end]).filter(|time| *time > now && *time < u64::MAX).min()
    }

    /// How a chain stands at `now`, in seconds since the Unix epoch.
    pub(super) fn judge(&self, chain: &[CertificateDer<'_>], now: u64) -> Judgement {
        match self.path_of(chain, now) {
            Ok((intermediates, anchored_until)) => {
                let until = end_of(chain, now).min(anchored_until).min(self.lists_end.saturating_sub(1));
                Judgement { verdict: Verdict::Good { intermediates }, until }
            }
            Err(fault) => Judgement { verdict: Verdict::Bad(fault), until: u64::MAX },
        }
    }

    /// The number of intermediates on the way to an authority, and when that ends.
    fn path_of(&self, chain: &[CertificateDer<'_>], now: u64) -> Result<(usize, u64), Fault> {
        let (leaf, above) = chain.split_first().ok_or(Fault::Rejected)?;
        if let Some(trusted) = self.pinned(leaf) {
            return trusted.check(now).map(|()| (0, trusted.ends));
        }
        let certificate = match EndEntityCert::try_from(leaf) {
            Ok(certificate) => certificate,
            Err(Error::UnsupportedCertVersion) => return unversioned::path_of(self, leaf, now),
            Err(error) => return Err(fault_of(&error, leaf)),
        };
        let lists: Vec<_> = self.lists.iter().collect();
        let revocation = RevocationOptionsBuilder::new(&lists).ok().map(|options| {
            options
                .with_depth(RevocationCheckDepth::Chain)
                .with_status_policy(UnknownStatusPolicy::Deny)
                .with_expiration_policy(ExpirationPolicy::Enforce)
                .build()
        });
        let time = UnixTime::since_unix_epoch(Duration::from_secs(now));
        let trusted_at = |path: &VerifiedPath<'_>| {
            let at = self.anchors.iter().position(|anchor| std::ptr::eq(anchor, path.anchor()));
            at.and_then(|at| self.trusted.get(at))
        };
        let in_force = |path: &VerifiedPath<'_>| match trusted_at(path).map(|trusted| trusted.check(now)) {
            Some(Ok(())) => Ok(()),
            Some(Err(Fault::NotYetValid)) => Err(Error::CertNotValidYet { time, not_before: time }),
            _ => Err(Error::CertExpired { time, not_after: time }),
        };
        let algorithms = crate::tls::provider().signature_verification_algorithms.all;
        let path = certificate
            .verify_for_usage(
                algorithms,
                &self.anchors,
                above,
                time,
                KeyUsage::client_auth(),
                revocation,
                Some(&in_force),
            )
            .map_err(|error| fault_of(&error, leaf))?;
        let ends = trusted_at(&path).map_or(now, |trusted| trusted.ends);
        Ok((path.intermediate_certificates().count(), ends))
    }

    /// The authority that is the very certificate of a client, which nobody else has signed. With revocation lists such
    /// a certificate could not be revoked, so it is none.
    fn pinned(&self, leaf: &CertificateDer<'_>) -> Option<&Trusted> {
        let trusted = self.trusted.iter().find(|it| it.certificate == *leaf && self.lists.is_empty())?;
        is_self_signed(leaf).then_some(trusted)
    }
}

impl fmt::Debug for ClientAuthorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientAuthorities").field("certificates", &self.trusted.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for ClientCa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCa").finish_non_exhaustive()
    }
}

/// Lists that are there must be good ones: a client that is revoked would get in otherwise.
fn read_lists(
    pem: &[u8],
    trusted: &[Trusted],
) -> Result<Vec<CertificateRevocationListDer<'static>>, AuthoritiesError> {
    let lists: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(pem).collect();
    let lists = lists.ok().filter(|lists| !lists.is_empty()).ok_or(AuthoritiesError::NoList)?;
    let authorities: Vec<_> = trusted.iter().map(|it| it.certificate.clone()).collect();
    for list in &lists {
        check_signature(list, &authorities).map_err(|error| AuthoritiesError::List(error.to_string()))?;
    }
    Ok(lists)
}

fn next_update(list: &CertificateRevocationListDer<'_>) -> Option<u64> {
    let (_, list) = CertificateRevocationList::from_der(list).ok()?;
    list.next_update().map(|time| u64::try_from(time.timestamp()).unwrap_or(0))
}

fn is_self_signed(leaf: &CertificateDer<'_>) -> bool {
    let parsed = X509Certificate::from_der(leaf).ok();
    parsed.is_some_and(|(_, parsed)| parsed.subject().as_raw() == parsed.issuer().as_raw())
}

fn fault_of(error: &Error, leaf: &CertificateDer<'_>) -> Fault {
    match error {
        Error::UnknownIssuer if is_self_signed(leaf) => Fault::SelfSigned,
        // An authority as a client: self-signed by itself, as a rule.
        Error::CaUsedAsEndEntity if is_self_signed(leaf) => Fault::SelfSigned,
        Error::UnknownIssuer => Fault::UnknownIssuer,
        Error::CertExpired { .. } => Fault::Expired,
        Error::CertNotValidYet { .. } => Fault::NotYetValid,
        Error::CertRevoked => Fault::Revoked,
        Error::UnknownRevocationStatus => Fault::NoList,
        Error::CrlExpired { .. } => Fault::ListExpired,
        Error::InvalidCrlSignatureForPublicKey | Error::IssuerNotCrlSigner => Fault::BadList,
        Error::InvalidSignatureForPublicKey => Fault::BadSignature,
        Error::RequiredEkuNotFoundContext(_) | Error::EmptyEkuExtension => Fault::Purpose,
        Error::MaximumPathDepthExceeded | Error::PathLenConstraintViolated => Fault::TooLong,
        _ => Fault::Rejected,
    }
}

fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        context.update(part);
    }
    let mut id = [0; 32];
    id.copy_from_slice(context.finish().as_ref());
    id
}
