//! The answer: from bytes of a stranger to a [`Staple`], or to the one reason why not.
//!
//! [`verify`] is the only way to make a [`Staple`]. It is pure: the caller hands in the time. Nothing of a
//! response is believed, not even "revoked", before its signature and its dates are.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::{CertificateDer, UnixTime};
use webpki::{EndEntityCert, KeyUsage};
use x509_cert::der::oid::AssociatedOid;
use x509_cert::der::{Decode, Encode};
use x509_cert::ext::Extensions;
use x509_ocsp::{
    BasicOcspResponse, CertId, CertStatus, OcspGeneralizedTime, OcspResponse, OcspResponseStatus,
    ResponderId, ResponseData, SingleResponse,
};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::request::{RequestError, cert_id, key_hash};
use super::signed::{SignatureFault, Signed, certificates};

/// How far in the future a thisUpdate may lie, in seconds: clocks of responders are not ours.
pub const MAX_SKEW: u64 = 300;
/// How long an answer without nextUpdate is used, in seconds. RFC 6960 has it mean "ask whenever you like".
pub const VALIDITY_WITHOUT_NEXT_UPDATE: u64 = 3600;
/// More certificates than this in a response are not looked at; each may cost a signature check.
const MAX_CERTIFICATES: usize = 4;
/// id-kp-OCSPSigning, 1.3.6.1.5.5.7.3.9, as webpki wants it.
const OCSP_SIGNING: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x09];

/// A verified response that says "good". Times are seconds since 1970.
#[derive(Clone, PartialEq, Eq)]
pub struct Staple {
    /// The response exactly as the responder sent it.
    pub der: Arc<[u8]>,
    /// When the responder knew the status to be correct.
    pub this_update: u64,
    /// From this second on the staple must not be sent: nextUpdate, or an hour after thisUpdate where there is
    /// none, and never after the end of the delegate that signed it.
    pub next_update: u64,
    /// When the responder signed.
    pub produced_at: u64,
}

impl Staple {
    /// Whether the staple may still be sent at `now`, in seconds since 1970.
    pub fn is_fresh(&self, now: u64) -> bool {
        now < self.next_update
    }
}

/// Without the response itself, which nobody wants to read in a log.
impl fmt::Debug for Staple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Staple")
            .field("bytes", &self.der.len())
            .field("this_update", &self.this_update)
            .field("next_update", &self.next_update)
            .field("produced_at", &self.produced_at)
            .finish()
    }
}

/// Why a response is not stapled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the response is not valid DER of an OCSP response")]
    Malformed,
    #[error("the responder answered {0}")]
    Unsuccessful(&'static str),
    #[error("the response is not of the basic type")]
    NotBasic,
    #[error("the response has a critical extension that is not understood")]
    CriticalExtension,
    #[error("the response is about another certificate")]
    OtherCertificate,
    #[error("the response speaks more than once about the certificate")]
    Ambiguous,
    #[error("thisUpdate lies more than five minutes in the future")]
    FromFuture,
    #[error("nextUpdate has passed")]
    Expired,
    #[error("nextUpdate lies before thisUpdate")]
    Inverted,
    #[error("responderID matches neither the issuer nor a certificate in the response")]
    UnknownResponder,
    #[error("the signature uses an unsupported algorithm")]
    UnsupportedSignature,
    #[error("the signature does not match")]
    BadSignature,
    #[error("the delegated responder's certificate was not signed by the issuer")]
    DelegateNotByIssuer,
    #[error("the delegated responder's certificate is not valid now")]
    DelegateNotValidNow,
    #[error("the delegated responder's certificate lacks the OCSP signing usage")]
    DelegateWithoutUsage,
    #[error("the delegated responder's certificate cannot be used")]
    DelegateUnusable,
    #[error("the issuer's certificate cannot verify signatures")]
    IssuerUnusable,
    /// As of `this_update`, in seconds since 1970.
    #[error("the certificate is revoked")]
    Revoked { this_update: u64 },
    /// As of `this_update`, in seconds since 1970.
    #[error("the responder does not know the certificate")]
    Unknown { this_update: u64 },
    #[error(transparent)]
    Request(#[from] RequestError),
}

/// Decides whether `der` may be stapled to `leaf`, issued by `issuer`, at `now` (seconds since 1970).
///
/// [`Refusal::Revoked`] and [`Refusal::Unknown`] are verified statements like "good"; every other refusal says
/// nothing about the certificate.
pub fn verify(
    der: &[u8],
    leaf: &CertificateDer<'_>,
    issuer: &CertificateDer<'_>,
    now: u64,
) -> Result<Staple, Refusal> {
    let basic = basic_response(der)?;
    let signed = Signed::read(&basic).map_err(|_| Refusal::Malformed)?;
    let data = ResponseData::from_der(signed.message).map_err(|_| Refusal::Malformed)?;
    let single = single_response(&data, &cert_id(leaf, issuer)?)?;
    let (this_update, next_update) = window(single, now)?;
    let next_update = next_update.min(verify_signer(&signed, &data.responder_id, issuer, now)?);
    if next_update <= now {
        return Err(Refusal::DelegateNotValidNow);
    }
    match single.cert_status {
        CertStatus::Revoked(_) => return Err(Refusal::Revoked { this_update }),
        CertStatus::Unknown(_) => return Err(Refusal::Unknown { this_update }),
        CertStatus::Good(_) => {}
    }
    Ok(Staple { der: der.into(), this_update, next_update, produced_at: seconds(&data.produced_at) })
}

/// nextUpdate of the first entry of `der`, unverified: enough to tell that a stored file has had its day.
pub fn unverified_next_update(der: &[u8]) -> Option<u64> {
    let basic = basic_response(der).ok()?;
    let signed = Signed::read(&basic).ok()?;
    let data = ResponseData::from_der(signed.message).ok()?;
    data.responses.first().map(next_update)
}

/// Opens the envelope: status successful, type basic.
fn basic_response(der: &[u8]) -> Result<Vec<u8>, Refusal> {
    let response = OcspResponse::from_der(der).map_err(|_| Refusal::Malformed)?;
    match response.response_status {
        OcspResponseStatus::Successful => {}
        OcspResponseStatus::MalformedRequest => return Err(Refusal::Unsuccessful("malformedRequest")),
        OcspResponseStatus::InternalError => return Err(Refusal::Unsuccessful("internalError")),
        OcspResponseStatus::TryLater => return Err(Refusal::Unsuccessful("tryLater")),
        OcspResponseStatus::SigRequired => return Err(Refusal::Unsuccessful("sigRequired")),
        OcspResponseStatus::Unauthorized => return Err(Refusal::Unsuccessful("unauthorized")),
    }
    let bytes = response.response_bytes.ok_or(Refusal::Malformed)?;
    if bytes.response_type != BasicOcspResponse::OID {
        return Err(Refusal::NotBasic);
    }
    Ok(bytes.response.into_bytes())
}

/// The one entry that is about `ours`.
fn single_response<'a>(data: &'a ResponseData, ours: &CertId) -> Result<&'a SingleResponse, Refusal> {
    let mut about_us = data.responses.iter().filter(|single| same_certificate(&single.cert_id, ours));
    let single = about_us.next().ok_or(Refusal::OtherCertificate)?;
    if about_us.next().is_some() {
        return Err(Refusal::Ambiguous);
    }
    if has_critical(&data.response_extensions) || has_critical(&single.single_extensions) {
        return Err(Refusal::CriticalExtension);
    }
    Ok(single)
}

/// Equality of CertIDs, but for the NULL that some encoders leave out of the hash algorithm.
fn same_certificate(theirs: &CertId, ours: &CertId) -> bool {
    theirs.hash_algorithm.oid == ours.hash_algorithm.oid
        && theirs.hash_algorithm.parameters.as_ref().is_none_or(|parameters| parameters.is_null())
        && theirs.issuer_name_hash == ours.issuer_name_hash
        && theirs.issuer_key_hash == ours.issuer_key_hash
        && theirs.serial_number == ours.serial_number
}

fn has_critical(extensions: &Option<Extensions>) -> bool {
    extensions.iter().flatten().any(|extension| extension.critical)
}

/// thisUpdate and the end of use, if `now` lies between them.
fn window(single: &SingleResponse, now: u64) -> Result<(u64, u64), Refusal> {
    let (this_update, next_update) = (seconds(&single.this_update), next_update(single));
    if next_update < this_update {
        return Err(Refusal::Inverted);
    }
    if this_update > now.saturating_add(MAX_SKEW) {
        return Err(Refusal::FromFuture);
    }
    if next_update <= now {
        return Err(Refusal::Expired);
    }
    Ok((this_update, next_update))
}

fn next_update(single: &SingleResponse) -> u64 {
    match &single.next_update {
        Some(next_update) => seconds(next_update),
        None => seconds(&single.this_update).saturating_add(VALIDITY_WITHOUT_NEXT_UPDATE),
    }
}

fn seconds(time: &OcspGeneralizedTime) -> u64 {
    time.0.to_unix_duration().as_secs()
}

/// Checks that the issuer, or a delegate it appointed, signed. Returns when the signer's authority ends.
fn verify_signer(
    signed: &Signed<'_>,
    responder: &ResponderId,
    issuer: &CertificateDer<'_>,
    now: u64,
) -> Result<u64, Refusal> {
    let mut refusal = Refusal::UnknownResponder;
    if is_responder(issuer, responder) {
        match signed.verify(issuer) {
            Ok(()) => return Ok(u64::MAX),
            // A delegate may carry its issuer's name, so a mismatch is not the last word.
            Err(fault) => refusal = signature_refusal(fault, Refusal::IssuerUnusable),
        }
    }
    let enclosed = certificates(signed.rest, MAX_CERTIFICATES).map_err(|_| Refusal::Malformed)?;
    // Some responders enclose the issuer, which was tried above.
    let delegates = enclosed.iter().filter(|&certificate| certificate != issuer);
    for delegate in delegates.filter(|certificate| is_responder(certificate, responder)) {
        match verify_delegate(signed, delegate, issuer, now) {
            Ok(ends) => return Ok(ends),
            Err(reason) => refusal = reason,
        }
    }
    Err(refusal)
}

/// Whether `certificate` is the one that `responder` names, by subject or by key.
fn is_responder(certificate: &CertificateDer<'_>, responder: &ResponderId) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return false };
    match responder {
        ResponderId::ByName(name) => name.to_der().is_ok_and(|name| name == certificate.subject().as_raw()),
        ResponderId::ByKey(hash) => *hash == key_hash(&certificate),
    }
}

/// RFC 6960, 4.2.2.2: a delegate is signed by the issuer itself, is valid now and may sign OCSP responses.
/// Whether the delegate is revoked is not asked; that is what id-pkix-ocsp-nocheck is for.
fn verify_delegate(
    signed: &Signed<'_>,
    delegate: &CertificateDer<'_>,
    issuer: &CertificateDer<'_>,
    now: u64,
) -> Result<u64, Refusal> {
    let anchor = webpki::anchor_from_trusted_cert(issuer).map_err(|_| Refusal::IssuerUnusable)?;
    let certificate = EndEntityCert::try_from(delegate).map_err(|_| Refusal::DelegateUnusable)?;
    certificate
        .verify_for_usage(
            webpki::ALL_VERIFICATION_ALGS,
            &[anchor],
            &[],
            UnixTime::since_unix_epoch(Duration::from_secs(now)),
            KeyUsage::required(OCSP_SIGNING),
            None,
            None,
        )
        .map_err(|error| delegate_refusal(&error))?;
    signed.verify(delegate).map_err(|fault| signature_refusal(fault, Refusal::DelegateUnusable))?;
    let (_, parsed) = X509Certificate::from_der(delegate).map_err(|_| Refusal::DelegateUnusable)?;
    Ok(u64::try_from(parsed.validity().not_after.timestamp()).unwrap_or(0))
}

fn signature_refusal(fault: SignatureFault, bad_signer: Refusal) -> Refusal {
    match fault {
        SignatureFault::Unsupported => Refusal::UnsupportedSignature,
        SignatureFault::Mismatch => Refusal::BadSignature,
        SignatureFault::BadSigner => bad_signer,
    }
}

fn delegate_refusal(error: &webpki::Error) -> Refusal {
    match error {
        webpki::Error::CertExpired { .. } | webpki::Error::CertNotValidYet { .. } => {
            Refusal::DelegateNotValidNow
        }
        webpki::Error::RequiredEkuNotFoundContext(_) => Refusal::DelegateWithoutUsage,
        webpki::Error::UnknownIssuer | webpki::Error::InvalidSignatureForPublicKey => {
            Refusal::DelegateNotByIssuer
        }
        _ => Refusal::DelegateUnusable,
    }
}

#[cfg(test)]
mod tests;
