//! Distinguished names as text, in the form of RFC 2253 as OpenSSL writes it, which nginx has in `$ssl_client_s_dn` and
//! people write patterns for: the last part first, `CN=web,O=Shop\, Inc.,C=DE`.
//!
//! The text is printable ASCII whatever is in the name: what has a meaning is escaped with `\`, and control characters
//! and all beyond ASCII are written as `\` and two digits. So it cannot break out of a header field.

use std::borrow::Cow;
use std::fmt::Write;

use x509_parser::asn1_rs::{Any, Tag, ToDer};
use x509_parser::prelude::{AttributeTypeAndValue, X509Name};

/// The short names that OpenSSL has for types of attributes; others are written as their numbers.
const SHORT_NAMES: [(&str, &str); 32] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.4", "SN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "street"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.12", "title"),
    ("2.5.4.13", "description"),
    ("2.5.4.15", "businessCategory"),
    ("2.5.4.16", "postalAddress"),
    ("2.5.4.17", "postalCode"),
    ("2.5.4.18", "postOfficeBox"),
    ("2.5.4.20", "telephoneNumber"),
    ("2.5.4.41", "name"),
    ("2.5.4.42", "GN"),
    ("2.5.4.43", "initials"),
    ("2.5.4.44", "generationQualifier"),
    ("2.5.4.45", "x500UniqueIdentifier"),
    ("2.5.4.46", "dnQualifier"),
    ("2.5.4.65", "pseudonym"),
    ("2.5.4.72", "role"),
    ("2.5.4.97", "organizationIdentifier"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
    ("1.2.840.113549.1.9.2", "unstructuredName"),
    ("1.3.6.1.4.1.311.60.2.1.1", "jurisdictionL"),
    ("1.3.6.1.4.1.311.60.2.1.2", "jurisdictionST"),
    ("1.3.6.1.4.1.311.60.2.1.3", "jurisdictionC"),
];

/// A name as text.
pub(super) fn text(name: &X509Name<'_>) -> String {
    let mut text = String::new();
    let parts: Vec<_> = name.iter_rdn().collect();
    for part in parts.into_iter().rev() {
        let attributes: Vec<_> = part.iter().collect();
        for (index, attribute) in attributes.into_iter().rev().enumerate() {
            if !text.is_empty() {
                text.push(if index == 0 { ',' } else { '+' });
            }
            write_attribute(&mut text, attribute);
        }
    }
    text
}

fn write_attribute(text: &mut String, attribute: &AttributeTypeAndValue<'_>) {
    let number = attribute.attr_type().to_id_string();
    let short = SHORT_NAMES.iter().find(|(known, _)| *known == number).map(|(_, short)| *short);
    text.push_str(short.unwrap_or(&number));
    text.push('=');
    match characters(attribute.attr_value()).filter(|_| short.is_some()) {
        Some(value) => write_escaped(text, &value),
        None => {
            text.push('#');
            for byte in attribute.attr_value().to_der_vec().unwrap_or_default() {
                // Writing to a String does not fail.
                let _ = write!(text, "{byte:02X}");
            }
        }
    }
}

/// What is in a value of one of the types for text; `None` for any other, or where it is no such text.
fn characters<'a>(value: &'a Any<'_>) -> Option<Cow<'a, str>> {
    let latin = |bytes: &[u8]| bytes.iter().map(|byte| char::from(*byte)).collect::<String>();
    Some(match value.tag() {
        Tag::Utf8String => std::str::from_utf8(value.data).ok()?.into(),
        Tag::PrintableString
        | Tag::Ia5String
        | Tag::T61String
        | Tag::NumericString
        | Tag::VisibleString
        | Tag::GeneralString => latin(value.data).into(),
        Tag::BmpString => {
            let (pairs, []) = value.data.as_chunks::<2>() else { return None };
            String::from_utf16(&pairs.iter().map(|pair| u16::from_be_bytes(*pair)).collect::<Vec<_>>())
                .ok()?
                .into()
        }
        Tag::UniversalString => {
            let (fours, []) = value.data.as_chunks::<4>() else { return None };
            let characters = fours.iter().map(|four| char::from_u32(u32::from_be_bytes(*four)));
            characters.collect::<Option<String>>()?.into()
        }
        _ => return None,
    })
}

fn write_escaped(text: &mut String, value: &str) {
    let last = value.len().saturating_sub(1);
    for (at, byte) in value.bytes().enumerate() {
        let is_edge = (at == 0 && matches!(byte, b' ' | b'#')) || (at == last && byte == b' ');
        match byte {
            b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';' => text.extend(['\\', char::from(byte)]),
            _ if is_edge => text.extend(['\\', char::from(byte)]),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => {
                let _ = write!(text, "\\{byte:02X}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};
    use x509_parser::prelude::{FromDer, X509Certificate};

    use super::*;

    fn of(attributes: &[(DnType, DnValue)]) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in attributes {
            params.distinguished_name.push(kind.clone(), value.clone());
        }
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let (_, certificate) = X509Certificate::from_der(certificate.der()).unwrap();
        text(certificate.subject())
    }

    fn utf8(value: &str) -> DnValue {
        DnValue::Utf8String(value.into())
    }

    #[test]
    fn names_are_written_as_openssl_does_with_the_last_part_first() {
        let country = DnValue::PrintableString("DE".try_into().unwrap());
        let email = DnType::CustomDnType(vec![1, 2, 840, 113_549, 1, 9, 1]);
        let unknown = DnType::CustomDnType(vec![1, 2, 3, 4]);
        for (attributes, expected) in [
            (vec![(DnType::CommonName, utf8("web"))], "CN=web"),
            (
                vec![
                    (DnType::CountryName, country),
                    (DnType::OrganizationName, utf8("Shop, Inc.")),
                    (DnType::CommonName, utf8("web")),
                ],
                r"CN=web,O=Shop\, Inc.,C=DE",
            ),
            (vec![(email, utf8("a@b.test"))], "emailAddress=a@b.test"),
            (vec![(unknown, utf8("ab"))], "1.2.3.4=#0C026162"),
            (vec![(DnType::CommonName, utf8("Jürgen"))], r"CN=J\C3\BCrgen"),
            (vec![(DnType::CommonName, utf8(r#" a"b\c<d>;e+f "#))], r#"CN=\ a\"b\\c\<d\>\;e\+f\ "#),
            (vec![(DnType::CommonName, utf8("#a#"))], r"CN=\#a#"),
            (
                vec![(DnType::CommonName, utf8("a\r\nssl-client-verify: b\0"))],
                r"CN=a\0D\0Assl-client-verify: b\00",
            ),
            (vec![(DnType::CommonName, utf8(""))], "CN="),
            (vec![(DnType::CommonName, utf8(" "))], r"CN=\ "),
            (vec![], ""),
        ] {
            assert_eq!(of(&attributes), expected);
        }
    }

    proptest! {
        #[test]
        fn a_name_is_printable_whatever_is_in_it(value in "(?s).{0,40}", other in "[\\PC\r\n\0]{0,20}") {
            let text = of(&[(DnType::CommonName, utf8(&value)), (DnType::OrganizationName, utf8(&other))]);
            prop_assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{}", text);
            // What is in a value looks like no other attribute.
            let unescaped = text.replace("\\\\", "").replace("\\,", "").replace("\\+", "");
            prop_assert_eq!(unescaped.matches([',', '+']).count(), 1, "{}", text);
        }
    }
}
