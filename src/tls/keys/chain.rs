//! The certificates of a pair: which one is the leaf, in what order the others follow, and what the leaf says
//! about itself. Called by `KeyPair::parse` only.

use rustls::pki_types::CertificateDer;
use x509_parser::asn1_rs::{FromDer, Oid, oid};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension};

use super::error::{KeyPairError, KeyPairWarning, Part};
use super::{MAX_CERTIFICATES, MAX_NAMES, MAX_PEM_BYTES, interned, pem};
use crate::names::HostPattern;

/// The chain as it is served, and what its leaf says.
pub(super) struct Chain {
    /// Never empty; leaf first, then the certificates that signed it, then those that signed these.
    pub certificates: Vec<CertificateDer<'static>>,
    pub names: Vec<HostPattern>,
    pub serial: String,
    pub not_before: i64,
    pub not_after: i64,
    pub ocsp_responder: Option<String>,
    pub must_staple: bool,
}

impl Chain {
    /// Reads the certificates of `text`. The leaf is the one with the public key `public`.
    pub fn read(
        text: &[u8],
        public: &[u8],
        warnings: &mut Vec<KeyPairWarning>,
    ) -> Result<Self, KeyPairError> {
        let ders = decode(text, warnings)?;
        let mut certificates = Vec::with_capacity(ders.len());
        for (line, der) in &ders {
            match X509Certificate::from_der(der) {
                Ok(([], x509)) => certificates.push(Certificate { line: *line, x509 }),
                _ => return Err(KeyPairError::CertificateInvalid { line: *line }),
            }
        }
        let is_leaf = |c: &Certificate<'_>| c.x509.public_key().subject_public_key.data == public;
        let leaf = certificates.iter().position(is_leaf).ok_or(KeyPairError::KeyMismatch)?;
        let (chain, strangers) = order(certificates, leaf);
        warnings.extend(strangers.iter().map(|c| KeyPairWarning::UnrelatedCertificate { line: c.line }));

        let leaf = chain.first().ok_or(KeyPairError::CertificateMissing)?;
        let validity = leaf.x509.validity();
        Ok(Self {
            names: names(leaf, warnings)?,
            serial: serial(leaf.x509.raw_serial()),
            not_before: validity.not_before.timestamp(),
            not_after: validity.not_after.timestamp(),
            ocsp_responder: ocsp_responder(leaf),
            must_staple: must_staple(leaf),
            certificates: to_serve(&chain),
        })
    }
}

struct Certificate<'a> {
    line: usize,
    x509: X509Certificate<'a>,
}

/// The different certificates of `text` in DER, each with its line.
fn decode(text: &[u8], warnings: &mut Vec<KeyPairWarning>) -> Result<Vec<(usize, Vec<u8>)>, KeyPairError> {
    if text.len() > MAX_PEM_BYTES {
        return Err(KeyPairError::TooLarge(Part::Certificate));
    }
    let mut ders: Vec<(usize, Vec<u8>)> = Vec::new();
    let mut count = 0;
    for block in pem::blocks(text, Part::Certificate, warnings)? {
        if block.is_private_key() {
            warnings.push(KeyPairWarning::KeyAmongCertificates { line: block.line });
        }
        if !matches!(block.label, b"CERTIFICATE" | b"X509 CERTIFICATE") {
            continue;
        }
        count += 1;
        if count > MAX_CERTIFICATES {
            return Err(KeyPairError::TooManyCertificates);
        }
        let der = block.der()?;
        if !ders.iter().any(|(_, known)| *known == *der) {
            ders.push((block.line, der.to_vec()));
        }
    }
    if ders.is_empty() { Err(KeyPairError::CertificateMissing) } else { Ok(ders) }
}

/// The chain from `leaf` on, and what has no part in it. A certificate can have several issuers, where an
/// authority is cross-signed; all of them stay, and clients choose.
fn order(certificates: Vec<Certificate<'_>>, leaf: usize) -> (Vec<Certificate<'_>>, Vec<Certificate<'_>>) {
    let mut rest = certificates;
    let mut chain = vec![rest.remove(leaf)];
    let mut position = 0;
    while let Some(child) = chain.get(position) {
        let (issuers, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|c| may_have_issued(c, child));
        chain.extend(issuers);
        rest = others;
        position += 1;
    }
    (chain, rest)
}

/// By name and, where both have one, key identifier (RFC 5280, section 4.2.1.1). Signatures are for clients to
/// check.
fn may_have_issued(issuer: &Certificate<'_>, child: &Certificate<'_>) -> bool {
    let named = issuer.x509.subject().as_raw() == child.x509.issuer().as_raw();
    let own = extensions(issuer).find_map(|extension| match extension {
        ParsedExtension::SubjectKeyIdentifier(key) => Some(key.0),
        _ => None,
    });
    let wanted = extensions(child).find_map(|extension| match extension {
        ParsedExtension::AuthorityKeyIdentifier(authority) => {
            authority.key_identifier.as_ref().map(|key| key.0)
        }
        _ => None,
    });
    named && own.zip(wanted).is_none_or(|(own, wanted)| own == wanted)
}

/// Every leaf has bytes of its own, every other certificate is shared.
fn to_serve(chain: &[Certificate<'_>]) -> Vec<CertificateDer<'static>> {
    let der = |(position, certificate): (usize, &Certificate<'_>)| match position {
        0 => CertificateDer::from(certificate.x509.as_raw().to_vec()),
        _ => interned::intern(certificate.x509.as_raw()),
    };
    chain.iter().enumerate().map(der).collect()
}

fn extensions<'a>(certificate: &'a Certificate<'_>) -> impl Iterator<Item = &'a ParsedExtension<'a>> {
    certificate.x509.extensions().iter().map(|extension| extension.parsed_extension())
}

fn names(
    leaf: &Certificate<'_>,
    warnings: &mut Vec<KeyPairWarning>,
) -> Result<Vec<HostPattern>, KeyPairError> {
    let invalid = || KeyPairError::CertificateInvalid { line: leaf.line };
    let written: Vec<&str> = match leaf.x509.subject_alternative_name().map_err(|_| invalid())? {
        Some(san) if san.value.general_names.len() > MAX_NAMES => return Err(KeyPairError::TooManyNames),
        Some(san) => {
            let dns_name = |name| match name {
                &GeneralName::DNSName(name) => Some(name),
                _ => None,
            };
            san.value.general_names.iter().filter_map(dns_name).collect()
        }
        None => {
            leaf.x509.subject().iter_common_name().filter_map(|name| name.as_str().ok()).take(1).collect()
        }
    };
    let mut names: Vec<_> = written.iter().filter_map(|name| host_pattern(name)).collect();
    if names.len() < written.len() {
        warnings.push(KeyPairWarning::NamesIgnored { count: written.len() - names.len() });
    }
    names.sort();
    names.dedup();
    Ok(names)
}

/// A name as clients match it: a port, a closing dot or an address makes it no host name, and a wildcard
/// stands for one label below a domain of at least two.
fn host_pattern(written: &str) -> Option<HostPattern> {
    if written.is_empty() || written.ends_with('.') || written.contains([':', '[']) {
        return None;
    }
    match HostPattern::parse(written).ok()? {
        HostPattern::Wildcard(parent) if !parent.as_str().contains('.') => None,
        pattern => Some(pattern),
    }
}

/// Lower-case hex as `openssl x509 -serial` prints it: whole bytes, without the zero that keeps it positive.
fn serial(bytes: &[u8]) -> String {
    let bytes = match bytes {
        [0, rest @ ..] if !rest.is_empty() => rest,
        bytes => bytes,
    };
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

const OCSP: Oid<'_> = oid!(1.3.6.1.5.5.7.48.1);
const TLS_FEATURE: Oid<'_> = oid!(1.3.6.1.5.5.7.1.24);

fn ocsp_responder(leaf: &Certificate<'_>) -> Option<String> {
    let access = extensions(leaf).find_map(|extension| match extension {
        ParsedExtension::AuthorityInfoAccess(access) => Some(access),
        _ => None,
    })?;
    let urls = access.iter().filter(|d| d.access_method == OCSP).filter_map(|d| match d.access_location {
        GeneralName::URI(url) => Some(url),
        _ => None,
    });
    let urls: Vec<&str> = urls.collect();
    let fetchable = urls.iter().find(|url| is_http(url));
    fetchable.or(urls.first()).map(|url| (*url).to_owned())
}

fn is_http(url: &str) -> bool {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
}

/// RFC 7633: a list of TLS extensions; 5 is `status_request`.
fn must_staple(leaf: &Certificate<'_>) -> bool {
    let features = leaf.x509.extensions().iter().find(|extension| extension.oid == TLS_FEATURE);
    features.is_some_and(|features| {
        Vec::<u32>::from_der(features.value).is_ok_and(|(_, features)| features.contains(&5))
    })
}
