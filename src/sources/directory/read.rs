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

/// Why a unit could not be read, and which of its files is at fault.
#[derive(Debug)]
pub struct ReadError {
    pub file: PathBuf,
    pub problem: Problem,
}

#[derive(Debug, thiserror::Error)]
pub enum Problem {
    #[error("the file cannot be read: {0}")]
    Io(io::Error),
    #[error("the file is larger than 8 MiB")]
    TooLarge,
    #[error("this is not a regular file")]
    NotAFile,
    #[error("this is a folder, not a file")]
    Folder,
    #[error("the private key beside it is missing")]
    KeyMissing,
    #[error("the certificate beside the private key is missing")]
    CertificateMissing,
    #[error("the pair changed each time it was read")]
    Unsteady,
}

impl Problem {
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Io(_) => UNREADABLE,
            Self::TooLarge => "TooLarge",
            Self::NotAFile | Self::Folder => "NotAFile",
            Self::KeyMissing => "KeyMissing",
            Self::CertificateMissing => "CertificateMissing",
            Self::Unsteady => "Unsteady",
        }
    }

    /// Half a pair may be no pair at all, such as a bundle of roots.
    pub fn severity(&self) -> Severity {
        match self {
            Self::KeyMissing | Self::CertificateMissing => Severity::Warning,
            _ => Severity::Error,
        }
    }

    /// Whether it may pass without anything that tells of it, as when the process has too many files open.
    pub fn passes(&self) -> bool {
        matches!(self, Self::Io(_) | Self::Unsteady)
    }
}

impl ReadError {
    fn io(file: &Path, error: io::Error) -> Self {
        Self { file: file.to_owned(), problem: Problem::Io(error) }
    }

    /// Whether a file is not there, which is no fault.
    pub fn is_absence(&self) -> bool {
        matches!(&self.problem, Problem::Io(error) if is_absence(error))
    }

    /// Whether a folder has taken the place of the file.
    pub fn is_folder(&self) -> bool {
        matches!(self.problem, Problem::Folder)
    }
}

/// The reason of findings about what the file system refuses.
pub const UNREADABLE: &str = "Unreadable";

/// What is not there is `None`: all other errors say nothing about whether it is.
pub fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_absence(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// What the files of a unit hold; the second is the key of a pair.
pub type Contents = [Zeroizing<Vec<u8>>; 2];

/// What the file system says about a unit's files, without reading them.
pub fn stamps(unit: &Unit) -> Result<Stamps, ReadError> {
    let stamp = |path: &Path| match found(fs::metadata(path)) {
        Ok(metadata) => Ok(metadata.as_ref().map(Stamp::of)),
        Err(error) => Err(ReadError::io(path, error)),
    };
    Ok([stamp(&unit.path)?, unit.key.as_deref().map(stamp).transpose()?.flatten()])
}

/// Reads a unit's files. A pair is read again until neither file, nor where its links lead, changed
/// meanwhile: half of one rotation with half of the next would be a pair that never was.
pub fn read(unit: &Unit) -> Result<(Contents, Stamps), ReadError> {
    const TRIES: usize = 5;
    let Some(key_path) = &unit.key else {
        let (content, stamp) = read_file(&unit.path)?;
        return Ok(([content, Zeroizing::default()], [Some(stamp), None]));
    };
    let failed = |file: &Path, problem| Err(ReadError { file: file.to_owned(), problem });
    for _ in 0..TRIES {
        let targets = (target(&unit.path)?, target(key_path)?);
        match &targets {
            (Some(_), None) => return failed(&unit.path, Problem::KeyMissing),
            (None, Some(_)) => return failed(key_path, Problem::CertificateMissing),
            _ => {}
        }
        let ((certificates, one), (key, two)) = match (read_file(&unit.path), read_file(key_path)) {
            (Ok(certificates), Ok(key)) => (certificates, key),
            (Err(error), _) | (_, Err(error)) if error.is_absence() => continue,
            (Err(error), _) | (_, Err(error)) => return Err(error),
        };
        let read = [Some(one), Some(two)];
        if stamps(unit)? == read && (target(&unit.path)?, target(key_path)?) == targets {
            return Ok(([certificates, key], read));
        }
    }
    failed(&unit.path, Problem::Unsteady)
}

fn target(path: &Path) -> Result<Option<PathBuf>, ReadError> {
    found(fs::canonicalize(path)).map_err(|error| ReadError::io(path, error))
}

fn read_file(path: &Path) -> Result<(Zeroizing<Vec<u8>>, Stamp), ReadError> {
    let failed = |problem| ReadError { file: path.to_owned(), problem };
    let io = |error| ReadError::io(path, error);
    // Opening a pipe does not wait for a writer this way.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(nonblocking).open(path).map_err(io)?;
    let metadata = file.metadata().map_err(io)?;
    if metadata.is_dir() {
        return Err(failed(Problem::Folder));
    }
    if !metadata.is_file() {
        return Err(failed(Problem::NotAFile));
    }
    if metadata.len() > LARGEST {
        return Err(failed(Problem::TooLarge));
    }
    // With room to spare, so that the buffer never moves and leaves a copy behind.
    let mut content = Zeroizing::new(Vec::with_capacity(metadata.len() as usize + 64));
    file.take(LARGEST + 1).read_to_end(&mut content).map_err(io)?;
    if content.len() as u64 > LARGEST {
        return Err(failed(Problem::TooLarge));
    }
    Ok((content, Stamp::of(&metadata)))
}
