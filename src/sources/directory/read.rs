//! Reading the files of a unit: bounded, and a certificate and its key as one consistent pair.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use zeroize::Zeroizing;

use super::unit::Unit;
use crate::diagnostics::Severity;

/// The largest file that is read.
pub const LARGEST: u64 = 8 << 20;

/// What tells that a file is another than before without reading it: a digest of its device, inode, size and times.
/// The time of the last status change moves even when a file is written under an old modification time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp(u64);

impl Stamp {
    fn of(metadata: &fs::Metadata) -> Self {
        let modified = (metadata.mtime(), metadata.mtime_nsec());
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        let facts = (metadata.dev(), metadata.ino(), metadata.size(), modified, changed);
        Self(DIGESTS.hash_one(facts))
    }
}

/// Digests are compared within one process only.
static DIGESTS: LazyLock<ahash::RandomState> = LazyLock::new(ahash::RandomState::new);

/// The stamps of a unit's files, `None` where one is missing.
pub type Stamps = [Option<Stamp>; 2];

/// Why a unit could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("the file cannot be read: {0}")]
    Io(io::Error),
    #[error("the file is larger than 8 MiB")]
    TooLarge,
    #[error("this is not a regular file")]
    NotAFile,
    #[error("the private key beside it is missing")]
    KeyMissing,
    #[error("the certificate beside the private key is missing")]
    CertificateMissing,
    #[error("the pair changed each time it was read")]
    Unsteady,
}

impl ReadError {
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Io(_) => "Unreadable",
            Self::TooLarge => "TooLarge",
            Self::NotAFile => "NotAFile",
            Self::KeyMissing => "KeyMissing",
            Self::CertificateMissing => "CertificateMissing",
            Self::Unsteady => "Unsteady",
        }
    }
}

impl ReadError {
    /// Half a pair may be no pair at all, such as a bundle of roots.
    pub fn severity(&self) -> Severity {
        match self {
            Self::KeyMissing | Self::CertificateMissing => Severity::Warning,
            _ => Severity::Error,
        }
    }
}

/// What the files of a unit hold; the second is the key of a pair.
pub type Contents = [Zeroizing<Vec<u8>>; 2];

/// What the file system says about a unit's files, without reading them.
pub fn stamps(unit: &Unit) -> Stamps {
    let stamp = |path: &Path| fs::metadata(path).ok().map(|metadata| Stamp::of(&metadata));
    [stamp(&unit.path), unit.key.as_deref().and_then(stamp)]
}

/// Reads a unit's files. A pair is read again until neither file, nor where its links lead, changed
/// meanwhile: half of one rotation with half of the next would be a pair that never was.
pub fn read(unit: &Unit) -> Result<(Contents, Stamps), ReadError> {
    const TRIES: usize = 5;
    let Some(key_path) = &unit.key else {
        let (content, stamp) = read_file(&unit.path)?;
        return Ok(([content, Zeroizing::default()], [Some(stamp), None]));
    };
    for _ in 0..TRIES {
        let targets = (target(&unit.path), target(key_path));
        match (&targets.0, &targets.1) {
            (Some(_), None) => return Err(ReadError::KeyMissing),
            (None, Some(_)) => return Err(ReadError::CertificateMissing),
            _ => {}
        }
        let ((certificates, one), (key, two)) = match (read_file(&unit.path), read_file(key_path)) {
            (Ok(certificates), Ok(key)) => (certificates, key),
            (Err(ReadError::Io(error)), _) | (_, Err(ReadError::Io(error)))
                if error.kind() == io::ErrorKind::NotFound =>
            {
                continue;
            }
            (Err(error), _) | (_, Err(error)) => return Err(error),
        };
        let read = [Some(one), Some(two)];
        if stamps(unit) == read && (target(&unit.path), target(key_path)) == targets {
            return Ok(([certificates, key], read));
        }
    }
    Err(ReadError::Unsteady)
}

fn target(path: &Path) -> Option<PathBuf> {
    fs::canonicalize(path).ok()
}

fn read_file(path: &Path) -> Result<(Zeroizing<Vec<u8>>, Stamp), ReadError> {
    // Opening a pipe does not wait for a writer this way.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(nonblocking).open(path).map_err(ReadError::Io)?;
    let metadata = file.metadata().map_err(ReadError::Io)?;
    if !metadata.is_file() {
        return Err(ReadError::NotAFile);
    }
    if metadata.len() > LARGEST {
        return Err(ReadError::TooLarge);
    }
    // With room to spare, so that the buffer never moves and leaves a copy behind.
    let mut content = Zeroizing::new(Vec::with_capacity(metadata.len() as usize + 64));
    file.take(LARGEST + 1).read_to_end(&mut content).map_err(ReadError::Io)?;
    if content.len() as u64 > LARGEST {
        return Err(ReadError::TooLarge);
    }
    Ok((content, Stamp::of(&metadata)))
}
