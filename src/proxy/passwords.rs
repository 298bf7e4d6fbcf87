//! Checks passwords on a worker.
//!
//! Hashes that are made to be slow are checked by another thread, one at a time for each worker, so that nobody who
//! guesses passwords takes more than that from those who are served. A password that was right is known again by a keyed
//! hash of it together with the hash it belongs to: a client pays once, and another hash in the Secret is another
//! password.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::sync::Arc;

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use zeroize::Zeroizing;

use crate::snapshot::passwords::{PasswordHash, Users};

/// Passwords that are known to be right; beyond that all are forgotten.
const MOST_KNOWN: usize = 4096;
/// Requests that wait for others' passwords to be checked.
const MOST_WAITING: usize = 64;

/// The checks of one worker.
pub struct Passwords {
    /// Drawn at the first use; none where the system has no random numbers, and then nothing is known again.
    key: RefCell<Option<hmac::Key>>,
    known: RefCell<HashSet<[u8; 32]>>,
    turn: Arc<Semaphore>,
    waiting: Cell<usize>,
}

/// What came of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Right,
    Wrong,
    /// Too many others wait.
    Busy,
}

/// What a client says it is.
pub struct Credentials {
    name: Vec<u8>,
    password: Zeroizing<Vec<u8>>,
}

impl Default for Passwords {
    fn default() -> Self {
        Self {
            key: RefCell::default(),
            known: RefCell::default(),
            turn: Arc::new(Semaphore::new(1)),
            waiting: Cell::default(),
        }
    }
}

impl Credentials {
    /// Those of a request (RFC 7617); several are none.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut fields = headers.get_all(AUTHORIZATION).iter();
        let field = fields.next().filter(|_| fields.next().is_none())?;
        let (scheme, encoded) = field.as_bytes().split_at_checked("Basic ".len())?;
        if !scheme.eq_ignore_ascii_case(b"Basic ") {
            return None;
        }
        let decoded = Zeroizing::new(STANDARD.decode(encoded.trim_ascii()).ok()?);
        let colon = decoded.iter().position(|byte| *byte == b':')?;
        let (name, password) = decoded.split_at_checked(colon)?;
        Some(Self { name: name.to_vec(), password: Zeroizing::new(password.get(1..)?.to_vec()) })
    }
}

impl Passwords {
    pub async fn check(&self, users: &Users, credentials: Credentials) -> Verdict {
        let Some((hash, is_enough)) = users.find(&credentials.name) else { return Verdict::Wrong };
        let is_right = match hash.is_slow() {
            true => self.check_slowly(hash, credentials.password).await,
            false => Some(hash.verify(&credentials.password)),
        };
        match is_right {
            Some(true) if is_enough => Verdict::Right,
            Some(_) => Verdict::Wrong,
            None => Verdict::Busy,
        }
    }

    async fn check_slowly(&self, hash: &Arc<PasswordHash>, password: Zeroizing<Vec<u8>>) -> Option<bool> {
        let mark = self.mark(hash, &password);
        if mark.is_some_and(|mark| self.known.borrow().contains(&mark)) {
            return Some(true);
        }
        let _waiting = Waiting::begin(&self.waiting)?;
        let turn = self.turn.clone().acquire_owned().await.ok()?;
        let hash = hash.clone();
        // Whoever leaves meanwhile has its turn until the check is over.
        let check = spawn_blocking(move || {
            let is_right = hash.verify(&password);
            drop(turn);
            is_right
        });
        let is_right = check.await.ok()?;
        if let Some(mark) = mark.filter(|_| is_right) {
            let mut known = self.known.borrow_mut();
            if known.len() >= MOST_KNOWN {
                known.clear();
            }
            known.insert(mark);
        }
        Some(is_right)
    }

    fn mark(&self, hash: &PasswordHash, password: &[u8]) -> Option<[u8; 32]> {
        let mut key = self.key.borrow_mut();
        if key.is_none() {
            *key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).ok();
        }
        let mut context = hmac::Context::with_key(key.as_ref()?);
        // No hash has a line break in it.
        for part in [hash.identity(), b"\n", password] {
            context.update(part);
        }
        context.sign().as_ref().try_into().ok()
    }
}

/// One request that waits.
struct Waiting<'a>(&'a Cell<usize>);

impl<'a> Waiting<'a> {
    fn begin(waiting: &'a Cell<usize>) -> Option<Self> {
        if waiting.get() >= MOST_WAITING {
            return None;
        }
        waiting.set(waiting.get() + 1);
        Some(Self(waiting))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future, poll_fn};
    use std::task::Poll;

    use http::HeaderValue;

    use super::*;

    /// `secret` of `ann`, slow and quick.
    const SLOW: &str = "ann:$apr1$saltsalt$LrttParrLPdxvgutaSXWJ0";
    const QUICK: &str = "ann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=";

    fn headers(fields: &[&str]) -> HeaderMap {
        fields.iter().map(|field| (AUTHORIZATION, HeaderValue::from_str(field).unwrap())).collect()
    }

    fn credentials(pair: &str) -> Credentials {
        Credentials::of(&headers(&[&format!("Basic {}", STANDARD.encode(pair))])).unwrap()
    }

    #[test]
    fn credentials_are_read_or_there_are_none() {
        let read = credentials("ann:se:cret");
        assert_eq!((&*read.name, &**read.password), (&b"ann"[..], &b"se:cret"[..]));
        assert!(Credentials::of(&headers(&["bAsIc  YTpi"])).is_some());
        for fields in [
            &[][..],
            &["Basic"],
            &["Basic "],
            &["Basic !"],
            &["Basic YQ=="],
            &["Bearer YTpi"],
            &["Basic YTpi", "Basic YTpi"],
        ] {
            assert!(Credentials::of(&headers(fields)).is_none(), "{fields:?}");
        }
    }

    #[tokio::test]
    async fn a_password_is_right_for_its_user_and_its_hash() {
        for file in [SLOW, QUICK] {
            let passwords = Passwords::default();
            let users = Users::of_file(file.as_bytes());
            for _ in 0..2 {
                for (pair, verdict) in [
                    ("ann:secret", Verdict::Right),
                    ("ann:secret2", Verdict::Wrong),
                    ("ann:", Verdict::Wrong),
                    // Right for the decoy.
                    ("ben:secret", Verdict::Wrong),
                ] {
                    assert_eq!(passwords.check(&users, credentials(pair)).await, verdict, "{pair} {file}");
                }
            }
            assert_eq!(passwords.check(&Users::default(), credentials("ann:secret")).await, Verdict::Wrong);
        }
    }

    #[tokio::test]
    async fn one_is_checked_at_a_time_and_few_wait() {
        let passwords = Passwords::default();
        let users = Users::of_file(SLOW.as_bytes());
        assert_eq!(passwords.check(&users, credentials("ann:secret")).await, Verdict::Right);
        let turn = passwords.turn.clone().acquire_owned().await.unwrap();
        let mut waiting: Vec<_> =
            (0..MOST_WAITING).map(|_| Box::pin(passwords.check(&users, credentials("ann:x")))).collect();
        for check in &mut waiting {
            let pending = poll_fn(|cx| Poll::Ready(check.as_mut().poll(cx).is_pending())).await;
            assert!(pending);
        }
        assert_eq!(passwords.check(&users, credentials("ann:x")).await, Verdict::Busy);
        // Who is known does not wait.
        assert_eq!(passwords.check(&users, credentials("ann:secret")).await, Verdict::Right);
        drop(turn);
        waiting.truncate(1);
        assert_eq!(waiting.remove(0).await, Verdict::Wrong);
        assert_eq!(passwords.waiting.get(), 0);
    }
}
