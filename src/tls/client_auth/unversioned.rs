//! Certificates of X.509 version 1, which have no extensions and which webpki does not read. OpenSSL before 3.2 makes them
//! of a request unless it is told otherwise, so the client certificates that many a guide has people make are such.
//!
//! One that an authority itself has signed is as good as one of version 3 without extensions. Nothing that such a
//! certificate signs is ever believed.

use rustls::DistinguishedName;
use rustls_pki_types::CertificateDer;
use webpki::CertRevocationList;
use x509_parser::prelude::{FromDer, X509Certificate, X509Version};

use super::Fault;
use super::authorities::ClientAuthorities;

/// SHA-256, SHA-384 and SHA-512 with RSA and ECDSA, and Ed25519: what webpki accepts of other certificates.
const ALGORITHMS: [&str; 7] = [
    "1.2.840.113549.1.1.11",
    "1.2.840.113549.1.1.12",
    "1.2.840.113549.1.1.13",
    "1.2.840.10045.4.3.2",
    "1.2.840.10045.4.3.3",
    "1.2.840.10045.4.3.4",
    "1.3.101.112",
];

/// As for other certificates: no intermediates, and when the authority ends.
pub(super) fn path_of(
    authorities: &ClientAuthorities,
    leaf: &CertificateDer<'_>,
    now: u64,
) -> Result<(usize, u64), Fault> {
    let (_, certificate) = X509Certificate::from_der(leaf).map_err(|_| Fault::Rejected)?;
    if certificate.version() != X509Version::V1 || !certificate.extensions().is_empty() {
        return Err(Fault::Rejected);
    }
    let validity = certificate.validity();
    let time = i64::try_from(now).unwrap_or(i64::MAX);
    if time > validity.not_after.timestamp() {
        return Err(Fault::Expired);
    }
    if time < validity.not_before.timestamp() {
        return Err(Fault::NotYetValid);
    }
    let mut fault = match certificate.subject().as_raw() == certificate.issuer().as_raw() {
        true => Fault::SelfSigned,
        false => Fault::UnknownIssuer,
    };
    if !ALGORITHMS.contains(&certificate.signature_algorithm.algorithm.to_id_string().as_str()) {
        return Err(Fault::Rejected);
    }
    for trusted in &authorities.trusted {
        let Ok((_, authority)) = X509Certificate::from_der(&trusted.certificate) else { continue };
        if authority.subject().as_raw() != certificate.issuer().as_raw() || !may_sign(&authority) {
            continue;
        }
        if certificate.verify_signature(Some(authority.public_key())).is_err() {
            fault = Fault::BadSignature;
            continue;
        }
        if let Err(ended) = trusted.check(now) {
            fault = ended;
            continue;
        }
        check_lists(authorities, &certificate, now)?;
        return Ok((0, trusted.ends));
    }
    Err(fault)
}

/// Whether an authority signs certificates. One of version 1 cannot say so.
fn may_sign(authority: &X509Certificate<'_>) -> bool {
    let constraints = authority.basic_constraints().ok().flatten();
    let is_authority = match constraints {
        Some(constraints) => constraints.value.ca,
        None => authority.version() == X509Version::V1,
    };
    let usage = authority.key_usage().ok().flatten();
    is_authority && usage.is_none_or(|usage| usage.value.key_cert_sign())
}

/// That lists are signed by their issuer was found when they were read.
fn check_lists(
    authorities: &ClientAuthorities,
    certificate: &X509Certificate<'_>,
    now: u64,
) -> Result<(), Fault> {
    if authorities.lists.is_empty() {
        return Ok(());
    }
    // The list has the content of the name alone.
    let issuer = |list: &CertRevocationList<'_>| DistinguishedName::in_sequence(list.issuer());
    let is_own = |list: &&CertRevocationList<'_>| issuer(list).as_ref() == certificate.issuer().as_raw();
    let own: Vec<_> = authorities.lists.iter().filter(is_own).collect();
    match own.iter().any(|list| !matches!(list.find_serial(certificate.raw_serial()), Ok(None))) {
        true => Err(Fault::Revoked),
        false if own.is_empty() => Err(Fault::NoList),
        false if authorities.lists_have_ended(now) => Err(Fault::ListExpired),
        false => Ok(()),
    }
}
