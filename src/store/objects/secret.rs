use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::{Field, Findings, Kind, Metadata};
use crate::diagnostics::{Diagnostic, ObjectRef, Severity};
use crate::snapshot::passwords::Users;
use crate::tls::client_auth::ClientCa;
use crate::tls::keys::{KeyPair, KeyPairError, Part};
use crate::tls::tickets::{SharedKeys, TicketKey};

/// The `type` of Secrets with session ticket keys: only of such are values kept that are no PEM.
pub const TICKET_KEYS_TYPE: &str = "portcullis.dev/session-ticket-keys";
/// Ticket keys taken from one Secret: the newest ones.
const MOST_TICKET_KEYS: usize = 16;
/// The `type` of Secrets with the certificate of a workload, as Citadel writes them.
const KEY_AND_CERTIFICATE: &str = "istio.io/key-and-cert";

/// `v1 Secret`, already parsed: the key-and-certificate pair becomes a [`KeyPair`] when it arrives and its
/// PEM bytes are dropped; so do session ticket keys. `Debug` shows no secret bytes.
#[derive(Clone)]
pub struct Secret {
    pub metadata: Metadata,
    /// `type`, for messages only: the keys of `data` decide what a Secret is, but for ticket keys.
    pub kind: String,
    pub origin: SecretOrigin,
    /// The pair in `tls.crt` and `tls.key`, or in `cert-chain.pem` and `key.pem`; `None` where the Secret has none.
    /// Half of the latter is one only in a Secret of the type for it.
    pub pair: Option<Result<Arc<KeyPair>, KeyPairError>>,
    /// Where the pair stands, for messages.
    pub fields: PairFields,
    /// The usable session ticket keys, newest first; `None` where the Secret is not of the type for them.
    pub ticket_keys: Option<SharedKeys>,
    /// Certificates for others to be verified with; `None` where the Secret has none.
    pub authorities: Option<Arc<Authorities>>,
    /// What clients of a host are verified with that names this Secret (`auth-tls-secret`); `None` where it has no `ca.crt`.
    pub client_ca: Option<Arc<ClientCa>>,
    /// Users of routes that name this Secret (`auth-secret`).
    pub users: Option<Arc<UserLists>>,
}

/// The users of a Secret, in either of the forms that `auth-secret-type` knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserLists {
    /// The lines of `auth`.
    pub file: Option<Arc<Users>>,
    /// Every key is a user; `None` beside a pair of key and certificate.
    pub map: Option<Arc<Users>>,
}

/// Root certificates and revocation lists, PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authorities {
    /// `root-cert.pem`, or `ca.crt` where there is no `tls.crt` beside it.
    pub roots: Arc<str>,
    /// `ca-crl.pem` or `ca.crl`.
    pub revocations: Arc<str>,
}

/// The fields of a Secret in which the two halves of its pair stand, as findings name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairFields {
    pub certificate: &'static str,
    pub key: &'static str,
}

impl Default for PairFields {
    fn default() -> Self {
        Self { certificate: "data.tls.crt", key: "data.tls.key" }
    }
}

impl PairFields {
    /// That of one half.
    pub fn of(self, part: Part) -> &'static str {
        match part {
            Part::Certificate => self.certificate,
            Part::Key => self.key,
        }
    }
}

/// A key of `data` or `stringData`, and what it is called in either.
struct Entry {
    key: &'static str,
    data: &'static str,
    string_data: &'static str,
}

const TLS_CERTIFICATE: Entry =
    Entry { key: "tls.crt", data: "data.tls.crt", string_data: "stringData.tls.crt" };
const TLS_KEY: Entry = Entry { key: "tls.key", data: "data.tls.key", string_data: "stringData.tls.key" };
const WORKLOAD_CERTIFICATE: Entry =
    Entry { key: "cert-chain.pem", data: "data.cert-chain.pem", string_data: "stringData.cert-chain.pem" };
const WORKLOAD_KEY: Entry = Entry { key: "key.pem", data: "data.key.pem", string_data: "stringData.key.pem" };

impl Entry {
    /// The field that it is, or would be, in a Secret.
    fn field(&self, object: &Field<'_>) -> &'static str {
        let has = |map: &str| object.get(map).is_some_and(|map| map.get(self.key).is_some());
        match has("stringData") || (object.get("data").is_none() && object.get("stringData").is_some()) {
            true => self.string_data,
            false => self.data,
        }
    }
}

/// Where a Secret comes from, which decides what it is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretOrigin {
    /// An object: bound to hosts by the Ingresses that name it.
    Object,
    /// A plain PEM pair in a manifests folder: bound to the names in its SANs.
    PemPair,
}

impl Secret {
    /// Reads the object behind `metadata`, from `data` and `stringData`, of which the latter wins as in the API. A pair
    /// that cannot be used is kept as its error.
    pub(super) fn decode(metadata: Metadata, object: &Field<'_>, findings: &mut Findings) -> Option<Self> {
        let kind = object.get("type").and_then(|field| field.text(findings)).unwrap_or("Opaque").to_owned();
        let mut value = |key| decode_value(object, key, findings);
        let tls = (value(TLS_CERTIFICATE.key), value(TLS_KEY.key));
        let workload = (value(WORKLOAD_CERTIFICATE.key), value(WORKLOAD_KEY.key));
        // A CA has a chain by itself.
        let whole = workload.0.is_some() && workload.1.is_some();
        let (pair, fields) = match tls {
            (None, None) if whole || kind == KEY_AND_CERTIFICATE => {
                (decode_pair(workload), fields(&WORKLOAD_CERTIFICATE, &WORKLOAD_KEY, object))
            }
            tls => (decode_pair(tls), fields(&TLS_CERTIFICATE, &TLS_KEY, object)),
        };
        let (ca, list) = (value("ca.crt"), value("ca.crl"));
        let client_ca = ca.as_deref().map(|ca| ClientCa::new(ca, list.as_deref().map(Vec::as_slice)));
        // Beside a pair nobody asks for it as roots.
        let roots = value("root-cert.pem").or_else(|| ca.filter(|_| pair.is_none()));
        let authorities = roots.map(|roots| {
            let lists = value("ca-crl.pem").or(list).unwrap_or_default();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into();
            Arc::new(Authorities { roots: text(&roots), revocations: text(&lists) })
        });
        let ticket_keys = (kind == TICKET_KEYS_TYPE).then(|| decode_ticket_keys(object, findings));
        let users = match pair.is_none() && ticket_keys.is_none() {
            true => Some(Arc::new(decode_users(object, findings))),
            false => None,
        };
        let origin = SecretOrigin::Object;
        let secret =
            Self { metadata, kind, origin, pair, fields, ticket_keys, authorities, client_ca, users };
        findings.extend(secret.findings());
        Some(secret)
    }

    /// The Secret that a PEM pair in a folder stands for.
    pub fn from_pem(metadata: Metadata, certificates: &[u8], key: &[u8]) -> Self {
        let pair = Some(KeyPair::parse(certificates, key).map(Arc::new));
        let kind = "kubernetes.io/tls".into();
        let (origin, fields) = (SecretOrigin::PemPair, PairFields::default());
        let (ticket_keys, authorities, client_ca, users) = (None, None, None, None);
        Self { metadata, kind, origin, pair, fields, ticket_keys, authorities, client_ca, users }
    }

    /// What is wrong or odd about the pair.
    pub fn findings(&self) -> Vec<Diagnostic> {
        let finding = |severity, field, reason, message| {
            let object = ObjectRef::new(Kind::Secret, &self.metadata.name);
            Diagnostic::new(severity, object, field, reason, message)
        };
        match &self.pair {
            None => Vec::new(),
            Some(Err(error)) => {
                let field = self.fields.of(error.part());
                vec![finding(Severity::Error, field, error.reason(), error.to_string())]
            }
            Some(Ok(pair)) => {
                let warnings = pair.warnings.iter();
                warnings
                    .map(|it| {
                        finding(Severity::Warning, self.fields.of(it.part()), it.reason(), it.to_string())
                    })
                    .collect()
            }
        }
    }
}

/// Names and what became of the pair; no value.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret")
            .field("name", &self.metadata.name)
            .field("kind", &self.kind)
            .field("origin", &self.origin)
            .field("pair", &self.pair)
            .finish_non_exhaustive()
    }
}

fn fields(certificate: &Entry, key: &Entry, object: &Field<'_>) -> PairFields {
    PairFields { certificate: certificate.field(object), key: key.field(object) }
}

/// Every value as a ticket key, in the order of their names from the last to the first: names that begin with a
/// date put the newest first. A value that is none is reported and left out.
fn decode_ticket_keys(object: &Field<'_>, findings: &mut Findings) -> SharedKeys {
    let mut names = BTreeSet::new();
    for map in ["data", "stringData"].into_iter().filter_map(|map| object.get(map)) {
        names.extend(map.entries(findings).map(|(name, _)| name.to_owned()));
    }
    if names.len() > MOST_TICKET_KEYS {
        let message = format!("only the {MOST_TICKET_KEYS} keys whose names come last are used");
        findings.warning(object, "TooManyTicketKeys", message);
    }
    let mut keys = Vec::new();
    for name in names.iter().rev().take(MOST_TICKET_KEYS) {
        let value = decode_value(object, name, findings).unwrap_or_default();
        match TicketKey::parse(&value) {
            Ok(key) => keys.push(Arc::new(key)),
            Err(error) => {
                let maps = ["stringData", "data"].into_iter().filter_map(|map| object.get(map));
                for map in maps {
                    if let Some(field) = map.get(name) {
                        findings.error(&field, "InvalidTicketKey", error.to_string());
                        break;
                    }
                }
            }
        }
    }
    keys.into()
}

/// Users in whatever looks like their passwords' hashes. What does not is dropped here: most Secrets are for others.
fn decode_users(object: &Field<'_>, findings: &mut Findings) -> UserLists {
    let file = decode_value(object, "auth", findings).map(|file| Arc::new(Users::of_file(&file)));
    let mut names = BTreeSet::new();
    for map in ["data", "stringData"].into_iter().filter_map(|map| object.get(map)) {
        names.extend(map.entries(findings).map(|(name, _)| name.to_owned()));
    }
    let mut users = Users::default();
    for name in names {
        let hash = decode_value(object, &name, findings).unwrap_or_default();
        users.add(name.as_bytes(), &hash);
    }
    UserLists { file, map: Some(Arc::new(users)) }
}

type Bytes = Zeroizing<Vec<u8>>;

/// The pair, where at least one half is there.
fn decode_pair(
    (certificates, key): (Option<Bytes>, Option<Bytes>),
) -> Option<Result<Arc<KeyPair>, KeyPairError>> {
    let half = certificates.is_some() || key.is_some();
    half.then(|| KeyPair::parse(&certificates.unwrap_or_default(), &key.unwrap_or_default()).map(Arc::new))
}

/// The bytes under `key`; a value that cannot be decoded counts as empty, so that the Secret reads as broken
/// and not as one without a certificate.
fn decode_value(object: &Field<'_>, key: &str, findings: &mut Findings) -> Option<Bytes> {
    if let Some(map) = object.get("stringData")
        && let Some(field) = map.get(key)
    {
        let text = field.text(findings).unwrap_or_default();
        return Some(Zeroizing::new(text.as_bytes().to_vec()));
    }
    let map = object.get("data")?;
    let field = map.get(key)?;
    let text = field.text(findings).unwrap_or_default();
    let bytes = decode_base64(text).unwrap_or_else(|| {
        findings.error(&field, "InvalidBase64", "the value is not base64");
        Zeroizing::default()
    });
    Some(bytes)
}

/// Standard base64; line breaks are skipped, as the API server does.
fn decode_base64(text: &str) -> Option<Bytes> {
    let mut joined = Zeroizing::new(Vec::new());
    let mut input = text.as_bytes();
    if input.iter().any(u8::is_ascii_whitespace) {
        joined.reserve_exact(input.len());
        joined.extend(input.iter().filter(|byte| !byte.is_ascii_whitespace()));
        input = &joined;
    }
    let mut bytes = Zeroizing::new(vec![0; base64::decoded_len_estimate(input.len())]);
    let length = STANDARD.decode_slice(input, &mut bytes).ok()?;
    bytes.truncate(length);
    Some(bytes)
}
