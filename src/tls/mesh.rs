//! Clients of the mesh: who they are is what the one SPIFFE URI in their verified certificate says, and nothing
//! else ever is.
//!
//! A client without a certificate is let in and has no identity; one with a certificate that does not verify
//! against the roots of the mesh, has not exactly one URI name, or belongs to another trust domain is turned
//! away in the handshake. The certificate authorities of public clients are another bundle and give no identity.
//! A certificate that a list of the bundle revokes is turned away too, and a change of roots or lists is held against
//! clients that are connected already, as is the end of their certificates.

mod revocation;

use std::cell::{OnceCell, RefCell};
use std::fmt;
use std::sync::Arc;

use http::HeaderValue;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore,
    SignatureScheme,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::spiffe::{SpiffeError, SpiffeId};
use revocation::Revocations;
pub use revocation::check_signature;

/// What clients of the mesh are verified against, as it came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustBundle {
    /// Root certificates, PEM.
    pub roots: Arc<str>,
    /// Revocation lists, PEM; they may stand among the roots as well. Empty where there are none.
    pub revocations: Arc<str>,
    /// The names of our own trust domain.
    pub trust_domains: Vec<String>,
}

/// The roots and trust domains that clients of the mesh are verified against.
pub struct MeshTrust {
    verifier: Arc<dyn ClientCertVerifier>,
    roots: Arc<RootCertStore>,
    /// What it was made of, to tell a change.
    bundle: TrustBundle,
    revocations: Revocations,
    /// Roots of the bundle that were left out because they had ended.
    ended: usize,
    /// The last second, since the Unix epoch, in which all of the others are valid.
    ends: i64,
}

/// Why no client can be verified.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MeshTrustError {
    #[error("no certificate could be read in it")]
    NoCertificate,
    #[error("every root in it has ended")]
    Ended,
    #[error("a certificate in it cannot be used as a root: {0}")]
    Root(String),
    #[error("a revocation list in it cannot be used: {0}")]
    Revocations(String),
}

/// Why a verified certificate names no client of this mesh.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    #[error("the client certificate cannot be read")]
    Malformed,
    #[error("the client certificate has {0} URI names; exactly one says who the client is")]
    UriNames(usize),
    #[error(transparent)]
    Spiffe(#[from] SpiffeError),
    #[error("the client is of trust domain {0}, which is not ours")]
    TrustDomain(String),
}

impl MeshTrust {
    /// Makes the verifier, as of `now` in seconds since the Unix epoch. A root that has ended by then is left out: to the
    /// library an anchor has no validity of its own.
    ///
    /// # Errors
    /// There is no root, or something in the bundle cannot be used. A list that no root of its issuer's name has
    /// signed would make every handshake fail, so it is refused here.
    pub fn new(bundle: TrustBundle, now: i64) -> Result<Self, MeshTrustError> {
        let (mut roots, mut authorities) = (RootCertStore::empty(), Vec::new());
        let (mut ended, mut ends) = (0, i64::MAX);
        for certificate in CertificateDer::pem_slice_iter(bundle.roots.as_bytes()) {
            let certificate = certificate.map_err(|_| MeshTrustError::NoCertificate)?;
            authorities.push(certificate.clone());
            let end = not_after(&certificate).unwrap_or(i64::MAX);
            if end < now {
                ended += 1;
                continue;
            }
            ends = ends.min(end);
            roots.add(certificate).map_err(|error| MeshTrustError::Root(error.to_string()))?;
        }
        match (roots.is_empty(), ended) {
            (false, _) => {}
            (true, 0) => return Err(MeshTrustError::NoCertificate),
            (true, _) => return Err(MeshTrustError::Ended),
        }
        let lists = revocation::read([&bundle.roots, &bundle.revocations])?;
        let revocations = Revocations::new(&lists, &authorities)?;
        let roots = Arc::new(roots);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), super::provider())
            .allow_unauthenticated()
            .with_crls(lists)
            // Not every authority below a root publishes a list.
            .allow_unknown_revocation_status()
            .build()
            .map_err(|error| MeshTrustError::Root(error.to_string()))?;
        Ok(Self { verifier, roots, bundle, revocations, ended, ends })
    }

    /// Whether making it anew of this bundle would give the same.
    pub fn is_made_of(&self, bundle: &TrustBundle, now: i64) -> bool {
        self.bundle == *bundle && now <= self.ends
    }

    /// How many roots were left out because they had ended.
    pub fn ended(&self) -> usize {
        self.ended
    }

    /// When the next root has ended, in seconds since the Unix epoch.
    pub fn next_end(&self) -> i64 {
        self.ends.saturating_add(1)
    }

    pub(super) fn roots(&self) -> &RootCertStore {
        &self.roots
    }

    /// Whether a list revokes a certificate or one above it.
    pub(super) fn revokes(&self, end_entity: &CertificateDer<'_>, above: &[CertificateDer<'_>]) -> bool {
        self.revocations.revokes(std::slice::from_ref(end_entity)) || self.revocations.revokes(above)
    }

    /// How a chain stands, leaf first, that was good under `before`. Where nothing that it may lead to has left since,
    /// signatures need not be verified again.
    fn judge(&self, chain: &[CertificateDer<'static>], before: Option<&Self>) -> Standing {
        let Some((leaf, above)) = chain.split_first() else { return Standing::Untrusted };
        if self.revocations.revokes(chain) {
            return Standing::Revoked;
        }
        let holds_all = |before: &Self| before.roots.roots.iter().all(|root| self.roots.roots.contains(root));
        let verified = before.is_some_and(holds_all)
            || self.verifier.verify_client_cert(leaf, above, UnixTime::now()).is_ok();
        match verified && self.identity(leaf).is_ok() {
            true => Standing::Good,
            false => Standing::Untrusted,
        }
    }

    /// The identity in a certificate, which must have been verified.
    pub fn identity(&self, certificate: &CertificateDer<'_>) -> Result<SpiffeId, IdentityError> {
        let id = spiffe_id(certificate)?;
        match self.bundle.trust_domains.iter().any(|ours| *ours == *id.trust_domain()) {
            true => Ok(id),
            false => Err(IdentityError::TrustDomain(id.trust_domain().to_owned())),
        }
    }
}

/// The last second of a certificate, since the Unix epoch; `None` where it cannot be read.
fn not_after(certificate: &CertificateDer<'_>) -> Option<i64> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(certificate.validity().not_after.timestamp())
}

/// The one SPIFFE identity that a certificate is for, whatever its trust domain.
pub(super) fn spiffe_id(certificate: &CertificateDer<'_>) -> Result<SpiffeId, IdentityError> {
    let (_, certificate) = X509Certificate::from_der(certificate).map_err(|_| IdentityError::Malformed)?;
    let names = certificate.subject_alternative_name().map_err(|_| IdentityError::Malformed)?;
    let mut uris = Vec::new();
    for name in names.iter().flat_map(|names| &names.value.general_names) {
        match name {
            GeneralName::URI(uri) => uris.push(*uri),
            // It may be a second URI, which somebody else reads.
            GeneralName::Invalid(..) => return Err(IdentityError::Malformed),
            _ => {}
        }
    }
    match *uris {
        [uri] => Ok(SpiffeId::parse(uri)?),
        _ => Err(IdentityError::UriNames(uris.len())),
    }
}

impl fmt::Debug for MeshTrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MeshTrust").field("trust_domains", &self.bundle.trust_domains).finish_non_exhaustive()
    }
}

/// Asks clients for a certificate of the mesh: the verifier of rustls, and then some, since a chain that verifies
/// must also name a client of this mesh.
#[derive(Debug)]
pub(super) struct AsksForIdentity {
    pub trust: Arc<MeshTrust>,
    /// Whether a client without a certificate is turned away.
    pub required: bool,
}

impl ClientCertVerifier for AsksForIdentity {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        self.required
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.trust.verifier.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.trust.verifier.verify_client_cert(end_entity, intermediates, now)?;
        match self.trust.identity(end_entity) {
            Ok(_) => Ok(verified),
            Err(error) => {
                Err(Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(error)))))
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.trust.verifier.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.trust.verifier.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.trust.verifier.supported_verify_schemes()
    }
}

/// A client that showed its certificate on this very connection.
pub struct MeshClient {
    pub id: SpiffeId,
    /// Its own first.
    chain: Box<[CertificateDer<'static>]>,
    /// The last second, since the Unix epoch, in which the whole chain is valid.
    ends: u64,
    element: OnceCell<Option<HeaderValue>>,
    /// The trust that the chain was held against last, and how it stood there.
    checked: RefCell<Option<(Arc<MeshTrust>, Standing)>>,
}

/// What becomes of a client's chain after its handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Good,
    /// A list has come that revokes a certificate of it.
    Revoked,
    /// It leads to no root any more, or its trust domain is not ours any more.
    Untrusted,
}

impl MeshClient {
    pub fn new(id: SpiffeId, chain: &[CertificateDer<'static>]) -> Self {
        let (ends, checked) = (end_of(chain, UnixTime::now().as_secs()), RefCell::new(None));
        Self { id, chain: chain.into(), ends, element: OnceCell::new(), checked }
    }

    /// Notes that `trust` verified it, in the handshake.
    pub fn verified_by(self, trust: Arc<MeshTrust>) -> Self {
        Self { checked: RefCell::new(Some((trust, Standing::Good))), ..self }
    }

    /// The last second, since the Unix epoch, in which its certificates are valid.
    pub fn ends(&self) -> u64 {
        self.ends
    }

    /// What `x-forwarded-client-cert` says about it, `by` the gateway where it has an identity; made when it is first
    /// asked for.
    pub fn element(&self, by: Option<&SpiffeId>) -> Option<&HeaderValue> {
        let element = || super::client_element::element(self.chain.first()?, by);
        self.element.get_or_init(element).as_ref()
    }

    /// How its chain stands with `trust`. Looked up once for each trust.
    pub fn standing(&self, trust: &Arc<MeshTrust>) -> Standing {
        let mut checked = self.checked.borrow_mut();
        let before = match &*checked {
            Some((known, standing)) if Arc::ptr_eq(known, trust) => return *standing,
            Some((known, Standing::Good)) => Some(&**known),
            _ => None,
        };
        let standing = trust.judge(&self.chain, before);
        *checked = Some((trust.clone(), standing));
        standing
    }
}

/// When the first certificate of a verified chain ends. Of those above the leaf, one that had ended before was of no
/// use to the path: clients send superseded roots along.
pub(super) fn end_of(chain: &[CertificateDer<'_>], now: u64) -> u64 {
    let ends = chain.iter().enumerate().filter_map(|(index, certificate)| {
        let end = u64::try_from(not_after(certificate)?).unwrap_or(0);
        (index == 0 || end >= now).then_some(end)
    });
    ends.min().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
