//! The issuers of tokens with their keys: from files, read again when they change, or from https URLs, fetched, kept
//! and fetched again.
//!
//! A file that is not there stops the start; a URL that does not answer is asked again, and until it has answered once
//! its issuer's tokens are refused. Later the last good keys stay in use. A token with a key that is not known makes
//! the URL be asked early, though not at the pace of whoever sends such tokens.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::https::{self, FetchError};
use super::jwt::{Jwks, JwksError, JwtIssuer};
use crate::ca::bundle::RootBundle;

/// How often files are looked at, and what is due.
const PACE: Duration = Duration::from_secs(5);
/// How long fetched keys are used before they are fetched again.
const REFRESH: Duration = Duration::from_secs(300);
/// The pause after a fetch that failed, and the least pause whatever tokens come.
const RETRY: Duration = Duration::from_secs(10);
/// The least pause between two looks at anything.
const LEAST: Duration = Duration::from_secs(1);

/// Where an issuer's keys come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    File(PathBuf),
    Url(Uri),
}

impl KeySource {
    /// An https URL or the path of a file. The error says what is wrong with a URL.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if !text.contains("://") {
            return Ok(Self::File(text.into()));
        }
        let url: Uri = text.parse().map_err(|_| "not a URL")?;
        match url.authority() {
            _ if url.scheme_str() != Some("https") => Err("keys are fetched by https only"),
            Some(authority) if authority.as_str().contains('@') => Err("a URL must not carry a password"),
            Some(_) => Ok(Self::Url(url)),
            None => Err("a URL needs a host"),
        }
    }
}

/// An issuer as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerOptions {
    /// What `iss` must be, to the letter.
    pub issuer: String,
    pub keys: KeySource,
}

/// Why keys cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeysError {
    #[error("{path}: {reason}")]
    File { path: String, reason: String },
    #[error("{path}: {reason}")]
    FileKeys { path: String, reason: JwksError },
    #[error("{url}: {reason}")]
    Fetch { url: String, reason: FetchError },
    #[error("{url}: {reason}")]
    FetchedKeys { url: String, reason: JwksError },
}

/// All issuers and their keys.
pub struct Issuers {
    audiences: Vec<String>,
    /// Whom https is verified against; the web's roots if `None`.
    roots: Option<RootBundle>,
    entries: Vec<Entry>,
    unknown_key: Arc<Notify>,
}

struct Entry {
    options: IssuerOptions,
    keys: Option<Jwks>,
    /// The bytes that `keys` were made of, or that were refused.
    seen: Vec<u8>,
    asked: Instant,
    due: Instant,
}

impl Issuers {
    /// Reads files and asks URLs once.
    ///
    /// # Errors
    /// A file that is not there or has no keys.
    pub async fn load(
        issuers: Vec<IssuerOptions>,
        audiences: Vec<String>,
        roots: Option<RootBundle>,
    ) -> Result<Self, KeysError> {
        let now = Instant::now();
        let entry = |options| Entry { options, keys: None, seen: Vec::new(), asked: now, due: now };
        let entries = issuers.into_iter().map(entry).collect();
        let mut this = Self { audiences, roots, entries, unknown_key: Arc::default() };
        for (entry, outcome) in this.refresh_all().await {
            match (&entry.options.keys, outcome) {
                (KeySource::File(_), Err(error)) => return Err(error),
                (KeySource::Url(_), Err(error)) => tracing::warn!(%error, "no keys yet, trying again"),
                (_, Ok(_)) => {}
            }
        }
        Ok(this)
    }

    /// Whom to tell of a token whose key is not known.
    pub fn unknown_key(&self) -> Arc<Notify> {
        Arc::clone(&self.unknown_key)
    }

    /// Those that there are keys of.
    pub fn current(&self) -> Vec<JwtIssuer> {
        let known = self.entries.iter().filter_map(|entry| Some((entry, entry.keys.clone()?)));
        known
            .map(|(entry, keys)| JwtIssuer {
                issuer: entry.options.issuer.clone(),
                audiences: self.audiences.clone(),
                keys,
            })
            .collect()
    }

    /// Keeps the keys fresh for as long as it is not dropped, and tells of all issuers when some changed.
    pub async fn follow(mut self, tell: impl Fn(Vec<JwtIssuer>)) {
        let unknown_key = self.unknown_key();
        loop {
            tokio::select! {
                () = sleep(PACE) => {}
                () = unknown_key.notified() => {
                    sleep(LEAST).await;
                    self.hurry();
                }
            }
            let mut changed = false;
            for (_, outcome) in self.refresh_all().await {
                match outcome {
                    Ok(new) => changed |= new,
                    Err(error) => tracing::error!(%error, "the present keys stay in use"),
                }
            }
            if changed {
                tell(self.current());
            }
        }
    }

    /// Makes URLs due that were not asked a moment ago.
    fn hurry(&mut self) {
        let now = Instant::now();
        for entry in &mut self.entries {
            entry.due = entry.due.min(now.max(entry.asked + RETRY));
        }
    }

    /// Looks at what is due; whether the keys of each changed.
    async fn refresh_all(&mut self) -> Vec<(&Entry, Result<bool, KeysError>)> {
        let mut outcomes = Vec::new();
        for entry in &mut self.entries {
            let outcome = match &entry.options.keys {
                KeySource::File(path) => {
                    let path = path.clone();
                    entry.read(&path)
                }
                KeySource::Url(_) if Instant::now() < entry.due => continue,
                KeySource::Url(url) => {
                    let url = url.clone();
                    entry.fetch(&url, self.roots.as_ref()).await
                }
            };
            outcomes.push((&*entry, outcome));
        }
        outcomes
    }
}

impl Entry {
    fn read(&mut self, path: &Path) -> Result<bool, KeysError> {
        let path_text = || path.display().to_string();
        let bytes = std::fs::read(path)
            .map_err(|error| KeysError::File { path: path_text(), reason: error.to_string() })?;
        self.take(&bytes).map_err(|reason| KeysError::FileKeys { path: path_text(), reason })
    }

    async fn fetch(&mut self, url: &Uri, roots: Option<&RootBundle>) -> Result<bool, KeysError> {
        self.asked = Instant::now();
        self.due = self.asked + RETRY;
        let fetched = https::get(url, roots).await;
        let bytes = fetched.map_err(|reason| KeysError::Fetch { url: url.to_string(), reason })?;
        let changed = self.take(&bytes);
        let changed = changed.map_err(|reason| KeysError::FetchedKeys { url: url.to_string(), reason })?;
        self.due = self.asked + REFRESH;
        Ok(changed)
    }

    /// Whether the keys changed. The same bytes are judged once.
    fn take(&mut self, bytes: &[u8]) -> Result<bool, JwksError> {
        if self.seen == bytes {
            return Ok(false);
        }
        self.seen = bytes.to_vec();
        let keys = Jwks::from_json(bytes)?;
        let changed = self.keys.as_ref() != Some(&keys);
        self.keys = Some(keys);
        Ok(changed)
    }
}

#[cfg(test)]
mod tests;
