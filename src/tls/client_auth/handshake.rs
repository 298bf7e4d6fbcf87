//! The handshake with a client that is asked for a certificate: everybody is let in who has the key of what he shows, and
//! the verdict about it stays with the handshake.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{
    WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
    verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::ProducesTickets;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use rustls_pki_types::CertificateDer;
use webpki::{EndEntityCert, RawPublicKeyEntity};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{ClientAuthorities, Judgement, Verdict};
use crate::tls::tickets::Tickets;

tokio::task_local! {
    /// What the verifier has found in the handshake that is going on.
    static FOUND: Cell<Option<Judgement>>;
}

/// A handshake, and what its verifier found. The verifier and the ticketer are of all handshakes of a policy; this tells
/// them which one is at work.
pub async fn remembering<H: Future>(handshake: H) -> (H::Output, Option<Judgement>) {
    let handshake = async {
        let output = handshake.await;
        (output, FOUND.with(Cell::get))
    };
    FOUND.scope(Cell::new(None), handshake).await
}

/// Asks clients for a certificate of these authorities, and takes any or none.
pub struct AsksForCertificate {
    authorities: Arc<ClientAuthorities>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl AsksForCertificate {
    pub fn new(authorities: Arc<ClientAuthorities>) -> Self {
        Self { authorities, algorithms: crate::tls::provider().signature_verification_algorithms }
    }
}

impl ClientCertVerifier for AsksForCertificate {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.authorities.hints()
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        above: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let chain: Vec<_> = [leaf].into_iter().chain(above).cloned().collect();
        let judgement = self.authorities.judge(&chain, now.as_secs());
        // Without a handshake that remembers it, requests find out by themselves.
        let _ = FOUND.try_with(|found| found.set(Some(judgement)));
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if EndEntityCert::try_from(certificate).is_ok() {
            return verify_tls12_signature(message, certificate, signature, &self.algorithms);
        }
        let key = key_of(certificate)?;
        let key = RawPublicKeyEntity::try_from(&key).map_err(|_| bad_encoding())?;
        let all = self.algorithms.mapping.iter().filter(|(scheme, _)| *scheme == signature.scheme);
        let mut algorithms = all.flat_map(|(_, algorithms)| algorithms.iter());
        match algorithms
            .any(|algorithm| key.verify_signature(*algorithm, message, signature.signature()).is_ok())
        {
            true => Ok(HandshakeSignatureValid::assertion()),
            false => Err(CertificateError::BadSignature.into()),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if EndEntityCert::try_from(certificate).is_ok() {
            return verify_tls13_signature(message, certificate, signature, &self.algorithms);
        }
        verify_tls13_signature_with_raw_key(message, &key_of(certificate)?, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// The key of a certificate that webpki does not read: whether it is good for anything is another question.
fn key_of(certificate: &CertificateDer<'_>) -> Result<SubjectPublicKeyInfoDer<'static>, Error> {
    let (_, certificate) = X509Certificate::from_der(certificate).map_err(|_| bad_encoding())?;
    Ok(SubjectPublicKeyInfoDer::from(certificate.public_key().raw.to_vec()))
}

fn bad_encoding() -> Error {
    CertificateError::BadEncoding.into()
}

impl fmt::Debug for AsksForCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsksForCertificate").field("authorities", &self.authorities).finish_non_exhaustive()
    }
}

/// Tickets that are good where the same authorities are asked for and nowhere else; the name the client asks for is bound
/// by rustls. Only a client with a good certificate gets one: the others are to show another next time.
#[derive(Debug)]
pub struct BoundTickets {
    pub tickets: Arc<Tickets>,
    pub authorities: Arc<ClientAuthorities>,
}

impl ProducesTickets for BoundTickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        self.tickets.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let found = FOUND.try_with(Cell::get).ok().flatten()?;
        match found.verdict {
            Verdict::Good { .. } => self.tickets.seal(plain, self.authorities.id()),
            Verdict::Bad(_) => None,
        }
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.tickets.open(cipher, self.authorities.id())
    }
}
