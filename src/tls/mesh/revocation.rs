//! Revocation lists (RFC 5280, section 5) of the mesh's trust bundle: read with it, asked by rustls in each handshake,
//! and by [`MeshClient`](super::MeshClient) about clients that are connected already.
//!
//! A list that has ended still revokes what it lists. Whoever issues no list revokes nothing.

use rustls::pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};
use webpki::{CertRevocationList, EndEntityCert, OwnedCertRevocationList};
use x509_parser::prelude::{CertificateRevocationList, FromDer, X509Certificate};

use super::MeshTrustError;

/// All lists of a bundle.
pub(super) struct Revocations(Vec<CertRevocationList<'static>>);

/// The lists among the sections of these PEM texts.
pub(super) fn read(texts: [&str; 2]) -> Result<Vec<CertificateRevocationListDer<'static>>, MeshTrustError> {
    let lists = texts.into_iter().flat_map(|text| {
        CertificateRevocationListDer::pem_slice_iter(text.as_bytes())
            .map(|list| list.map_err(|_| MeshTrustError::Revocations("malformed PEM".into())))
    });
    lists.collect()
}

impl Revocations {
    pub fn new(
        lists: &[CertificateRevocationListDer<'static>],
        roots: &[CertificateDer<'static>],
    ) -> Result<Self, MeshTrustError> {
        let lists = lists.iter().map(|list| {
            check_signature(list, roots)?;
            OwnedCertRevocationList::from_der(list)
                .map(CertRevocationList::from)
                .map_err(|error| MeshTrustError::Revocations(error.to_string()))
        });
        lists.collect::<Result<_, _>>().map(Self)
    }

    /// Whether any certificate of a chain is listed by its issuer.
    pub fn revokes(&self, chain: &[CertificateDer<'_>]) -> bool {
        chain.iter().any(|certificate| {
            // One that cannot be read has not passed a handshake.
            let Ok(certificate) = EndEntityCert::try_from(certificate) else { return true };
            let own = self.0.iter().filter(|list| list.issuer() == certificate.issuer());
            // An entry that cannot be read may be the one.
            own.into_iter().any(|list| !matches!(list.find_serial(certificate.serial()), Ok(None)))
        })
    }
}

/// A list whose issuer is among `known` must have been signed by it, and the issuer must be allowed to. Another issuer
/// is only known in the handshake.
pub fn check_signature(
    list: &CertificateRevocationListDer<'_>,
    known: &[CertificateDer<'_>],
) -> Result<(), MeshTrustError> {
    let refused = |why: &str| Err(MeshTrustError::Revocations(why.into()));
    let Ok((_, list)) = CertificateRevocationList::from_der(list) else { return refused("malformed") };
    let mut issuers = known
        .iter()
        .filter_map(|issuer| X509Certificate::from_der(issuer).ok())
        .map(|(_, issuer)| issuer)
        .filter(|issuer| issuer.subject().as_raw() == list.issuer().as_raw())
        .peekable();
    if issuers.peek().is_none() {
        return Ok(());
    }
    let mut signed_by_one = false;
    for issuer in issuers {
        if list.verify_signature(issuer.public_key()).is_err() {
            continue;
        }
        signed_by_one = true;
        let usage = issuer.key_usage().ok().flatten();
        if usage.is_none_or(|usage| usage.value.crl_sign()) {
            return Ok(());
        }
    }
    match signed_by_one {
        true => refused("its issuer may not sign revocation lists"),
        false => refused("the certificate that it names as its issuer did not sign it"),
    }
}
