//! One session ticket key: where it comes from, and sealing and opening with it. Called by
//! [`Tickets`](super::Tickets) and by whoever reads keys from a Secret. Nothing prints a key.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use aws_lc_rs::rand;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use zeroize::Zeroizing;

pub(super) const NAME_LEN: usize = 16;
pub(super) const KEY_LEN: usize = 32;
/// What a key file has, as for `ssl_session_ticket_key` of nginx.
const FILE_LENGTHS: [usize; 2] = [80, 48];
/// More is no key file, in whatever form.
const LONGEST_FILE: usize = 256;

/// One key with the public name that tickets carry in front.
pub struct TicketKey {
    pub(super) name: [u8; NAME_LEN],
    aead: LessSafeKey,
    /// For the successor of this process.
    pub(super) secret: Zeroizing<[u8; KEY_LEN]>,
}

/// No random bytes could be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system gave no random bytes for a session ticket key")]
pub struct NoRandom;

/// Why bytes are no key. Never carries them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TicketKeyError {
    #[error("a session ticket key is 80 or 48 random bytes, as they are or as base64; these are {0}")]
    Length(usize),
    #[error("the key is one and the same byte over and over")]
    NotRandom,
    #[error("no key can be derived from it")]
    Underivable,
}

impl TicketKey {
    /// The key that a file of 80 or 48 random bytes stands for, or their base64.
    ///
    /// All bytes go into the key and into its public name, so that replicas that have the same file have the
    /// same key, and nothing of the file is ever sent.
    pub fn parse(file: &[u8]) -> Result<Self, TicketKeyError> {
        let decoded = match FILE_LENGTHS.contains(&file.len()) {
            true => None,
            false => decode(file),
        };
        let bytes = decoded.as_ref().map_or(file, |bytes| bytes.as_slice());
        let Some((first, rest)) = bytes.split_first().filter(|_| FILE_LENGTHS.contains(&bytes.len())) else {
            return Err(TicketKeyError::Length(bytes.len()));
        };
        if rest.iter().all(|byte| byte == first) {
            return Err(TicketKeyError::NotRandom);
        }
        Self::derive(bytes).ok_or(TicketKeyError::Underivable)
    }

    fn derive(bytes: &[u8]) -> Option<Self> {
        let material = Salt::new(HKDF_SHA256, b"portcullis session ticket key").extract(bytes);
        let expand = |purpose: &[u8]| {
            let mut out = Zeroizing::new([0; KEY_LEN]);
            material.expand(&[purpose], HKDF_SHA256).ok()?.fill(&mut *out).ok()?;
            Some(out)
        };
        Self::new(*expand(b"name")?.first_chunk()?, expand(b"key")?)
    }

    pub(super) fn random() -> Result<Self, NoRandom> {
        let mut name = [0; NAME_LEN];
        rand::fill(&mut name).map_err(|_| NoRandom)?;
        let mut secret = Zeroizing::new([0; KEY_LEN]);
        rand::fill(&mut *secret).map_err(|_| NoRandom)?;
        Self::new(name, secret).ok_or(NoRandom)
    }

    fn new(name: [u8; NAME_LEN], secret: Zeroizing<[u8; KEY_LEN]>) -> Option<Self> {
        let key = UnboundKey::new(&AES_256_GCM, &*secret).ok()?;
        Some(Self { name, aead: LessSafeKey::new(key), secret })
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (name, rest) = bytes.split_first_chunk()?;
        Self::new(*name, Zeroizing::new(*rest.first_chunk()?))
    }

    /// `name ‖ nonce ‖ ciphertext ‖ tag`, the name authenticated with it, and `context`, without which it cannot be opened.
    pub(super) fn seal(&self, plain: &[u8], context: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).ok()?;
        let mut out = Vec::with_capacity(NAME_LEN + NONCE_LEN + plain.len() + AES_256_GCM.tag_len());
        out.extend_from_slice(&self.name);
        out.extend_from_slice(&nonce);
        let start = out.len();
        out.extend_from_slice(plain);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let body = out.get_mut(start..)?;
        let aad = Aad::from([&self.name, context].concat());
        let tag = self.aead.seal_in_place_separate_tag(nonce, aad, body).ok()?;
        out.extend_from_slice(tag.as_ref());
        Some(out)
    }

    pub(super) fn open(&self, sealed: &[u8], context: &[u8]) -> Option<Vec<u8>> {
        let (nonce, body) = sealed.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut buffer = body.to_vec();
        let aad = Aad::from([&self.name, context].concat());
        let plain = self.aead.open_in_place(nonce, aad, &mut buffer).ok()?.len();
        buffer.truncate(plain);
        Some(buffer)
    }
}

/// Names the type alone.
impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketKey").finish_non_exhaustive()
    }
}

/// What base64 text stands for; white space is skipped.
fn decode(text: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    if text.len() > LONGEST_FILE {
        return None;
    }
    let joined = text.iter().copied().filter(|byte| !byte.is_ascii_whitespace());
    let joined: Zeroizing<Vec<u8>> = Zeroizing::new(joined.collect());
    BASE64.decode(&*joined).ok().map(Zeroizing::new)
}
