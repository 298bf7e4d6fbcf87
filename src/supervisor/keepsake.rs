//! What a generation leaves to the one after it, in memory without a name that the supervisor holds and never reads:
//! certificates in use that nothing else has any more. A new one takes the place of the last; when the last
//! process closes it, the kernel has it back.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, memfd_create};
use zeroize::Zeroizing;

/// The memory. `Debug` shows nothing of it.
#[derive(Debug)]
pub struct Keepsake(File);

impl Keepsake {
    /// One with these contents.
    pub fn of(contents: &[u8]) -> io::Result<Self> {
        let memory = File::from(memfd_create("portcullis-keepsake", MemfdFlags::CLOEXEC)?);
        memory.write_all_at(contents, 0)?;
        Ok(Self(memory))
    }

    /// The contents.
    pub fn read(&self) -> io::Result<Zeroizing<Vec<u8>>> {
        let length = usize::try_from(self.0.metadata()?.len()).map_err(io::Error::other)?;
        let mut contents = Zeroizing::new(vec![0; length]);
        self.0.read_exact_at(&mut contents, 0)?;
        Ok(contents)
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
