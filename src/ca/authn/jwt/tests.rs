use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use futures_util::FutureExt;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::ca::authn::{Authenticators, AuthnError, Credentials};
use crate::ca::fixtures::NOW;

struct Issuer {
    key: EcdsaKeyPair,
}

impl Issuer {
    fn new() -> Self {
        Self { key: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap() }
    }

    fn jwk(&self, id: &str) -> Value {
        let point = self.key.public_key().as_ref();
        let part = |range| URL_SAFE_NO_PAD.encode(&point[range]);
        json!({"kty": "EC", "crv": "P-256", "kid": id, "x": part(1..33), "y": part(33..65)})
    }

    fn trusted(&self) -> JwtIssuer {
        let document = json!({"keys": [self.jwk("one"), {"kty": "oct", "k": "AAAA"}]}).to_string();
        JwtIssuer {
            issuer: "https://issuer".to_owned(),
            audiences: vec!["istio-ca".to_owned()],
            keys: Jwks::from_json(document.as_bytes()).unwrap(),
        }
    }

    fn token(&self, header: Value, claims: Value) -> String {
        let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(header), part(claims));
        let signature = self.key.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

fn header() -> Value {
    json!({"alg": "ES256", "kid": "one"})
}

fn claims() -> Value {
    json!({
        "iss": "https://issuer",
        "sub": "system:serviceaccount:shop:web",
        "aud": ["other", "istio-ca"],
        "exp": NOW.unix_timestamp() + 60,
        "nbf": NOW.unix_timestamp() + 5,
        "kubernetes.io": {"pod": {"name": "web-1", "uid": "u1"}, "namespace": "shop"},
    })
}

fn with(field: &str, value: Value) -> Value {
    let mut claims = claims();
    claims[field] = value;
    claims
}

fn without(field: &str) -> Value {
    let mut claims = claims();
    claims.as_object_mut().unwrap().remove(field);
    claims
}

#[test]
fn a_good_token_gives_account_and_pod() {
    let issuer = Issuer::new();
    let caller = issuer.trusted().verify(&issuer.token(header(), claims()), "cluster.local", NOW).unwrap();
    assert_eq!(caller.id.to_string(), "spiffe://cluster.local/ns/shop/sa/web");
    assert_eq!(caller.pod, Some(CallerPod { name: "web-1".to_owned(), uid: "u1".to_owned() }));
    let token = issuer.token(json!({"alg": "ES256"}), with("aud", json!("istio-ca")));
    assert!(issuer.trusted().verify(&token, "cluster.local", NOW).is_ok(), "no key ID, one audience");
}

#[test]
fn ca_23_tokens_that_are_not_for_us_are_refused() {
    let issuer = Issuer::new();
    let refused =
        |claims| issuer.trusted().verify(&issuer.token(header(), claims), "cluster.local", NOW).unwrap_err();
    assert_eq!(refused(with("aud", json!(["other"]))), JwtError::Audience);
    assert_eq!(refused(with("aud", json!([]))), JwtError::Audience);
    assert_eq!(refused(without("aud")), JwtError::Legacy);
    assert_eq!(refused(without("exp")), JwtError::Legacy);
    assert!(matches!(refused(with("exp", json!(NOW.unix_timestamp()))), JwtError::Expired(_)));
    assert_eq!(refused(with("exp", json!(-1))), JwtError::Malformed);
    assert_eq!(refused(with("exp", json!(1e300))), JwtError::Malformed);
    assert_eq!(refused(with("nbf", json!(NOW.unix_timestamp() + 61))), JwtError::NotYetValid);
    assert!(matches!(refused(with("iss", json!("https://issuer/"))), JwtError::Issuer(_)));
    assert!(matches!(refused(without("iss")), JwtError::Issuer(_)));
    for subject in [
        "alice",
        "",
        "system:serviceaccount",
        "system:serviceaccount:",
        "system:serviceaccount:shop",
        "system:serviceaccount::web",
        "system:serviceaccount:shop:",
        "system:serviceaccount:shop:web:more",
        "system:node:shop:web",
    ] {
        assert_eq!(refused(with("sub", json!(subject))), JwtError::NotServiceAccount, "{subject}");
    }
    assert!(matches!(refused(with("sub", json!("system:serviceaccount:a/b:web"))), JwtError::Identity(_)));
    assert!(matches!(refused(with("sub", json!("system:serviceaccount:shop:a,b"))), JwtError::Identity(_)));
}

#[test]
fn signature_algorithm_and_key_cannot_be_talked_away() {
    let (issuer, other) = (Issuer::new(), Issuer::new());
    let refused = |token: &str| issuer.trusted().verify(token, "cluster.local", NOW).unwrap_err();
    assert_eq!(refused(&other.token(header(), claims())), JwtError::Signature);
    assert_eq!(refused(&issuer.token(json!({"alg": "none"}), claims())), JwtError::Algorithm);
    assert_eq!(refused(&issuer.token(json!({"alg": "HS256"}), claims())), JwtError::Algorithm);
    assert_eq!(refused(&issuer.token(json!({"alg": "RS256", "kid": "one"}), claims())), JwtError::UnknownKey);
    assert_eq!(refused(&issuer.token(json!({"alg": "ES256", "kid": "two"}), claims())), JwtError::UnknownKey);
    let critical = json!({"alg": "ES256", "crit": ["b64"], "b64": false});
    assert_eq!(refused(&issuer.token(critical, claims())), JwtError::CriticalHeader);
    for token in ["", ".", "..", "a.b", "a.b.c", "a.b.c.d"] {
        assert_eq!(refused(token), JwtError::Malformed, "{token}");
    }
    let good = issuer.token(header(), claims());
    let (signed, _) = good.rsplit_once('.').unwrap();
    assert_eq!(refused(&format!("{signed}.")), JwtError::Signature);
}

#[test]
fn rsa_tokens_are_checked_too() {
    use aws_lc_rs::rsa::{KeyPair, KeySize};
    use aws_lc_rs::signature::RSA_PKCS1_SHA256;
    let key = KeyPair::generate(KeySize::Rsa2048).unwrap();
    let public =
        aws_lc_rs::rsa::PublicKeyComponents::<Vec<u8>>::from(aws_lc_rs::signature::KeyPair::public_key(&key));
    let (n, e) = (URL_SAFE_NO_PAD.encode(&public.n), URL_SAFE_NO_PAD.encode(&public.e));
    let document =
        json!({"keys": [{"kty": "RSA", "kid": "r", "use": "sig", "alg": "RS256", "n": n, "e": e}]});
    let keys = Jwks::from_json(document.to_string().as_bytes()).unwrap();
    let trusted = JwtIssuer { keys, ..Issuer::new().trusted() };
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(json!({"alg": "RS256", "kid": "r"})), part(claims()));
    let mut signature = vec![0; key.public_modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature).unwrap();
    let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(&signature));
    assert!(trusted.verify(&token, "cluster.local", NOW).is_ok());
    signature[9] ^= 1;
    let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(&signature));
    assert_eq!(trusted.verify(&token, "cluster.local", NOW), Err(JwtError::Signature));
}

#[test]
fn key_sets_without_a_usable_key_are_refused() {
    let refused = |text: &str| Jwks::from_json(text.as_bytes()).unwrap_err();
    assert_eq!(refused("[]"), JwksError::Malformed);
    assert_eq!(refused("{}"), JwksError::Malformed);
    assert_eq!(refused(r#"{"keys":[]}"#), JwksError::NoUsableKey);
    assert_eq!(refused(r#"{"keys":[{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}]}"#), JwksError::NoUsableKey);
    assert_eq!(
        refused(r#"{"keys":[{"kty":"RSA","use":"enc","n":"AQAB","e":"AQAB"}]}"#),
        JwksError::NoUsableKey
    );
}

proptest! {
    #[test]
    fn any_token_gives_an_answer(token in ".{0,200}", document in ".{0,200}") {
        let issuer = Issuer::new();
        prop_assert!(issuer.trusted().verify(&token, "cluster.local", NOW).is_err());
        let _ = Jwks::from_json(document.as_bytes());
    }

    #[test]
    fn no_changed_token_passes(at in any::<prop::sample::Index>(), letter in "[A-Za-z0-9_.-]") {
        let issuer = Issuer::new();
        let good = issuer.token(header(), claims());
        let at = at.index(good.len());
        let mut changed = good.clone();
        changed.replace_range(at..=at, &letter);
        prop_assume!(changed != good);
        prop_assert!(issuer.trusted().verify(&changed, "cluster.local", NOW).is_err());
    }
}

#[tokio::test]
async fn each_issuer_is_believed_about_its_own_tokens_only() {
    let (one, two) = (Issuer::new(), Issuer::new());
    let named = |issuer: &Issuer, name: &str| JwtIssuer { issuer: name.to_owned(), ..issuer.trusted() };
    let authenticators = Authenticators {
        trust_domain: "cluster.local".to_owned(),
        jwt: vec![named(&one, "https://one"), named(&two, "https://two")],
        unknown_key: Default::default(),
        token_review: None,
    };
    let ask = async |issuer: &Issuer, header: Value, name: &str| {
        let token = issuer.token(header, with("iss", json!(name)));
        let credentials = Credentials { token: Some(&token), ..Credentials::default() };
        authenticators.authenticate(credentials, NOW).await
    };
    assert!(ask(&one, header(), "https://one").await.is_ok());
    assert!(ask(&two, header(), "https://two").await.is_ok());
    let forged = ask(&one, header(), "https://two").await;
    assert_eq!(forged, Err(AuthnError::Jwt(JwtError::Signature)));
    let stranger = ask(&one, header(), "https://three").await;
    assert!(matches!(stranger, Err(AuthnError::Jwt(JwtError::Issuer(_)))), "{stranger:?}");

    assert!(authenticators.unknown_key.notified().now_or_never().is_none());
    let unknown = ask(&one, json!({"alg": "ES256", "kid": "two"}), "https://one").await;
    assert_eq!(unknown, Err(AuthnError::Jwt(JwtError::UnknownKey)));
    assert!(authenticators.unknown_key.notified().now_or_never().is_some(), "whoever fetches keys is told");
}
