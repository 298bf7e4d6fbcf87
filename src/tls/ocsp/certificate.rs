//! What a certificate chain says about revocation checking: responder URL, must-staple, issuer.
//!
//! Read once when a certificate is loaded. The URL is text a tenant chose; `sources::ocsp` judges it before use.

use rustls_pki_types::CertificateDer;
use x509_cert::der::Decode;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::signed::Signed;

/// id-ad-ocsp, the access method of a responder URL (RFC 5280, 4.2.2.1).
const AD_OCSP: &str = "1.3.6.1.5.5.7.48.1";
/// id-pe-tlsfeature (RFC 7633).
const TLS_FEATURE: &str = "1.3.6.1.5.5.7.1.24";
/// The TLS extension `status_request`; naming it in id-pe-tlsfeature is what "must staple" means.
const STATUS_REQUEST: u16 = 5;

/// What [`OcspFacts::read`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OcspFacts {
    /// The first http or https responder URL of the leaf, or else the first of any scheme. Not checked.
    pub url: Option<String>,
    /// The leaf asks clients to refuse it without a staple (RFC 7633).
    pub must_staple: bool,
    /// The certificate of the chain that signed the leaf.
    pub issuer: Option<CertificateDer<'static>>,
}

impl OcspFacts {
    /// Reads `chain`, the leaf first. A chain that cannot be read has no facts; the loader refuses it elsewhere.
    pub fn read(chain: &[CertificateDer<'static>]) -> Self {
        let Some((leaf, others)) = chain.split_first() else { return Self::default() };
        let Ok((_, parsed)) = X509Certificate::from_der(leaf) else { return Self::default() };
        Self {
            url: responder_url(&parsed),
            must_staple: must_staple(&parsed),
            issuer: find_issuer(leaf, &parsed, others).cloned(),
        }
    }
}

/// SHA-256 of the leaf's DER, the name of a certificate in the staple cache.
pub fn fingerprint(leaf: &CertificateDer<'_>) -> [u8; 32] {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, leaf);
    let mut fingerprint = [0; 32];
    fingerprint.copy_from_slice(digest.as_ref());
    fingerprint
}

/// One URL per certificate, whatever number the extension lists.
fn responder_url(leaf: &X509Certificate<'_>) -> Option<String> {
    let mut first = None;
    for extension in leaf.extensions() {
        let ParsedExtension::AuthorityInfoAccess(access) = extension.parsed_extension() else { continue };
        for description in &access.accessdescs {
            let GeneralName::URI(url) = description.access_location else { continue };
            if description.access_method.to_id_string() != AD_OCSP {
                continue;
            }
            if is_http(url) {
                return Some(url.to_owned());
            }
            first.get_or_insert(url);
        }
    }
    first.map(str::to_owned)
}

fn is_http(url: &str) -> bool {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
}

fn must_staple(leaf: &X509Certificate<'_>) -> bool {
    leaf.extensions()
        .iter()
        .filter(|extension| extension.oid.to_id_string() == TLS_FEATURE)
        .filter_map(|extension| <Vec<u16> as Decode>::from_der(extension.value).ok())
        .any(|features| features.contains(&STATUS_REQUEST))
}

/// The issuer is the one whose name the leaf carries and whose key verifies the leaf; order does not matter.
fn find_issuer<'a>(
    leaf: &CertificateDer<'_>,
    parsed: &X509Certificate<'_>,
    others: &'a [CertificateDer<'static>],
) -> Option<&'a CertificateDer<'static>> {
    let signed = Signed::read(leaf).ok()?;
    others.iter().find(|candidate| {
        X509Certificate::from_der(candidate)
            .is_ok_and(|(_, candidate)| candidate.subject().as_raw() == parsed.issuer().as_raw())
            && signed.verify(candidate).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::Ca;
    use super::*;

    #[test]
    fn reads_url_must_staple_and_issuer() {
        let ca = Ca::new("facts");
        let leaf = ca.leaf().urls(&["http://ocsp.example.com/q"]).must_staple().issue();
        let facts = OcspFacts::read(&[leaf.der.clone(), ca.der.clone()]);
        assert_eq!(facts.url.as_deref(), Some("http://ocsp.example.com/q"));
        assert!(facts.must_staple);
        assert_eq!(facts.issuer, Some(ca.der.clone()));
    }

    #[test]
    fn a_plain_leaf_has_no_responder() {
        let ca = Ca::new("plain");
        let facts = OcspFacts::read(&[ca.leaf().issue().der, ca.der.clone()]);
        assert_eq!(facts, OcspFacts { url: None, must_staple: false, issuer: Some(ca.der.clone()) });
    }

    #[test]
    fn one_url_of_many_and_http_before_other_schemes() {
        let ca = Ca::new("many");
        let mut urls = vec!["ldap://directory/x".to_owned()];
        urls.extend((0..20).map(|i| format!("HTTP://r{i}.example.com/")));
        let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
        let leaf = ca.leaf().urls(&urls).issue();
        assert_eq!(OcspFacts::read(&[leaf.der]).url.as_deref(), Some("HTTP://r0.example.com/"));

        let leaf = ca.leaf().urls(&["gopher://x/"]).issue();
        assert_eq!(OcspFacts::read(&[leaf.der]).url.as_deref(), Some("gopher://x/"));
    }

    #[test]
    fn the_issuer_is_found_by_signature_and_not_by_place_or_name() {
        let ca = Ca::new("twin");
        let namesake = Ca::new("twin");
        let stranger = Ca::new("stranger");
        let leaf = ca.leaf().issue().der;
        let chain = [leaf.clone(), stranger.der.clone(), namesake.der.clone(), ca.der.clone()];
        assert_eq!(OcspFacts::read(&chain).issuer, Some(ca.der.clone()));
        assert_eq!(OcspFacts::read(&[leaf, namesake.der.clone()]).issuer, None);
    }

    #[test]
    fn a_leaf_alone_and_nonsense_have_no_issuer() {
        let ca = Ca::new("alone");
        assert_eq!(OcspFacts::read(&[ca.leaf().issue().der]).issuer, None);
        assert_eq!(OcspFacts::read(&[]), OcspFacts::default());
        assert_eq!(OcspFacts::read(&[CertificateDer::from(vec![0x30, 0x03, 1])]), OcspFacts::default());
    }
}
