//! A certificate as the CA sees it: the DER bytes and the few facts that decisions need.
//!
//! Parsed once when it is loaded. Equality is equality of the DER bytes: two PEM files with the same
//! certificates in other words and other order are the same.

use std::fmt;

use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::pem::{self, PemError};

/// Why a certificate was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    #[error(transparent)]
    Pem(#[from] PemError),
    #[error("certificate {0} does not parse as X.509")]
    Malformed(usize),
    #[error("no certificate found")]
    Empty,
}

/// What the extensions of a certificate say about signing others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SigningRights {
    /// `basicConstraints` is present and has CA:TRUE.
    pub is_ca: bool,
    /// `keyUsage` is absent or has keyCertSign.
    pub may_sign: bool,
    /// `extendedKeyUsage` is absent or allows what workload certificates are for: server and client.
    pub usages_nest: bool,
}

/// One parsed certificate.
#[derive(Clone)]
pub struct Certificate {
    der: CertificateDer<'static>,
    /// Hexadecimal, lower case, no separators.
    pub serial: String,
    pub not_before: OffsetDateTime,
    pub not_after: OffsetDateTime,
    /// DER of the subject and issuer, copied byte for byte into what the CA issues.
    pub subject: Vec<u8>,
    pub issuer: Vec<u8>,
    /// The subject as text, for people.
    pub subject_text: String,
    /// DER of `SubjectPublicKeyInfo`.
    pub public_key_info: Vec<u8>,
    pub subject_key_id: Option<Vec<u8>>,
    pub authority_key_id: Option<Vec<u8>>,
    pub rights: SigningRights,
    /// URI and DNS names of the SAN, in order. A name that cannot be read is an empty URI.
    pub uris: Vec<String>,
    pub dns_names: Vec<String>,
}

impl Certificate {
    /// Parses DER; trailing bytes are an error.
    pub fn from_der(der: CertificateDer<'static>) -> Result<Self, CertificateError> {
        Self::parse(der, 1)
    }

    /// Every certificate in `text`; an empty text gives an empty list.
    pub fn from_pem(text: &[u8]) -> Result<Vec<Self>, CertificateError> {
        let ders = pem::certificates(text)?;
        ders.into_iter().enumerate().map(|(index, der)| Self::parse(der, index + 1)).collect()
    }

    /// The first certificate in `text`.
    pub fn first_from_pem(text: &[u8]) -> Result<Self, CertificateError> {
        Self::from_pem(text)?.into_iter().next().ok_or(CertificateError::Empty)
    }

    pub fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    pub fn to_pem(&self) -> String {
        pem::encode("CERTIFICATE", &self.der)
    }

    /// Issuer and subject are the same name. Says nothing about the signature.
    pub fn is_self_issued(&self) -> bool {
        self.subject == self.issuer
    }

    /// Whether the key of `issuer` signed it. Says nothing about names and validity.
    pub fn is_signed_by(&self, issuer: &Self) -> bool {
        let this = X509Certificate::from_der(&self.der);
        let issuer = X509Certificate::from_der(&issuer.der);
        match (this, issuer) {
            (Ok((_, this)), Ok((_, issuer))) => this.verify_signature(Some(issuer.public_key())).is_ok(),
            _ => false,
        }
    }

    /// Whether `now` lies within the validity period, bounds included (RFC 5280 section 4.1.2.5).
    pub fn is_valid_at(&self, now: OffsetDateTime) -> bool {
        self.not_before <= now && now <= self.not_after
    }

    fn parse(der: CertificateDer<'static>, index: usize) -> Result<Self, CertificateError> {
        let malformed = || CertificateError::Malformed(index);
        let (rest, parsed) = X509Certificate::from_der(&der).map_err(|_| malformed())?;
        if !rest.is_empty() {
            return Err(malformed());
        }
        let validity = parsed.validity();
        let mut facts = Facts::default();
        for extension in parsed.extensions() {
            facts.add(extension.parsed_extension());
        }
        Ok(Self {
            serial: hex(parsed.raw_serial()),
            not_before: validity.not_before.to_datetime(),
            not_after: validity.not_after.to_datetime(),
            subject: parsed.subject().as_raw().to_vec(),
            issuer: parsed.issuer().as_raw().to_vec(),
            subject_text: parsed.subject().to_string(),
            public_key_info: parsed.public_key().raw.to_vec(),
            subject_key_id: facts.subject_key_id,
            authority_key_id: facts.authority_key_id,
            rights: SigningRights {
                is_ca: facts.is_ca,
                may_sign: !facts.key_usage_without_cert_sign,
                usages_nest: !facts.usages_without_tls,
            },
            uris: facts.uris,
            dns_names: facts.dns_names,
            der,
        })
    }
}

impl PartialEq for Certificate {
    fn eq(&self, other: &Self) -> bool {
        self.der == other.der
    }
}

impl Eq for Certificate {}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("subject", &self.subject_text)
            .field("serial", &self.serial)
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

/// Bytes as lower-case hexadecimal; leading zero bytes of a DER integer are dropped.
pub fn hex(bytes: &[u8]) -> String {
    let significant = match bytes {
        [0, rest @ ..] if !rest.is_empty() => rest,
        all => all,
    };
    significant.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[derive(Default)]
struct Facts {
    is_ca: bool,
    key_usage_without_cert_sign: bool,
    usages_without_tls: bool,
    subject_key_id: Option<Vec<u8>>,
    authority_key_id: Option<Vec<u8>>,
    uris: Vec<String>,
    dns_names: Vec<String>,
}

impl Facts {
    fn add(&mut self, extension: &ParsedExtension<'_>) {
        use x509_parser::extensions::GeneralName;
        match extension {
            ParsedExtension::BasicConstraints(constraints) => self.is_ca = constraints.ca,
            ParsedExtension::KeyUsage(usage) => self.key_usage_without_cert_sign = !usage.key_cert_sign(),
            ParsedExtension::ExtendedKeyUsage(usages) => {
                self.usages_without_tls = !(usages.any || (usages.server_auth && usages.client_auth));
            }
            ParsedExtension::SubjectKeyIdentifier(id) => self.subject_key_id = Some(id.0.to_vec()),
            ParsedExtension::AuthorityKeyIdentifier(id) => {
                self.authority_key_id = id.key_identifier.as_ref().map(|id| id.0.to_vec());
            }
            ParsedExtension::SubjectAlternativeName(names) => {
                for name in &names.general_names {
                    match name {
                        GeneralName::URI(uri) => self.uris.push((*uri).to_owned()),
                        GeneralName::DNSName(name) => self.dns_names.push((*name).to_owned()),
                        // It may be a URI, which somebody else reads: it counts as one.
                        GeneralName::Invalid(..) => self.uris.push(String::new()),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, CustomExtension, KeyPair};

    use super::*;

    #[test]
    fn a_name_that_cannot_be_read_counts_as_a_uri() {
        // The content of the extension (RFC 5280, section 4.2.1.6): a sequence of names, where a URI has tag 6.
        let uris = |names: &[&[u8]]| {
            let names: Vec<u8> =
                names.iter().flat_map(|name| [&[0x86, name.len() as u8][..], name].concat()).collect();
            let content = [&[0x30, names.len() as u8][..], &names].concat();
            let mut params = CertificateParams::default();
            params.custom_extensions.push(CustomExtension::from_oid_content(&[2, 5, 29, 17], content));
            let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            Certificate::from_der(certificate.der().clone()).unwrap().uris
        };
        assert_eq!(uris(&[b"spiffe://td/ns/a/sa/b"]), ["spiffe://td/ns/a/sa/b"]);
        assert_eq!(uris(&[b"spiffe://td/ns/a/sa/b", b"spiffe://\xff"]), ["spiffe://td/ns/a/sa/b", ""]);
    }
}
