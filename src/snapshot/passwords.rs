//! Users of a route and their passwords, hashed as `htpasswd` does it. Parsed once, when the Secret arrives.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA1_OUTPUT_LEN};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use md5::{Digest, Md5};

/// Who may use a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasicAuth {
    pub users: Arc<Users>,
    /// What `WWW-Authenticate` says.
    pub challenge: HeaderValue,
    /// A client whose network is allowed needs no password: `satisfy: any`.
    pub or_source: bool,
}

/// The users of one Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users {
    by_name: HashMap<Box<[u8]>, Arc<PasswordHash>>,
    /// Checked for names that nobody has, so that the time that takes tells no names.
    decoy: Option<Arc<PasswordHash>>,
    /// How many entries cannot be used.
    pub unusable: usize,
}

/// The hash of a password, as it is written. `Debug` shows none of it.
#[derive(PartialEq, Eq)]
pub struct PasswordHash {
    text: Box<str>,
    scheme: Scheme,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Bcrypt,
    /// `$apr1$` or `$1$`.
    Md5(&'static str),
    /// `{SHA}`.
    Sha1,
    /// `{SSHA}`.
    SaltedSha1,
}

/// Those who know a hash could let one check take hours otherwise.
const MOST_BCRYPT_COST: u32 = 16;
/// Longer passwords are none.
const LONGEST: usize = 1024;

impl Users {
    /// Reads lines of `name:hash`, as in a file of `htpasswd`. Of several with one name the first counts, as in nginx.
    pub fn of_file(file: &[u8]) -> Self {
        let mut users = Self::default();
        for line in file.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii) {
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let mut parts = line.splitn(3, |byte| *byte == b':');
            users.add(parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        }
        users
    }

    /// Adds a user; one whose hash cannot be used is counted.
    pub fn add(&mut self, name: &[u8], hash: &[u8]) {
        match PasswordHash::parse(hash.trim_ascii()).filter(|_| !name.is_empty()) {
            Some(hash) => {
                let hash = Arc::new(hash);
                self.decoy.get_or_insert_with(|| hash.clone());
                self.by_name.entry(name.into()).or_insert(hash);
            }
            None => self.unusable += 1,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The hash to check a password of `name` against, and whether being right is enough.
    pub fn find(&self, name: &[u8]) -> Option<(&Arc<PasswordHash>, bool)> {
        let known = self.by_name.get(name).map(|hash| (hash, true));
        known.or(self.decoy.as_ref().map(|hash| (hash, false)))
    }
}

impl PasswordHash {
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = str::from_utf8(text).ok()?;
        let scheme = scheme_of(text)?;
        Some(Self { text: text.into(), scheme })
    }

    /// Whether checking takes longer than a worker should.
    pub fn is_slow(&self) -> bool {
        matches!(self.scheme, Scheme::Bcrypt | Scheme::Md5(_))
    }

    /// What tells it from any other.
    pub fn identity(&self) -> &[u8] {
        self.text.as_bytes()
    }

    /// Whether it is the hash of `password`; the time that takes does not depend on how much of it is right.
    pub fn verify(&self, password: &[u8]) -> bool {
        if password.len() > LONGEST {
            return false;
        }
        match self.scheme {
            Scheme::Bcrypt => bcrypt::verify(password, &self.text).unwrap_or(false),
            Scheme::Md5(magic) => md5_parts(&self.text, magic).is_some_and(|(salt, digest)| {
                verify_slices_are_equal(&md5_crypt(password, salt.as_bytes(), magic), digest.as_bytes())
                    .is_ok()
            }),
            Scheme::Sha1 => self.verify_sha1("{SHA}", password),
            Scheme::SaltedSha1 => self.verify_sha1("{SSHA}", password),
        }
    }

    fn verify_sha1(&self, prefix: &str, password: &[u8]) -> bool {
        let Some((digest, salt)) = sha1_parts(&self.text, prefix) else { return false };
        let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
        context.update(password);
        context.update(&salt);
        verify_slices_are_equal(context.finish().as_ref(), &digest).is_ok()
    }
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash")
    }
}

fn scheme_of(text: &str) -> Option<Scheme> {
    if let Ok(parts) = text.parse::<bcrypt::HashParts>() {
        return (4..=MOST_BCRYPT_COST).contains(&parts.get_cost()).then_some(Scheme::Bcrypt);
    }
    for magic in ["$apr1$", "$1$"] {
        if md5_parts(text, magic).is_some() {
            return Some(Scheme::Md5(magic));
        }
    }
    match () {
        () if sha1_parts(text, "{SHA}").is_some_and(|(_, salt)| salt.is_empty()) => Some(Scheme::Sha1),
        () if sha1_parts(text, "{SSHA}").is_some_and(|(_, salt)| !salt.is_empty()) => {
            Some(Scheme::SaltedSha1)
        }
        () => None,
    }
}

/// Digest and salt.
fn sha1_parts(text: &str, prefix: &str) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut digest = STANDARD.decode(text.strip_prefix(prefix)?).ok()?;
    let salt = (digest.len() >= SHA1_OUTPUT_LEN).then(|| digest.split_off(SHA1_OUTPUT_LEN))?;
    Some((digest, salt))
}

/// Salt and digest.
fn md5_parts<'a>(text: &'a str, magic: &str) -> Option<(&'a str, &'a str)> {
    let (salt, digest) = text.strip_prefix(magic)?.split_once('$')?;
    let is_digest = digest.len() == MD5_LETTERS && digest.bytes().all(|byte| ALPHABET.contains(&byte));
    (salt.len() <= 8 && is_digest).then_some((salt, digest))
}

const ALPHABET: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const MD5_LETTERS: usize = 22;

/// The MD5 crypt of FreeBSD, which Apache has under a name of its own: the digest in letters.
fn md5_crypt(password: &[u8], salt: &[u8], magic: &str) -> Vec<u8> {
    let inner: [u8; 16] =
        Md5::new().chain_update(password).chain_update(salt).chain_update(password).finalize().into();
    let mut outer = Md5::new().chain_update(password).chain_update(magic).chain_update(salt);
    for piece in password.chunks(inner.len()) {
        outer.update(inner.get(..piece.len()).unwrap_or_default());
    }
    let mut rest = password.len();
    while rest > 0 {
        let odd = rest & 1 == 1;
        outer.update(if odd { b"\0".as_slice() } else { password.get(..1).unwrap_or_default() });
        rest >>= 1;
    }
    let mut digest: [u8; 16] = outer.finalize().into();
    for round in 0..1000 {
        let mut context = Md5::new();
        let odd = round % 2 == 1;
        context.update(if odd { password } else { digest.as_slice() });
        if round % 3 != 0 {
            context.update(salt);
        }
        if round % 7 != 0 {
            context.update(password);
        }
        context.update(if odd { digest.as_slice() } else { password });
        digest = context.finalize().into();
    }
    let byte = |at: usize| u32::from(digest.get(at).copied().unwrap_or_default());
    let mut letters = Vec::with_capacity(MD5_LETTERS);
    let mut write = |mut number: u32, count: usize| {
        for _ in 0..count {
            letters.extend(ALPHABET.get((number & 63) as usize));
            number >>= 6;
        }
    };
    for (a, b, c) in [(0, 6, 12), (1, 7, 13), (2, 8, 14), (3, 9, 15), (4, 10, 5)] {
        write((byte(a) << 16) | (byte(b) << 8) | byte(c), 4);
    }
    write(byte(11), 2);
    letters
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `secret` by `openssl passwd` and Python.
    const HASHES: [&str; 5] = [APR1, MD5, BCRYPT, "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=", SALTED];
    const APR1: &str = "$apr1$saltsalt$LrttParrLPdxvgutaSXWJ0";
    const MD5: &str = "$1$abc$iCQ2D3nhptRYi27fDYv2s1";
    const BCRYPT: &str = "$2b$04$cFyqjHIrJAPDXLLGno7jA.s29HiZvMJho5lqNtoI//nIeCtbsjzQy";
    const SALTED: &str = "{SSHA}gVK8WC9YyFT1gMsQHTGCgT3sSv5zYWx0";

    #[test]
    fn each_scheme_knows_its_password() {
        for text in HASHES {
            let hash = PasswordHash::parse(text.as_bytes()).unwrap();
            assert!(hash.verify(b"secret"), "{text}");
            for wrong in ["", "Secret", "secre", "secret ", &"secret".repeat(200)] {
                assert!(!hash.verify(wrong.as_bytes()), "{text} {wrong}");
            }
            assert_eq!(format!("{hash:?}"), "PasswordHash");
        }
        // Empty, and longer than a block of the digest.
        let empty = PasswordHash::parse(b"$apr1$e$884UIJwaHzNF9yPyifJmN1").unwrap();
        assert!(empty.verify(b"") && !empty.verify(b"x"));
        let long = PasswordHash::parse(b"$apr1$long$3Tg.09hLcO.tB2YxFIJVd.").unwrap();
        assert!(long.verify(&[b'x'; 40]));
    }

    #[test]
    fn what_is_no_hash_is_refused() {
        for text in [
            "",
            "secret",
            "{PLAIN}secret",
            "{SHA}5en6G6MezRroT3XKqkdPOmY",
            "{SHA}!",
            "$apr1$salt$short",
            "$apr1$saltsaltsalt$0123456789012345678901",
            "$5$salt$digest",
            "$6$salt$digest",
            "$2y$31$L6Bc/AlTQHyd9liGgGEZyOFLPHNgyxeEPfgYfBCVxJ7JIlwxyVU3u",
            "$2y$03$L6Bc/AlTQHyd9liGgGEZyOFLPHNgyxeEPfgYfBCVxJ7JIlwxyVU3u",
            "$2y$10$L6Bc",
        ] {
            assert!(PasswordHash::parse(text.as_bytes()).is_none(), "{text}");
        }
    }

    #[test]
    fn a_file_has_a_user_a_line() {
        let file = format!(
            "# users\n\nann:{APR1}\r\n ben:{BCRYPT}:a remark\nann:{MD5}\nbad:plain\n:{MD5}\nnothing\n"
        );
        let users = Users::of_file(file.as_bytes());
        assert_eq!((users.by_name.len(), users.unusable), (2, 3));
        let (hash, known) = users.find(b"ann").unwrap();
        assert!(known && hash.identity() == APR1.as_bytes());
        assert!(users.find(b"ben").unwrap().1);
        assert!(!users.find(b"nobody").unwrap().1, "checked, but never enough");
        assert!(Users::of_file(b"x:y").is_empty() && Users::default().find(b"x").is_none());
    }

    proptest! {
        #[test]
        fn nothing_panics(
            file in "(?s)((\\PC{0,5}:)?(\\{S?SHA\\}|\\$apr1\\$|\\$1\\$|\\$2y\\$04\\$)?[./A-Za-z0-9$=]{0,60}\n?){0,3}",
            bytes: Vec<u8>,
        ) {
            Users::of_file(file.as_bytes());
            if let Some((hash, _)) = Users::of_file(&bytes).find(b"") {
                hash.verify(&bytes);
            }
            for line in file.lines() {
                if let Some(hash) = PasswordHash::parse(line.as_bytes()) {
                    hash.verify(&bytes);
                }
            }
        }
    }
}
