//! PEM (RFC 7468) in and out, for certificates, keys and signing requests.
//!
//! Reading is lenient about text between blocks and strict about what is inside one; no error carries bytes of
//! the input, because the input may be a private key.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::{PemObject, SectionKind};
use zeroize::Zeroizing;

/// Why PEM text was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PemError {
    #[error("block {0} is not well-formed PEM")]
    Malformed(usize),
    #[error("no {0} block found")]
    Missing(&'static str),
    #[error("more than one {0} block found")]
    Several(&'static str),
}

/// All certificates in `text`, in order; blocks of other kinds are passed over.
pub fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let mut found = Vec::new();
    for (index, block) in blocks(text).enumerate() {
        let (kind, der) = block.map_err(|()| PemError::Malformed(index + 1))?;
        if kind == SectionKind::Certificate {
            found.push(CertificateDer::from(der));
        }
    }
    Ok(found)
}

/// The one signing request in `text`.
pub fn signing_request(text: &[u8]) -> Result<Vec<u8>, PemError> {
    const LABEL: &str = "CERTIFICATE REQUEST";
    let mut found = None;
    for (index, block) in blocks(text).enumerate() {
        let (kind, der) = block.map_err(|()| PemError::Malformed(index + 1))?;
        if kind != SectionKind::Csr || found.replace(der).is_some() {
            return Err(PemError::Several(LABEL));
        }
    }
    found.ok_or(PemError::Missing(LABEL))
}

/// The first private key in `text`, as PKCS#8, PKCS#1 or SEC1.
pub fn private_key(text: &[u8]) -> Result<Zeroizing<Vec<u8>>, PemError> {
    for (index, block) in blocks(text).enumerate() {
        let (kind, der) = block.map_err(|()| PemError::Malformed(index + 1))?;
        let der = Zeroizing::new(der);
        if matches!(kind, SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey) {
            return Ok(der);
        }
    }
    Err(PemError::Missing("PRIVATE KEY"))
}

/// One PEM block with lines of 64 characters and a final newline.
pub fn encode(label: &str, der: &[u8]) -> String {
    let body = Zeroizing::new(STANDARD.encode(der));
    // Sized up front: growing would leave copies of a private key behind in freed memory.
    let mut text = String::with_capacity(body.len() + body.len() / 64 + 2 * label.len() + 36);
    text.push_str("-----BEGIN ");
    text.push_str(label);
    text.push_str("-----\n");
    let mut rest = body.as_str();
    while !rest.is_empty() {
        let (line, tail) = rest.split_at(rest.len().min(64));
        text.push_str(line);
        text.push('\n');
        rest = tail;
    }
    text.push_str("-----END ");
    text.push_str(label);
    text.push_str("-----\n");
    text
}

fn blocks(text: &[u8]) -> impl Iterator<Item = Result<(SectionKind, Vec<u8>), ()>> + '_ {
    // The parser's own error may quote the offending line; it stays here.
    <(SectionKind, Vec<u8>)>::pem_slice_iter(text).map(|block| block.map_err(|_| ()))
}
