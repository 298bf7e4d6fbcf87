//! The request header `x-forwarded-client-cert`: what a backend is told about the client's certificate. Whatever
//! came in under this name is never believed here; it is passed on only where a setting says so and the peer is
//! in a network that is trusted with it.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::headers::joined;
use crate::settings::choices::ForwardClientCert;
use crate::tls::mesh::MeshClient;
use crate::tls::spiffe::SpiffeId;

pub const X_FORWARDED_CLIENT_CERT: HeaderName = HeaderName::from_static("x-forwarded-client-cert");

/// Sets the field, or takes it away. `client` is who was verified on this connection, `by` who the gateway is, and
/// `trusted` whether the peer may have its own field passed on.
pub fn set(
    headers: &mut HeaderMap,
    mode: ForwardClientCert,
    client: Option<&MeshClient>,
    by: Option<&SpiffeId>,
    trusted: bool,
) {
    use ForwardClientCert::{AlwaysForwardOnly, AppendForward, ForwardOnly, Sanitize, SanitizeSet};
    let kept = match (mode, client) {
        _ if !trusted => None,
        (AlwaysForwardOnly, _) | (ForwardOnly | AppendForward, Some(_)) => {
            joined(headers, &X_FORWARDED_CLIENT_CERT, b",")
        }
        (Sanitize | SanitizeSet, _) | (ForwardOnly | AppendForward, None) => None,
    };
    let own = match mode {
        AppendForward | SanitizeSet => client.and_then(|client| client.element(by)).cloned(),
        Sanitize | ForwardOnly | AlwaysForwardOnly => None,
    };
    headers.remove(X_FORWARDED_CLIENT_CERT);
    let value = match (kept, own) {
        (Some(kept), Some(own)) => {
            HeaderValue::from_bytes(&[kept.as_bytes(), b",", own.as_bytes()].concat()).ok()
        }
        (kept, own) => kept.or(own),
    };
    if let Some(value) = value {
        headers.insert(X_FORWARDED_CLIENT_CERT, value);
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, SanType};

    use super::*;

    fn client() -> MeshClient {
        let id = SpiffeId::parse("spiffe://td/ns/a/sa/b").unwrap();
        let mut params = CertificateParams::default();
        params.subject_alt_names.push(SanType::URI(id.as_uri().try_into().unwrap()));
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        MeshClient::new(id, &[certificate.der().clone()])
    }

    fn sent_on(
        lines: &[&str],
        mode: ForwardClientCert,
        client: Option<&MeshClient>,
        trusted: bool,
    ) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(X_FORWARDED_CLIENT_CERT, HeaderValue::from_str(line).unwrap());
        }
        set(&mut headers, mode, client, None, trusted);
        let values = headers.get_all(X_FORWARDED_CLIENT_CERT).iter();
        values.map(|value| value.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn every_mode_with_and_without_a_client_certificate() {
        use ForwardClientCert::*;
        let client = client();
        let own = client.element(None).unwrap().to_str().unwrap();
        let came = ["By=a;Hash=b", "By=c"];
        let whole = "By=a;Hash=b,By=c".to_owned();
        for (mode, plain, mutual) in [
            (Sanitize, vec![], vec![]),
            (ForwardOnly, vec![], vec![whole.clone()]),
            (AppendForward, vec![], vec![format!("{whole},{own}")]),
            (SanitizeSet, vec![], vec![own.to_owned()]),
            (AlwaysForwardOnly, vec![whole.clone()], vec![whole.clone()]),
        ] {
            assert_eq!(sent_on(&came, mode, None, true), plain, "{mode} without a certificate");
            assert_eq!(sent_on(&came, mode, Some(&client), true), mutual, "{mode} with a certificate");
        }
    }

    #[test]
    fn nothing_of_an_untrusted_peer_is_passed_on() {
        use ForwardClientCert::*;
        let client = client();
        let own = client.element(None).unwrap().to_str().unwrap();
        for mode in [ForwardOnly, AlwaysForwardOnly, Sanitize] {
            assert!(sent_on(&["By=a"], mode, Some(&client), false).is_empty(), "{mode}");
        }
        for mode in [AppendForward, SanitizeSet] {
            assert_eq!(sent_on(&["By=a"], mode, Some(&client), false), [own], "{mode}");
        }
        assert_eq!(sent_on(&[], AppendForward, Some(&client), true), [own], "no empty element");
    }
}
