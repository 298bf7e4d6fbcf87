use proptest::prelude::*;

use super::*;
use crate::ca::fixtures::{Made, NOW, ca_params, hours};

fn root(name: &str) -> Certificate {
    Made::root(ca_params(name)).certificates.remove(0)
}

#[test]
fn order_comments_other_blocks_and_repetition_do_not_matter() {
    let (a, b) = (root("a"), root("b"));
    let plain = RootBundle::from_pem(format!("{}{}", a.to_pem(), b.to_pem()).as_bytes()).unwrap();
    let key = crate::ca::pem::encode("PRIVATE KEY", &[1, 2, 3]);
    let decorated = format!("# roots\n\n{}comment\n{key}{}{}\n\n", b.to_pem(), a.to_pem(), b.to_pem());
    let decorated = RootBundle::from_pem(decorated.replace('\n', "\r\n").as_bytes()).unwrap();
    assert!(plain.same_as(&decorated));
    assert_eq!(decorated.len(), 2);
    assert!(!plain.same_as(&RootBundle::new([a])));
}

#[test]
fn ended_roots_leave() {
    let mut params = ca_params("old");
    params.not_after = NOW - hours(1);
    let old = Made::root(params).certificates.remove(0);
    let young = root("young");
    let bundle = RootBundle::new([old, young.clone()]).without_expired(NOW);
    assert!(bundle.same_as(&RootBundle::new([young])));
}

#[test]
fn a_broken_block_spoils_the_text_and_says_which_it_is() {
    let text =
        format!("{}-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", root("a").to_pem());
    assert_eq!(RootBundle::from_pem(text.as_bytes()).unwrap_err(), CertificateError::Malformed(2));
}

proptest! {
    #[test]
    fn any_text_gives_an_answer(text in ".{0,300}") {
        let _ = RootBundle::from_pem(text.as_bytes());
        let wrapped = format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
        let _ = RootBundle::from_pem(wrapped.as_bytes());
    }

    #[test]
    fn any_der_gives_an_answer(at in any::<prop::sample::Index>(), flip in 1_u8.., cut in any::<prop::sample::Index>()) {
        let mut der = root("a").der().to_vec();
        let index = at.index(der.len());
        der[index] ^= flip;
        der.truncate(cut.index(der.len()) + 1);
        let _ = Certificate::from_der(der.into());
    }
}
