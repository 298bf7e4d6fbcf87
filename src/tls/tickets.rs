//! Session tickets (RFC 5077, RFC 8446 section 4.6.1): one set of keys for all workers, so that a client
//! resumes wherever it lands. The newest key encrypts; older ones still decrypt until they are dropped, so a
//! rotation costs no client its session. Read without a lock; replaced by the control plane.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::rand;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustls::server::ProducesTickets;
use zeroize::Zeroizing;

const NAME_LEN: usize = 16;
const KEY_LEN: usize = 32;
/// How many keys are accepted: the newest and those before it.
const KEPT: usize = 3;
/// A ticket is a session of a few hundred bytes, or a client certificate chain more; anything longer is not
/// one of ours.
const MAX_TICKET: usize = 16 * 1024;

/// The ticket keys of this process.
pub struct Tickets {
    keys: ArcSwap<Vec<Arc<TicketKey>>>,
    lifetime: AtomicU32,
}

/// One key with the public name that tickets carry in front.
struct TicketKey {
    name: [u8; NAME_LEN],
    aead: LessSafeKey,
    /// For the successor of this process.
    secret: Zeroizing<[u8; KEY_LEN]>,
}

/// No random bytes could be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system gave no random bytes for a session ticket key")]
pub struct NoRandom;

impl Tickets {
    /// Keys freshly drawn; `lifetime` is what clients are told.
    pub fn new(lifetime: Duration) -> Result<Arc<Self>, NoRandom> {
        let keys = ArcSwap::from_pointee(vec![Arc::new(TicketKey::random()?)]);
        let tickets = Self { keys, lifetime: AtomicU32::new(0) };
        tickets.set_lifetime(lifetime);
        Ok(Arc::new(tickets))
    }

    /// How long clients are told they may resume.
    pub fn set_lifetime(&self, lifetime: Duration) {
        let seconds = u32::try_from(lifetime.as_secs()).unwrap_or(u32::MAX);
        // RFC 8446, section 4.6.1: seven days at most.
        self.lifetime.store(seconds.min(7 * 24 * 3600), Ordering::Relaxed);
    }

    /// Encrypts with a new key from now on. Tickets of the two keys before it are still accepted.
    pub fn rotate(&self) -> Result<(), NoRandom> {
        let fresh = Arc::new(TicketKey::random()?);
        let old = self.keys.load();
        self.keys.store(Arc::new(std::iter::once(fresh).chain(old.iter().take(KEPT - 1).cloned()).collect()));
        Ok(())
    }
}

/// For the worker generation that comes after this one, so that clients can go on resuming.
impl Tickets {
    /// All keys, newest first, in base64. Whoever has them can read sessions: for the supervisor alone.
    pub fn keys_for_successor(&self) -> String {
        let keys = self.keys.load();
        let mut bytes = Zeroizing::new(Vec::with_capacity(keys.len() * (NAME_LEN + KEY_LEN)));
        for key in keys.iter() {
            bytes.extend_from_slice(&key.name);
            bytes.extend_from_slice(&*key.secret);
        }
        BASE64.encode(&*bytes)
    }

    /// Goes on with the keys of the generation before, as [`keys_for_successor`](Self::keys_for_successor) wrote
    /// them. What cannot be read is left out: its tickets cost a full handshake each.
    pub fn take_over(&self, keys: &str) {
        let bytes = Zeroizing::new(BASE64.decode(keys).unwrap_or_default());
        let keys = bytes.chunks_exact(NAME_LEN + KEY_LEN).take(KEPT).filter_map(TicketKey::read);
        let keys: Vec<_> = keys.map(Arc::new).collect();
        if !keys.is_empty() {
            self.keys.store(Arc::new(keys));
        }
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        self.lifetime.load(Ordering::Relaxed)
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.keys.load().first()?.seal(plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        if cipher.len() > MAX_TICKET {
            return None;
        }
        let (name, sealed) = cipher.split_at_checked(NAME_LEN)?;
        self.keys.load().iter().find(|key| key.name == name)?.open(sealed)
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tickets").finish_non_exhaustive()
    }
}

impl TicketKey {
    fn random() -> Result<Self, NoRandom> {
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

    fn read(bytes: &[u8]) -> Option<Self> {
        let (name, rest) = bytes.split_first_chunk()?;
        Self::new(*name, Zeroizing::new(*rest.first_chunk()?))
    }

    /// `name ‖ nonce ‖ ciphertext ‖ tag`, the name authenticated with it.
    fn seal(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).ok()?;
        let mut out = Vec::with_capacity(NAME_LEN + NONCE_LEN + plain.len() + AES_256_GCM.tag_len());
        out.extend_from_slice(&self.name);
        out.extend_from_slice(&nonce);
        let start = out.len();
        out.extend_from_slice(plain);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let body = out.get_mut(start..)?;
        let tag = self.aead.seal_in_place_separate_tag(nonce, Aad::from(self.name), body).ok()?;
        out.extend_from_slice(tag.as_ref());
        Some(out)
    }

    fn open(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, body) = sealed.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut buffer = body.to_vec();
        let plain = self.aead.open_in_place(nonce, Aad::from(self.name), &mut buffer).ok()?.len();
        buffer.truncate(plain);
        Some(buffer)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_ticket_survives_two_rotations_and_not_the_third() {
        let tickets = Tickets::new(Duration::from_secs(600)).unwrap();
        let ticket = tickets.encrypt(b"session").unwrap();
        for rotation in 0..3 {
            assert_eq!(
                tickets.decrypt(&ticket).as_deref(),
                Some(&b"session"[..]),
                "after {rotation} rotations"
            );
            tickets.rotate().unwrap();
        }
        assert_eq!(tickets.decrypt(&ticket), None);
    }

    #[test]
    fn the_next_generation_resumes_what_this_one_began() {
        let tickets = Tickets::new(Duration::from_secs(600)).unwrap();
        let old = tickets.encrypt(b"old").unwrap();
        tickets.rotate().unwrap();
        let new = tickets.encrypt(b"new").unwrap();

        let successor = Tickets::new(Duration::from_secs(600)).unwrap();
        successor.take_over(&tickets.keys_for_successor());
        assert_eq!(successor.decrypt(&old).as_deref(), Some(&b"old"[..]));
        assert_eq!(successor.decrypt(&new).as_deref(), Some(&b"new"[..]));
        // And the other way round, for a client that meets the old one once more.
        let ticket = successor.encrypt(b"back").unwrap();
        assert_eq!(tickets.decrypt(&ticket).as_deref(), Some(&b"back"[..]));
    }

    #[test]
    fn keys_that_cannot_be_read_leave_those_there_are() {
        let tickets = Tickets::new(Duration::from_secs(600)).unwrap();
        let ticket = tickets.encrypt(b"session").unwrap();
        for keys in ["", "?", "c2hvcnQ="] {
            tickets.take_over(keys);
            assert_eq!(tickets.decrypt(&ticket).as_deref(), Some(&b"session"[..]), "{keys:?}");
        }
    }

    #[test]
    fn a_changed_ticket_is_refused_wherever_it_was_changed() {
        let tickets = Tickets::new(Duration::from_secs(600)).unwrap();
        let ticket = tickets.encrypt(b"session").unwrap();
        for at in 0..ticket.len() {
            let mut forged = ticket.clone();
            forged[at] ^= 1;
            assert_eq!(tickets.decrypt(&forged), None, "byte {at}");
            assert_eq!(tickets.decrypt(&ticket[..at]), None, "cut at {at}");
        }
    }

    proptest! {
        #[test]
        fn foreign_bytes_are_no_ticket(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(Tickets::new(Duration::ZERO).unwrap().decrypt(&bytes), None);
        }
    }
}
