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
        let key = UnboundKey::new(&AES_256_GCM, &*secret).map_err(|_| NoRandom)?;
        Ok(Self { name, aead: LessSafeKey::new(key) })
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
