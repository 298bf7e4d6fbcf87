//! One element of `x-forwarded-client-cert`, in Envoy's form: `Key=Value` pairs joined by `;`, of which `By` (the
//! gateway, where it has an identity), `Hash` (SHA-256 of the certificate), `Cert` (PEM, percent-encoded), `Subject`,
//! `URI` and `DNS` are given.

use std::fmt::Write;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::spiffe::SpiffeId;

/// The element for a client certificate; `None` where it holds what no header can.
pub(super) fn element(der: &CertificateDer<'_>, by: Option<&SpiffeId>) -> Option<HeaderValue> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let mut text = by.map_or_else(String::new, |by| format!("By={};", plain(by.as_uri())));
    text.push_str("Hash=");
    for byte in digest(&SHA256, der).as_ref() {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    let _ = write!(text, ";Cert=\"{}\"", utf8_percent_encode(&pem(der), NON_ALPHANUMERIC));
    let _ = write!(text, ";Subject={}", in_quotes(&certificate.subject().to_string()));
    let names = certificate.subject_alternative_name().ok().flatten();
    for name in names.iter().flat_map(|names| &names.value.general_names) {
        let _ = match name {
            GeneralName::URI(uri) => write!(text, ";URI={}", plain(uri)),
            GeneralName::DNSName(name) => write!(text, ";DNS={}", plain(name)),
            _ => Ok(()),
        };
    }
    HeaderValue::from_str(&text).ok()
}

/// A certificate in PEM as nginx has it in `$ssl_client_escaped_cert`: all but what a URL may hold anywhere is
/// percent-encoded (RFC 3986, section 2.3).
pub(super) fn escaped_pem(der: &[u8]) -> String {
    const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    utf8_percent_encode(&pem(der), ESCAPED).to_string()
}

fn pem(der: &[u8]) -> String {
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    let body = STANDARD.encode(der);
    for line in body.as_bytes().chunks(64) {
        pem.push_str(&String::from_utf8_lossy(line));
        pem.push('\n');
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

/// A value as it is, unless it has characters with a meaning here, or such as no header may hold: the element of a
/// client must not be missing for one of its names.
fn plain(value: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_graphic() && !b",;=\"\\".contains(&byte);
    match value.bytes().all(plain) {
        true => value.to_owned(),
        false => in_quotes(value),
    }
}

/// In quotes, with `\` before what would end them. Characters that no header may hold become `?`.
fn in_quotes(value: &str) -> String {
    let mut quoted = String::from("\"");
    for char in value.chars() {
        match char {
            '"' | '\\' => quoted.extend(['\\', char]),
            ' '..='~' => quoted.push(char),
            _ => quoted.push('?'),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    #[test]
    fn commas_and_quotes_of_a_subject_stay_within_its_quotes() {
        let mut params = CertificateParams::new(vec!["a.test".into()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, r#"Web, "Shop"; A=B \"#);
        params.subject_alt_names.push(SanType::URI("spiffe://td/ns/a/sa/b".try_into().unwrap()));
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let value = element(certificate.der(), None).unwrap();
        let text = value.to_str().unwrap();
        assert!(text.starts_with("Hash="), "{text}");
        assert!(text.contains(r#"Web, \"Shop\"; A=B \\""#), "{text}");
        assert!(text.ends_with(";DNS=a.test;URI=spiffe://td/ns/a/sa/b"), "{text}");
        let hash = text.split(';').next().unwrap();
        assert_eq!(hash.len(), "Hash=".len() + 64);

        params.subject_alt_names.push(SanType::DnsName("a\r\n=b".try_into().unwrap()));
        let odd = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let value = element(odd.der(), None).unwrap();
        assert!(value.to_str().unwrap().ends_with(r#";URI=spiffe://td/ns/a/sa/b;DNS="a??=b""#), "{value:?}");

        let gateway = SpiffeId::new("td", "ingress", "portcullis").unwrap();
        let by = element(certificate.der(), Some(&gateway)).unwrap();
        assert_eq!(by.to_str().unwrap(), format!("By=spiffe://td/ns/ingress/sa/portcullis;{text}"));
    }
}
