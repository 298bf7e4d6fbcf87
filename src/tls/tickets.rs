//! Session tickets (RFC 5077, RFC 8446 section 4.6.1): one set of keys for all workers, so that a client
//! resumes wherever it lands. The newest key encrypts; older ones still decrypt until they are dropped, so a
//! rotation costs no client its session. The keys are of this process and its successors alone, or those that
//! replicas share through a Secret. Read without a lock; replaced by the control plane.

mod key;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustls::server::ProducesTickets;
use zeroize::Zeroizing;

use key::{KEY_LEN, NAME_LEN};
pub use key::{NoRandom, TicketKey, TicketKeyError};

/// Keys that replicas share, newest first.
pub type SharedKeys = Arc<[Arc<TicketKey>]>;

/// How many keys of our own are accepted: the newest and those before it.
const KEPT: usize = 3;
/// A ticket is a session of a few hundred bytes, or a client certificate chain more; anything longer is not
/// one of ours.
const MAX_TICKET: usize = 16 * 1024;

/// The ticket keys of this process.
pub struct Tickets {
    keys: ArcSwap<Vec<Arc<TicketKey>>>,
    lifetime: AtomicU32,
}

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

    /// Encrypts with the first of these keys from now on and accepts tickets of all of them, and of no other: what
    /// replicas with the same keys resume is the same. `true` where the keys differ from those before.
    pub fn share(&self, keys: &SharedKeys) -> bool {
        let old = self.keys.load();
        if keys.is_empty() || old.iter().map(|key| &key.name).eq(keys.iter().map(|key| &key.name)) {
            return false;
        }
        self.keys.store(Arc::new(keys.to_vec()));
        true
    }
}

/// Tickets that are good in one context and no other.
impl Tickets {
    pub(super) fn seal(&self, plain: &[u8], context: &[u8]) -> Option<Vec<u8>> {
        self.keys.load().first()?.seal(plain, context).filter(|ticket| ticket.len() <= MAX_TICKET)
    }

    pub(super) fn open(&self, cipher: &[u8], context: &[u8]) -> Option<Vec<u8>> {
        if cipher.len() > MAX_TICKET {
            return None;
        }
        let (name, sealed) = cipher.split_at_checked(NAME_LEN)?;
        self.keys.load().iter().find(|key| key.name == name)?.open(sealed, context)
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
        self.seal(plain, &[])
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.open(cipher, &[])
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tickets").finish_non_exhaustive()
    }
}
