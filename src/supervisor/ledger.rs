//! What a worker generation has published so far, in memory that its supervisor can read: one write for each new
//! snapshot, and nobody is woken by it. A message would cost as much as the rest of a small change.
//!
//! The supervisor makes one ledger for each generation, hands it over with the start message, and reads it when
//! the next generation is started, also after a crash. Numbers only ever grow.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use crate::settings::ChangeCounts;

/// The file, without a name and only in memory.
#[derive(Debug)]
pub struct Ledger(File);

/// One entry; it takes the place of the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The number of the last snapshot that was served.
    pub snapshot: u64,
    /// The changes up to it.
    pub changes: ChangeCounts,
}

const SIZE: usize = 32;
/// What a generation of the first version writes.
const LEAST: usize = 24;
/// An entry that changes each time it is looked at is taken as it was seen last.
const LOOKS: usize = 8;

impl Ledger {
    /// An empty one.
    pub fn new() -> io::Result<Self> {
        let memory = memfd_create("portcullis-ledger", MemfdFlags::CLOEXEC)?;
        ftruncate(&memory, SIZE as u64)?;
        Ok(Self(memory.into()))
    }

    /// Writes the entry.
    pub fn write(&self, entry: &Entry) -> io::Result<()> {
        let ChangeCounts { dynamic, restart, rejected } = entry.changes;
        let numbers = [entry.snapshot, dynamic, restart, rejected];
        let mut bytes = [0; SIZE];
        for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_ne_bytes());
        }
        self.0.write_all_at(&bytes, 0)
    }

    /// The entry as it is now.
    pub fn read(&self) -> io::Result<Entry> {
        let mut last = self.look()?;
        // A look can fall into the middle of a write.
        for _ in 1..LOOKS {
            let again = self.look()?;
            if again == last {
                break;
            }
            last = again;
        }
        Ok(last)
    }

    fn look(&self) -> io::Result<Entry> {
        let mut numbers = [[0; 8]; SIZE / 8];
        if self.0.read_at(numbers.as_flattened_mut(), 0)? < LEAST {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let [snapshot, dynamic, restart, rejected] = numbers.map(u64::from_ne_bytes);
        Ok(Entry { snapshot, changes: ChangeCounts { dynamic, restart, rejected } })
    }
}

impl Entry {
    /// The larger number of each kind.
    pub fn max(self, other: Self) -> Self {
        Self { snapshot: self.snapshot.max(other.snapshot), changes: self.changes.max(other.changes) }
    }
}

impl AsFd for Ledger {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// One that came over a channel.
impl From<OwnedFd> for Ledger {
    fn from(memory: OwnedFd) -> Self {
        Self(memory.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_process_writes_the_other_reads() {
        let ours = Ledger::new().unwrap();
        let theirs = Ledger::from(ours.as_fd().try_clone_to_owned().unwrap());
        assert_eq!(ours.read().unwrap(), Entry::default());
        for snapshot in [1, u64::MAX] {
            let entry =
                Entry { snapshot, changes: ChangeCounts { dynamic: snapshot / 2, restart: 2, rejected: 1 } };
            theirs.write(&entry).unwrap();
            assert_eq!(ours.read().unwrap(), entry);
        }
    }

    #[test]
    fn the_larger_numbers_count() {
        let entry = |snapshot, dynamic, restart| Entry {
            snapshot,
            changes: ChangeCounts { dynamic, restart, rejected: restart },
        };
        assert_eq!(entry(5, 1, 9).max(entry(4, 8, 2)), entry(5, 8, 9));
    }

    #[test]
    fn a_ledger_of_the_first_version_counts_as_well() {
        let older = Ledger::new().unwrap();
        ftruncate(&older.0, LEAST as u64).unwrap();
        older.0.write_all_at(&[1; 16], 0).unwrap();
        let number = u64::from_ne_bytes([1; 8]);
        let changes = ChangeCounts { dynamic: number, ..ChangeCounts::default() };
        assert_eq!(older.read().unwrap(), Entry { snapshot: number, changes });
    }

    #[test]
    fn what_is_no_ledger_is_an_error() {
        let empty = memfd_create("empty", MemfdFlags::CLOEXEC).unwrap();
        assert!(Ledger::from(empty).read().is_err());
    }
}
