//! How servers of the mesh are verified in a handshake: their chain and signature here, and whom the caller expects by
//! the caller.
//!
//! `own_identity` and `hbone_client` each say whom they expect. Names are never looked at, because identities of the
//! mesh have none.

use std::fmt;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// Whom a connection is meant for.
pub trait ExpectedPeer: fmt::Debug + Send + Sync {
    /// Whether this is the peer; the chain has to be verified against roots, which are the implementer's to choose.
    fn admits(&self, shown: &ShownChain<'_>) -> Result<(), Error>;
}

/// What a peer showed, and when.
pub struct ShownChain<'a> {
    pub leaf: &'a CertificateDer<'a>,
    pub above: &'a [CertificateDer<'a>],
    now: UnixTime,
    algorithms: &'a WebPkiSupportedAlgorithms,
}

impl ShownChain<'_> {
    /// Whether it leads to one of `roots` and is valid, for a server.
    pub fn leads_to(&self, roots: &RootCertStore) -> Result<(), Error> {
        let leaf = ParsedCertificate::try_from(self.leaf)?;
        verify_server_cert_signed_by_trust_anchor(&leaf, roots, self.above, self.now, self.algorithms.all)
    }
}

/// Takes the peer that is expected, if the handshake is signed with its key.
#[derive(Debug)]
pub struct PeerVerifier<E> {
    expected: E,
    algorithms: WebPkiSupportedAlgorithms,
}

impl<E: ExpectedPeer> PeerVerifier<E> {
    pub fn new(expected: E) -> Self {
        Self { expected, algorithms: super::provider().signature_verification_algorithms }
    }
}

impl<E: ExpectedPeer> ServerCertVerifier for PeerVerifier<E> {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        above: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.expected.admits(&ShownChain { leaf, above, now, algorithms: &self.algorithms })?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
