//! Clients of the mesh: who they are is what the one SPIFFE URI in their verified certificate says, and nothing
//! else ever is.
//!
//! A client without a certificate is let in and has no identity; one with a certificate that does not verify
//! against the roots of the mesh, has not exactly one URI name, or belongs to another trust domain is turned
//! away in the handshake. The certificate authorities of public clients are another bundle and give no identity.

use std::cell::OnceCell;
use std::fmt;
use std::sync::Arc;

use http::HeaderValue;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::aws_lc_rs;
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

/// The roots and trust domains that clients of the mesh are verified against.
pub struct MeshTrust {
    verifier: Arc<dyn ClientCertVerifier>,
    /// Its certificates as they came, to tell a change.
    pem: Box<str>,
    trust_domains: Box<[String]>,
}

/// Why no client can be verified.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MeshTrustError {
    #[error("no certificate could be read in it")]
    NoCertificate,
    #[error("a certificate in it cannot be used as a root: {0}")]
    Root(String),
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
    /// `pem` may hold several roots; `trust_domains` are the names of our own.
    pub fn new(pem: &str, trust_domains: Vec<String>) -> Result<Self, MeshTrustError> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            let certificate = certificate.map_err(|_| MeshTrustError::NoCertificate)?;
            roots.add(certificate).map_err(|error| MeshTrustError::Root(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(MeshTrustError::NoCertificate);
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .allow_unauthenticated()
            .build()
            .map_err(|error| MeshTrustError::Root(error.to_string()))?;
        Ok(Self { verifier, pem: pem.into(), trust_domains: trust_domains.into() })
    }

    /// Whether it was made of the same.
    pub fn is_made_of(&self, pem: &str, trust_domains: &[String]) -> bool {
        *self.pem == *pem && *self.trust_domains == *trust_domains
    }

    /// The identity in a certificate, which must have been verified.
    pub fn identity(&self, certificate: &CertificateDer<'_>) -> Result<SpiffeId, IdentityError> {
        let id = spiffe_id(certificate)?;
        match self.trust_domains.iter().any(|ours| *ours == *id.trust_domain()) {
            true => Ok(id),
            false => Err(IdentityError::TrustDomain(id.trust_domain().to_owned())),
        }
    }
}

/// The one identity that a certificate names, of whatever trust domain.
pub(super) fn spiffe_id(certificate: &CertificateDer<'_>) -> Result<SpiffeId, IdentityError> {
    let (_, certificate) = X509Certificate::from_der(certificate).map_err(|_| IdentityError::Malformed)?;
    let names = certificate.subject_alternative_name().map_err(|_| IdentityError::Malformed)?;
    let names = names.iter().flat_map(|names| &names.value.general_names);
    let uris: Vec<&str> = names
        .filter_map(|name| match name {
            GeneralName::URI(uri) => Some(*uri),
            _ => None,
        })
        .collect();
    match *uris {
        [uri] => Ok(SpiffeId::parse(uri)?),
        _ => Err(IdentityError::UriNames(uris.len())),
    }
}

impl fmt::Debug for MeshTrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MeshTrust").field("trust_domains", &self.trust_domains).finish_non_exhaustive()
    }
}

/// As the verifier of rustls, and then some: a chain that verifies must also name a client of this mesh.
impl ClientCertVerifier for MeshTrust {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.verifier.verify_client_cert(end_entity, intermediates, now)?;
        match self.identity(end_entity) {
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
        self.verifier.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// A client that showed its certificate on this very connection.
pub struct MeshClient {
    pub id: SpiffeId,
    certificate: CertificateDer<'static>,
    element: OnceCell<Option<HeaderValue>>,
}

impl MeshClient {
    pub fn new(id: SpiffeId, certificate: CertificateDer<'static>) -> Self {
        Self { id, certificate, element: OnceCell::new() }
    }

    /// What `x-forwarded-client-cert` says about it; made when it is first asked for.
    pub fn element(&self) -> Option<&HeaderValue> {
        self.element.get_or_init(|| super::client_element::element(&self.certificate)).as_ref()
    }
}

#[cfg(test)]
mod tests;
