//! Intermediate certificates, kept once for the whole process: 10,000 leaves of one issuer share its bytes.
//!
//! rustls takes a chain as owned or as static bytes, so what is shared is never given back. A gateway meets few
//! issuers, and [`LIMIT`] bounds what it can cost where someone makes it meet many: then pairs own their copies.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, PoisonError};

use rustls::pki_types::CertificateDer;

/// Most bytes that are shared, and so never freed: some 4,000 intermediates.
const LIMIT: usize = 4 * 1024 * 1024;

#[derive(Default)]
struct Interned {
    certificates: HashSet<&'static [u8]>,
    bytes: usize,
}

static INTERNED: LazyLock<Mutex<Interned>> = LazyLock::new(Mutex::default);

/// `der` as a certificate, shared with all others that have the same bytes.
pub(super) fn intern(der: &[u8]) -> CertificateDer<'static> {
    let mut interned = INTERNED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(shared) = interned.certificates.get(der) {
        return CertificateDer::from(*shared);
    }
    if interned.bytes + der.len() > LIMIT {
        return CertificateDer::from(der.to_vec());
    }
    let shared: &'static [u8] = Box::leak(der.into());
    interned.bytes += shared.len();
    interned.certificates.insert(shared);
    CertificateDer::from(shared)
}
