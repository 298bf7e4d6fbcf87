//! What a generation leaves to the one after it, in memory without a name that the supervisor holds and never reads:
//! certificates in use that nothing else has any more. A new one takes the place of the last; when the last
//! process closes it, the kernel has it back.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use zeroize::Zeroizing;

use super::memory;

/// The memory. `Debug` shows nothing of it.
#[derive(Debug)]
pub struct Keepsake(File);

impl Keepsake {
    /// One with these contents.
    pub fn of(contents: &[u8]) -> io::Result<Self> {
        memory::holding("portcullis-keepsake", contents).map(Self)
    }

    /// The contents.
    pub fn read(&self) -> io::Result<Zeroizing<Vec<u8>>> {
        memory::contents(&self.0)
    }
}

impl AsFd for Keepsake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// One that came over a channel.
impl From<OwnedFd> for Keepsake {
    fn from(memory: OwnedFd) -> Self {
        Self(memory.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_read_by_whoever_has_it() {
        let ours = Keepsake::of(b"secret").unwrap();
        let theirs = Keepsake::from(ours.as_fd().try_clone_to_owned().unwrap());
        assert_eq!(*theirs.read().unwrap(), b"secret");
        assert_eq!(*ours.read().unwrap(), b"secret", "again");
        assert!(!format!("{ours:?}").contains("secret"));
    }
}
