//! Staples on disk, so that a restart while a responder is down costs nobody a staple.
//!
//! One file per certificate in `<state-dir>/ocsp/`, named by the leaf's fingerprint, holding the response as
//! received. Files are replaced by rename, so a crash leaves the old one or the new one. Nothing on disk is
//! trusted: a staple is verified again on load, as if it had just arrived.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustls_pki_types::CertificateDer;

use super::fetch::MAX_RESPONSE;
use crate::tls::ocsp::response::{Refusal, Staple, unverified_next_update, verify};

/// Temporary files older than this were left by a crash; younger ones may be another process's.
const ORPHAN_AGE: Duration = Duration::from_secs(3600);

/// The folder of staples. All methods block on the disk.
#[derive(Clone, Debug)]
pub struct Cache {
    dir: PathBuf,
}

impl Cache {
    /// Uses `dir`, which is created at the first save.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// The stored staple of a certificate, if it is still good at `now` (seconds since 1970). One that has
    /// expired is deleted; anything else unusable is left to be overwritten.
    pub fn load(
        &self,
        fingerprint: &[u8; 32],
        leaf: &CertificateDer<'_>,
        issuer: &CertificateDer<'_>,
        now: u64,
    ) -> Option<Staple> {
        let path = self.path(fingerprint);
        let der = read_bounded(&path).ok()?;
        match verify(&der, leaf, issuer, now) {
            Ok(staple) if staple.is_fresh(now) => Some(staple),
            Ok(_) | Err(Refusal::Expired) => {
                remove(&path);
                None
            }
            Err(refusal) => {
                tracing::debug!(file = %path.display(), %refusal, "stored staple ignored");
                None
            }
        }
    }

    /// Stores `staple`: written beside, synced, renamed.
    pub fn save(&self, fingerprint: &[u8; 32], staple: &Staple) -> io::Result<()> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        fs::create_dir_all(&self.dir)?;
        let count = COUNTER.fetch_add(1, Ordering::Relaxed);
        let temporary = self.dir.join(format!("{}.{}-{count}.tmp", hex(fingerprint), std::process::id()));
        let written = write_synced(&temporary, &staple.der)
            .and_then(|()| fs::rename(&temporary, self.path(fingerprint)));
        if written.is_err() {
            remove(&temporary);
            return written;
        }
        File::open(&self.dir)?.sync_all()
    }

    /// Deletes the staple of a certificate, for one that turned out to be revoked.
    pub fn forget(&self, fingerprint: &[u8; 32]) {
        remove(&self.path(fingerprint));
    }

    /// Deletes what has expired at `now` (seconds since 1970) and what a crash left behind. Other files in the
    /// folder are none of ours.
    pub fn sweep(&self, now: u64) {
        let Ok(files) = fs::read_dir(&self.dir) else { return };
        for path in files.flatten().map(|file| file.path()) {
            let stale = match path.extension().and_then(|extension| extension.to_str()) {
                _ if !is_ours(&path) => false,
                Some("der") => read_bounded(&path)
                    .is_ok_and(|der| unverified_next_update(&der).is_some_and(|ends| ends <= now)),
                Some("tmp") => is_orphan(&path),
                _ => false,
            };
            if stale {
                remove(&path);
            }
        }
    }

    fn path(&self, fingerprint: &[u8; 32]) -> PathBuf {
        self.dir.join(format!("{}.der", hex(fingerprint)))
    }
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_RESPONSE as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > MAX_RESPONSE { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}

fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::debug!(file = %path.display(), %error, "staple not deleted");
    }
}

/// Whether the name begins with a fingerprint and a dot.
fn is_ours(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.split_once('.')
        .is_some_and(|(stem, _)| stem.len() == 64 && stem.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn is_orphan(path: &Path) -> bool {
    let age = fs::metadata(path).and_then(|metadata| metadata.modified()).map(|time| time.elapsed());
    matches!(age, Ok(Ok(age)) if age > ORPHAN_AGE)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
