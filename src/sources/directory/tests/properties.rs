//! No content of a file makes decoding panic.

use proptest::prelude::*;

use crate::sources::directory::content::decode;
use crate::sources::directory::unit::Unit;
use zeroize::Zeroizing;

const MANIFEST: &str = include_str!("../fixtures/manifest.yaml");

fn decode_bytes(bytes: &[u8]) -> usize {
    let unit = Unit { path: "a.yaml".into(), key: None };
    let contents = [Zeroizing::new(bytes.to_vec()), Zeroizing::default()];
    decode(&unit, &contents, &"pem".into(), &ahash::RandomState::new()).objects.len()
}

#[test]
fn the_manifest_itself_is_fine() {
    assert_eq!(decode_bytes(MANIFEST.as_bytes()), 9);
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        decode_bytes(&bytes);
    }

    #[test]
    fn arbitrary_text_never_panics(text in "[-\\[\\]{}:,&*!|>'\"%@`a-c \n\t#?.]{0,200}") {
        decode_bytes(text.as_bytes());
    }

    #[test]
    fn a_mutated_manifest_never_panics(
        at in any::<prop::sample::Index>(), length in 0..40usize, with in "(?s).{0,20}",
    ) {
        let mut bytes = MANIFEST.as_bytes().to_vec();
        let start = at.index(bytes.len());
        let end = (start + length).min(bytes.len());
        bytes.splice(start..end, with.bytes());
        decode_bytes(&bytes);
    }

    #[test]
    fn a_manifest_cut_anywhere_never_panics(at in any::<prop::sample::Index>()) {
        decode_bytes(&MANIFEST.as_bytes()[..at.index(MANIFEST.len())]);
    }
}
