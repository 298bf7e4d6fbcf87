//! One function for each parser that reads bytes of strangers. Given any bytes it must return, and what it returns
//! must hold what the rest of the gateway builds on. The targets under `fuzz/` call these.

use std::collections::hash_map::RandomState;
use std::sync::LazyLock;

use bytes::BytesMut;
use rustls::server::Acceptor;
use rustls_pki_types::CertificateDer;

use crate::names::canonical_host;
use crate::net::proxy_protocol;
use crate::proxy::http1::chunked::{ChunkDecoder, Piece};
use crate::proxy::http1::head::{HeadLimits, take_head};
use crate::snapshot::paths::canonical_path;
use crate::sources::directory::content::decode_manifest;
use crate::tls::keys::KeyPair;
use crate::tls::ocsp::response::{unverified_next_update, verify};
use crate::tls::ocsp::testing::Ca;

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

/// A file of manifests.
pub fn manifests(bytes: &[u8]) {
    let _ = decode_manifest(bytes, &RandomState::new());
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

/// An OCSP response: none is taken, since nobody has the key that would have to sign it.
pub fn ocsp_response(bytes: &[u8]) {
    static LEAF_AND_ISSUER: LazyLock<[CertificateDer<'static>; 2]> = LazyLock::new(|| {
        let ca = Ca::new("issuer");
        [ca.leaf().issue().der, ca.der]
    });
    let [leaf, issuer] = &*LEAF_AND_ISSUER;
    let _ = unverified_next_update(bytes);
    assert!(verify(bytes, leaf, issuer, 1_800_000_000).is_err());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bytes that get past the first check of one parser or another.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let starts: [&[u8]; 8] = [
            b"",
            b"GET / HTTP/1.1\r\nHost: a\r\n",
            b"5\r\nhello\r\n",
            b"/a/%2e%2e/",
            b"PROXY TCP4 ",
            b"kind: Ingress\napiVersion: networking.k8s.io/v1\n",
            b"\x16\x03\x01\x00\x05\x01\x00\x00\x01",
            // Successful, and of the basic type.
            b"\x30\x22\x0a\x01\x00\xa0\x1d\x30\x1b\x06\x09\x2b\x06\x01\x05\x05\x07\x30\x01\x01\x04\x0e\x30\x0c",
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
            ];
            targets.iter().for_each(|target| target(&bytes));
        }
    }
}
