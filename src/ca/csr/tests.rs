use proptest::prelude::*;

use super::*;
use crate::ca::fixtures::greedy_request;
use crate::ca::key::{KeyAlgorithm, PrivateKey};

fn ec_request() -> (rcgen::KeyPair, Vec<u8>) {
    let (key, text) = greedy_request(&rcgen::PKCS_ECDSA_P256_SHA256);
    (key, pem::signing_request(text.as_bytes()).unwrap())
}

/// A request made by OpenSSL, for what rcgen does not make.
fn openssl_request(new_key: &[&str], more: &[&str]) -> Vec<u8> {
    let output = std::process::Command::new("openssl")
        .args(["req", "-new", "-nodes", "-subj", "/CN=x", "-keyout", "/dev/null", "-newkey"])
        .args(new_key)
        .args(more)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[test]
fn the_key_is_taken_exactly_as_it_is() {
    let (key, der) = ec_request();
    let public = PublicKey::from_csr_der(&der).unwrap();
    assert_eq!(public.info(), rcgen::PublicKeyData::subject_public_key_info(&key));
}

#[test]
fn a_p384_key_that_signs_with_sha256_stays_a_p384_key() {
    let request = openssl_request(&["ec", "-pkeyopt", "ec_paramgen_curve:P-384"], &["-sha256"]);
    let public = PublicKey::from_csr(&request).unwrap();
    let secp384r1 = [0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22];
    assert!(public.info().windows(secp384r1.len()).any(|window| window == secp384r1));
}

#[test]
fn ca_09_a_request_that_its_key_did_not_sign_is_refused() {
    let (_, mut der) = ec_request();
    let last = der.len() - 1;
    der[last] ^= 1;
    assert_eq!(PublicKey::from_csr_der(&der), Err(CsrError::BadSignature));
}

#[test]
fn weak_and_unsupported_keys_and_signatures_are_refused() {
    let refused =
        |new_key: &[&str], more: &[&str]| PublicKey::from_csr(&openssl_request(new_key, more)).unwrap_err();
    assert_eq!(refused(&["rsa:1024"], &[]), CsrError::WeakKey);
    assert_eq!(refused(&["ec", "-pkeyopt", "ec_paramgen_curve:P-521"], &[]), CsrError::UnsupportedKey);
    assert_eq!(refused(&["ec", "-pkeyopt", "ec_paramgen_curve:secp256k1"], &[]), CsrError::UnsupportedKey);
    assert_eq!(refused(&["rsa:2048"], &["-sha1"]), CsrError::UnsupportedSignature);
}

#[test]
fn sizes_and_blocks_are_bounded() {
    let (_, der) = ec_request();
    let one = pem::encode("CERTIFICATE REQUEST", &der);
    assert!(PublicKey::from_csr(one.as_bytes()).is_ok());
    let two = format!("{one}{one}");
    assert!(matches!(PublicKey::from_csr(two.as_bytes()), Err(CsrError::Pem(PemError::Several(_)))));
    let with_key = format!("{one}{}", pem::encode("PRIVATE KEY", &der));
    assert!(matches!(PublicKey::from_csr(with_key.as_bytes()), Err(CsrError::Pem(PemError::Several(_)))));
    assert!(matches!(PublicKey::from_csr(b""), Err(CsrError::Pem(PemError::Missing(_)))));
    assert_eq!(
        PublicKey::from_csr(&vec![b'x'; MAX_CSR_BYTES + 1]),
        Err(CsrError::TooLarge(MAX_CSR_BYTES + 1))
    );
    let trailing = [der.as_slice(), &[0]].concat();
    assert_eq!(PublicKey::from_csr_der(&trailing), Err(CsrError::Malformed));
}

#[test]
fn our_own_requests_are_good() {
    for algorithm in [KeyAlgorithm::EcdsaP256, KeyAlgorithm::Rsa2048] {
        let key = PrivateKey::generate(algorithm).unwrap();
        let public = PublicKey::from_csr(create(&key).unwrap().as_bytes()).unwrap();
        assert_eq!(public, PublicKey::from_own_key(&key));
    }
}

proptest! {
    #[test]
    fn any_bytes_give_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = PublicKey::from_csr(&bytes);
        let _ = PublicKey::from_csr_der(&bytes);
    }

    #[test]
    fn a_changed_request_is_refused_or_gives_the_key_that_signed_it(
        at in any::<prop::sample::Index>(),
        flip in 1_u8..,
    ) {
        // Tags around the signed part may be read leniently; nothing the key is taken from can be changed.
        let (key, mut der) = ec_request();
        let at = at.index(der.len());
        der[at] ^= flip;
        if let Ok(public) = PublicKey::from_csr_der(&der) {
            prop_assert_eq!(public.info(), rcgen::PublicKeyData::subject_public_key_info(&key));
        }
    }
}
