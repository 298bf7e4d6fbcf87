//! ServiceAccount tokens checked without an API server: JWT (RFC 7519) against an issuer and its JWKS (RFC 7517).
//!
//! RS256 and ES256 only, each bound to the kind of the key, so a token cannot choose a weaker check. Everything
//! from the token is parsed into small types first; a claim that is missing is a refusal. No error holds token text.

use std::collections::BTreeMap;

use aws_lc_rs::signature as aws;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use time::OffsetDateTime;

use super::{Caller, CallerPod, Method, service_account};
use crate::tls::spiffe::{SpiffeError, SpiffeId};

/// How far the issuer's clock may be ahead of ours for `nbf`.
const CLOCK_SKEW_SECONDS: i64 = 60;

/// Why a key set was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwksError {
    #[error("it is not a JSON Web Key Set")]
    Malformed,
    #[error("no RSA key of 2048 bits or more and no P-256 key for signatures in it")]
    NoUsableKey,
}

/// Why a token was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwtError {
    #[error("it is not a signed JWT")]
    Malformed,
    #[error("its signature algorithm is not RS256 or ES256")]
    Algorithm,
    #[error("it has critical header fields that are not understood")]
    CriticalHeader,
    #[error("no key of its issuer fits its key ID and algorithm")]
    UnknownKey,
    #[error("its signature is wrong")]
    Signature,
    #[error("it is from another issuer than {}", .0.join(", "))]
    Issuer(Vec<String>),
    #[error("it has no audience or expiry: legacy tokens are not accepted")]
    Legacy,
    #[error("it is for other audiences than ours")]
    Audience,
    #[error("it expired at {0}")]
    Expired(OffsetDateTime),
    #[error("it is not valid yet")]
    NotYetValid,
    #[error("its subject is not a ServiceAccount")]
    NotServiceAccount,
    #[error("{0}")]
    Identity(#[from] SpiffeError),
}

/// An issuer of tokens.
#[derive(Clone, Debug)]
pub struct JwtIssuer {
    /// What `iss` must be, to the letter.
    pub issuer: String,
    /// A token must be for one of these.
    pub audiences: Vec<String>,
    pub keys: Jwks,
}

impl JwtIssuer {
    /// Checks signature and claims and gives the account as a caller.
    pub fn verify(&self, token: &str, trust_domain: &str, now: OffsetDateTime) -> Result<Caller, JwtError> {
        let token = Token::parse(token)?;
        self.keys.verify(&token)?;
        let claims: Claims = serde_json::from_slice(&token.payload).map_err(|_| JwtError::Malformed)?;
        self.check(&claims, now)?;
        let subject = claims.subject.as_deref().unwrap_or_default();
        let (namespace, account) = service_account(subject).ok_or(JwtError::NotServiceAccount)?;
        let id = SpiffeId::new(trust_domain, namespace, account)?;
        let pod = claims.kubernetes.and_then(|kubernetes| kubernetes.pod);
        let pod = pod.map(|pod| CallerPod { name: pod.name, uid: pod.uid });
        Ok(Caller { id, pod, method: Method::Jwt })
    }

    fn check(&self, claims: &Claims, now: OffsetDateTime) -> Result<(), JwtError> {
        if claims.issuer.as_deref() != Some(self.issuer.as_str()) {
            return Err(JwtError::Issuer(vec![self.issuer.clone()]));
        }
        let (Some(audience), Some(expires)) = (&claims.audience, claims.expires) else {
            return Err(JwtError::Legacy);
        };
        if !audience.iter().any(|audience| self.audiences.contains(audience)) {
            return Err(JwtError::Audience);
        }
        let expires = seconds(expires).ok_or(JwtError::Malformed)?;
        if now >= expires {
            return Err(JwtError::Expired(expires));
        }
        match claims.not_before.map(seconds) {
            Some(None) => Err(JwtError::Malformed),
            Some(Some(start)) if start > now + time::Duration::seconds(CLOCK_SKEW_SECONDS) => {
                Err(JwtError::NotYetValid)
            }
            _ => Ok(()),
        }
    }
}

/// Whom a token says it is from. Nothing is verified: it only tells which keys to verify with.
pub fn issuer_of(token: &str) -> Result<Option<String>, JwtError> {
    let token = Token::parse(token)?;
    let claims: Claims = serde_json::from_slice(&token.payload).map_err(|_| JwtError::Malformed)?;
    Ok(claims.issuer)
}

/// The public keys of an issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jwks {
    keys: Vec<Key>,
}

impl Jwks {
    /// Reads a JWKS document. Keys of kinds that are not supported are passed over; one must remain.
    pub fn from_json(document: &[u8]) -> Result<Self, JwksError> {
        let document: KeySet = serde_json::from_slice(document).map_err(|_| JwksError::Malformed)?;
        let keys: Vec<Key> = document.keys.iter().filter_map(Key::from_fields).collect();
        match keys.is_empty() {
            true => Err(JwksError::NoUsableKey),
            false => Ok(Self { keys }),
        }
    }

    fn verify(&self, token: &Token<'_>) -> Result<(), JwtError> {
        let fits = |key: &&Key| match (&token.key_id, &key.id) {
            (Some(wanted), Some(id)) => wanted == id,
            _ => true,
        };
        let fitting = self.keys.iter().filter(fits).filter(|key| key.public.algorithm() == token.algorithm);
        let mut error = JwtError::UnknownKey;
        for key in fitting {
            match key.public.verify(token.signed.as_bytes(), &token.signature) {
                true => return Ok(()),
                false => error = JwtError::Signature,
            }
        }
        Err(error)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    id: Option<String>,
    public: PublicKey,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PublicKey {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    P256 { point: Vec<u8> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Rs256,
    Es256,
}

impl Key {
    fn from_fields(fields: &BTreeMap<String, serde_json::Value>) -> Option<Self> {
        let text = |name: &str| fields.get(name).and_then(serde_json::Value::as_str);
        let bytes = |name: &str| URL_SAFE_NO_PAD.decode(text(name)?.trim_end_matches('=')).ok();
        if text("use").is_some_and(|usage| usage != "sig") {
            return None;
        }
        let public = match text("kty")? {
            "RSA" => PublicKey::Rsa { modulus: bytes("n")?, exponent: bytes("e")? },
            "EC" if text("crv") == Some("P-256") => {
                let (x, y) = (bytes("x")?, bytes("y")?);
                let on_curve_size = x.len() == 32 && y.len() == 32;
                // Uncompressed point, SEC 1 section 2.3.3.
                on_curve_size.then(|| PublicKey::P256 { point: [&[4][..], &x, &y].concat() })?
            }
            _ => return None,
        };
        let named = text("alg").is_none_or(|name| match public.algorithm() {
            Algorithm::Rs256 => name == "RS256",
            Algorithm::Es256 => name == "ES256",
        });
        named.then(|| Self { id: text("kid").map(str::to_owned), public })
    }
}

impl PublicKey {
    fn algorithm(&self) -> Algorithm {
        match self {
            Self::Rsa { .. } => Algorithm::Rs256,
            Self::P256 { .. } => Algorithm::Es256,
        }
    }

    fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Rsa { modulus, exponent } => aws::RsaPublicKeyComponents { n: modulus, e: exponent }
                .verify(&aws::RSA_PKCS1_2048_8192_SHA256, message, signature)
                .is_ok(),
            Self::P256 { point } => aws::UnparsedPublicKey::new(&aws::ECDSA_P256_SHA256_FIXED, point)
                .verify(message, signature)
                .is_ok(),
        }
    }
}

/// A token cut into its parts; nothing in it is trusted yet.
struct Token<'a> {
    algorithm: Algorithm,
    key_id: Option<String>,
    /// Header and payload as they were signed.
    signed: &'a str,
    payload: Vec<u8>,
    signature: Vec<u8>,
}

impl<'a> Token<'a> {
    fn parse(token: &'a str) -> Result<Self, JwtError> {
        let (signed, signature) = token.rsplit_once('.').ok_or(JwtError::Malformed)?;
        let (header, payload) = signed.split_once('.').ok_or(JwtError::Malformed)?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| JwtError::Malformed);
        let header: Header = serde_json::from_slice(&decode(header)?).map_err(|_| JwtError::Malformed)?;
        if header.critical.is_some() {
            return Err(JwtError::CriticalHeader);
        }
        let algorithm = match header.algorithm.as_str() {
            "RS256" => Algorithm::Rs256,
            "ES256" => Algorithm::Es256,
            _ => return Err(JwtError::Algorithm),
        };
        let (payload, signature) = (decode(payload)?, decode(signature)?);
        Ok(Self { algorithm, key_id: header.key_id, signed, payload, signature })
    }
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<BTreeMap<String, serde_json::Value>>,
}

#[derive(Deserialize)]
struct Header {
    #[serde(rename = "alg")]
    algorithm: String,
    #[serde(rename = "kid")]
    key_id: Option<String>,
    #[serde(rename = "crit")]
    critical: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Claims {
    #[serde(rename = "iss")]
    issuer: Option<String>,
    #[serde(rename = "sub")]
    subject: Option<String>,
    #[serde(rename = "aud")]
    audience: Option<Audience>,
    #[serde(rename = "exp")]
    expires: Option<f64>,
    #[serde(rename = "nbf")]
    not_before: Option<f64>,
    #[serde(rename = "kubernetes.io")]
    kubernetes: Option<KubernetesClaims>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Audience {
    fn iter(&self) -> std::slice::Iter<'_, String> {
        match self {
            Self::One(audience) => std::slice::from_ref(audience).iter(),
            Self::Many(audiences) => audiences.iter(),
        }
    }
}

#[derive(Deserialize)]
struct KubernetesClaims {
    pod: Option<PodClaim>,
}

#[derive(Deserialize)]
struct PodClaim {
    name: String,
    uid: String,
}

/// A NumericDate (RFC 7519 section 2), which may have a fraction.
fn seconds(number: f64) -> Option<OffsetDateTime> {
    let whole = number.floor();
    // The bounds of what can be represented; this also refuses NaN.
    let fits = (0.0..253_402_300_800.0).contains(&whole);
    fits.then(|| OffsetDateTime::from_unix_timestamp(whole as i64).ok()).flatten()
}

#[cfg(test)]
mod tests;
