//! The outline that certificates and basic OCSP responses share: signed bytes, an algorithm, a signature.
//!
//! Signatures are checked over the bytes as received. Decoding and encoding again would check something
//! else whenever a responder's encoder and ours disagree about a detail.

use rustls_pki_types::CertificateDer;
use webpki::EndEntityCert;
use x509_cert::der::asn1::{AnyRef, BitStringRef};
use x509_cert::der::{self, Decode, Reader, SliceReader, Tag};

/// `SEQUENCE { message, AlgorithmIdentifier, BIT STRING, rest }`, taken apart and not yet verified.
pub struct Signed<'a> {
    /// The first element with its header: what the signature covers.
    pub message: &'a [u8],
    /// Contents of the AlgorithmIdentifier, in the form webpki compares.
    algorithm: &'a [u8],
    signature: &'a [u8],
    /// What follows the signature: nothing in a certificate, `certs [0]` in an OCSP response.
    pub rest: &'a [u8],
}

/// Why a signature does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignatureFault {
    /// The algorithm is unknown, too weak, or does not belong to the signer's kind of key.
    Unsupported,
    /// The signer's certificate cannot be read.
    BadSigner,
    /// The bytes were not signed by that key.
    Mismatch,
}

impl<'a> Signed<'a> {
    /// Takes `der` apart.
    pub fn read(der: &'a [u8]) -> der::Result<Self> {
        let contents = contents(der, Tag::Sequence)?;
        let mut reader = SliceReader::new(contents)?;
        let message = reader.tlv_bytes()?;
        let algorithm = self::contents(reader.tlv_bytes()?, Tag::Sequence)?;
        let bits = BitStringRef::from_der(reader.tlv_bytes()?)?;
        let signature = bits.as_bytes().ok_or(der::ErrorKind::Value { tag: Tag::BitString })?;
        let rest = reader.read_slice(reader.remaining_len())?;
        Ok(Self { message, algorithm, signature, rest })
    }

    /// Checks that `signer`'s key made the signature.
    pub fn verify(&self, signer: &CertificateDer<'_>) -> Result<(), SignatureFault> {
        let signer = EndEntityCert::try_from(signer).map_err(|_| SignatureFault::BadSigner)?;
        // One identifier can stand for several algorithms: ecdsa-with-SHA256 is tried for P-256, P-384 and P-521.
        let mut fault = SignatureFault::Unsupported;
        for &algorithm in webpki::ALL_VERIFICATION_ALGS {
            if algorithm.signature_alg_id().as_ref() != self.algorithm {
                continue;
            }
            match signer.verify_signature(algorithm, self.message, self.signature) {
                Ok(()) => return Ok(()),
                Err(webpki::Error::UnsupportedSignatureAlgorithmForPublicKeyContext(_)) => {}
                Err(_) => fault = SignatureFault::Mismatch,
            }
        }
        Err(fault)
    }
}

/// The certificates in the `certs [0]` part of a basic response, as DER, at most `limit`.
pub fn certificates(rest: &[u8], limit: usize) -> der::Result<Vec<CertificateDer<'_>>> {
    if rest.is_empty() {
        return Ok(Vec::new());
    }
    let tag = Tag::ContextSpecific { constructed: true, number: der::TagNumber::N0 };
    let list = contents(contents(rest, tag)?, Tag::Sequence)?;
    let mut reader = SliceReader::new(list)?;
    let mut certificates = Vec::new();
    while !reader.is_finished() && certificates.len() < limit {
        certificates.push(CertificateDer::from(reader.tlv_bytes()?));
    }
    Ok(certificates)
}

/// The contents of the one element `der` consists of.
fn contents(der: &[u8], tag: Tag) -> der::Result<&[u8]> {
    let any = AnyRef::from_der(der)?;
    der::Tagged::tag(&any).assert_eq(tag)?;
    Ok(any.value())
}
