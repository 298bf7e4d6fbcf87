//! One function for each parser that reads bytes of strangers. Given any bytes it must return, and what it returns
//! must hold what the rest of the gateway builds on. The targets under `fuzz/` call these.

use std::collections::hash_map::RandomState;
use std::sync::OnceLock;

use bytes::BytesMut;
use rustls::server::Acceptor;
use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;

use crate::ca::authn::jwt::{self, Jwks, JwtIssuer};
use crate::ca::bundle::RootBundle;
use crate::ca::csr::PublicKey;
use crate::names::canonical_host;
use crate::net::proxy_protocol;
use crate::proxy::http1::chunked::{ChunkDecoder, Piece};
use crate::proxy::http1::head::{HeadLimits, take_head};
use crate::snapshot::paths::canonical_path;
use crate::sources::directory::content::decode_manifest;
use crate::store::objects::{Object, ReadyPolicy, document};
use crate::tls::keys::KeyPair;
use crate::tls::ocsp::response;
use crate::tls::ocsp::testing::{Answer, Ca};
use crate::tls::spiffe::SpiffeId;

/// The head of a request: the same however it is cut.
pub fn request_head(bytes: &[u8]) {
    let limits = HeadLimits { bytes: 4096, fields: 100 };
    let whole = take_head(&mut BytesMut::from(bytes), &mut 0, limits);
    let (mut input, mut scanned) = (BytesMut::new(), 0);
    for byte in bytes {
        input.extend_from_slice(&[*byte]);
        match take_head(&mut input, &mut scanned, limits) {
            Ok(None) => {}
            Ok(Some(head)) => {
                let whole = whole.expect("a head").expect("a whole head");
                assert_eq!(
                    (head.method, head.target, head.framing),
                    (whole.method, whole.target, whole.framing)
                );
                return;
            }
            Err(_) => return assert!(whole.is_err(), "refused only in pieces"),
        }
    }
}

/// A chunked body: never more data than there were bytes.
pub fn chunked_body(bytes: &[u8]) {
    let (mut decoder, mut input, mut length) = (ChunkDecoder::new(), BytesMut::from(bytes), 0);
    while let Ok(Some(piece)) = decoder.decode(&mut input) {
        match piece {
            Piece::Data(data) => length += data.len(),
            Piece::Trailers(_) => {}
            Piece::End => break,
        }
    }
    assert!(length <= bytes.len());
}

/// A path: its canonical form is canonical, and has no segment that leads elsewhere.
pub fn path(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(path) = canonical_path(text) else { return };
    assert_eq!(canonical_path(&path).expect("canonical"), path);
    assert!(path.starts_with('/') && !path.contains("//"));
    assert!(path.split('/').all(|segment| segment != "." && segment != ".."));
}

/// A host name: its canonical form is canonical.
pub fn host(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(host) = canonical_host(text) else { return };
    assert_eq!(canonical_host(&host).expect("canonical"), host);
}

/// A certificate and its key, with a NUL between them.
pub fn pem_pair(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == 0);
    let (certificates, key) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let _ = KeyPair::parse(certificates, key);
}

/// A file of manifests. A ready policy that is taken says in its own words what it said.
pub fn manifests(bytes: &[u8]) {
    for defined in decode_manifest(bytes, &RandomState::new()).objects {
        if let Object::ReadyPolicy(ReadyPolicy { policy, .. }) = defined.object {
            let again = document::from_value(&document::to_value(&policy)).expect("its own document");
            assert_eq!(again, *policy);
        }
    }
}

/// A PROXY protocol header.
pub fn proxy_header(bytes: &[u8]) {
    let _ = proxy_protocol::parse(bytes);
}

/// The first bytes of a TLS connection.
pub fn client_hello(bytes: &[u8]) {
    let mut acceptor = Acceptor::default();
    let mut rest = bytes;
    while !rest.is_empty() && acceptor.read_tls(&mut rest).is_ok_and(|read| read > 0) {
        match acceptor.accept() {
            Ok(None) => {}
            Ok(Some(accepted)) => {
                let _ = accepted.client_hello().server_name().map(canonical_host);
                return;
            }
            Err(_) => return,
        }
    }
}

/// An OCSP response: none is accepted but the one that was signed, whose unsigned parts alone may differ. The bytes
/// are taken as they are, and as edits of a good response, three at a time: where (two bytes) and what.
pub fn ocsp_response(bytes: &[u8]) {
    const NOW: u64 = 1_800_000_000;
    struct Good {
        leaf: CertificateDer<'static>,
        issuer: CertificateDer<'static>,
        response: Vec<u8>,
    }
    static GOOD: OnceLock<Good> = OnceLock::new();
    let good = GOOD.get_or_init(|| {
        let ca = Ca::new("fuzz");
        let leaf = ca.leaf().issue().der;
        let response = Answer::good(&leaf, &ca.der, NOW).sign(&ca.signer());
        Good { leaf, issuer: ca.der, response }
    });
    let verify = |der: &[u8]| response::verify(der, &good.leaf, &good.issuer, NOW);
    assert!(verify(bytes).is_err() || bytes == good.response, "nobody signed this");
    let _ = response::unverified_next_update(bytes);
    let mut edited = good.response.clone();
    for edit in bytes.chunks_exact(3) {
        let &[high, low, byte] = edit else { continue };
        let place = usize::from(u16::from_be_bytes([high, low])) % edited.len();
        edited[place] = byte;
    }
    if let Ok(staple) = verify(&edited) {
        assert_eq!((staple.this_update, staple.next_update), (NOW, NOW + 3600));
    }
}

/// A signing request, in PEM or DER.
pub fn signing_request(bytes: &[u8]) {
    for key in [PublicKey::from_csr(bytes), PublicKey::from_csr_der(bytes)].into_iter().flatten() {
        assert!(!key.info().is_empty());
    }
}

/// A token of a stranger, and a key set: no key of ours signed the one, and the other is at most a key set.
pub fn token(bytes: &[u8]) {
    let _ = Jwks::from_json(bytes);
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = jwt::issuer_of(text);
    let key = r#"{"keys": [{"kty": "EC", "crv": "P-256",
        "x": "gI0GAILBdu7T53akrFmMyGcsF3n5dO7MmwNBHKW5SV0", "y": "SLW_xSffzlPWrHEVI30DHM_4egVwt3NQqeUD7nMFpps"}]}"#;
    let keys = Jwks::from_json(key.as_bytes()).expect("a key set");
    let issuer = JwtIssuer { issuer: "i".to_owned(), audiences: vec!["a".to_owned()], keys };
    assert!(issuer.verify(text, "cluster.local", OffsetDateTime::UNIX_EPOCH).is_err());
}

/// A SPIFFE ID: what is accepted has exactly one spelling.
pub fn spiffe_id(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(id) = SpiffeId::parse(text) else { return };
    assert_eq!(id.as_uri(), text);
    let again = SpiffeId::new(id.trust_domain(), id.namespace(), id.service_account());
    assert_eq!(again.expect("its own parts"), id);
}

/// A bundle of roots: written and read again it is the same set.
pub fn root_bundle(bytes: &[u8]) {
    let Ok(bundle) = RootBundle::from_pem(bytes) else { return };
    let again = RootBundle::from_pem(bundle.to_pem().as_bytes()).expect("what was written");
    assert!(again.same_as(&bundle));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bytes that get past the first check of one parser or another.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let starts: [&[u8]; 12] = [
            b"",
            b"spiffe://cluster.local/ns/",
            b"-----BEGIN CERTIFICATE-----\n",
            b"GET / HTTP/1.1\r\nHost: a\r\n",
            b"5\r\nhello\r\n",
            b"/a/%2e%2e/",
            b"PROXY TCP4 ",
            b"kind: Ingress\napiVersion: networking.k8s.io/v1\n",
            b"spiffe://cluster.local/ns/a/sa/",
            b"{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\"}]}\0",
            b"-----BEGIN CERTIFICATE-----\nMIIB",
            b"\x16\x03\x01\x00\x05\x01\x00\x00\x01",
        ];
        let start = prop::sample::select(starts.to_vec());
        (start, prop::collection::vec(any::<u8>(), 0..100)).prop_map(|(start, rest)| [start, &rest].concat())
    }

    proptest! {
        #[test]
        fn targets_take_anything(bytes in bytes()) {
            let targets = [
                request_head,
                chunked_body,
                path,
                host,
                pem_pair,
                manifests,
                proxy_header,
                client_hello,
                ocsp_response,
                signing_request,
                token,
                spiffe_id,
                root_bundle,
            ];
            targets.iter().for_each(|target| target(&bytes));
        }
    }
}
