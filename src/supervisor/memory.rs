//! Bytes in memory without a name (`memfd_create(2)`), whose descriptor goes from process to process; when the last
//! one closes it, the kernel has it back.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, memfd_create};
use zeroize::Zeroizing;

/// Memory with these contents. `name` is what `/proc` shows.
pub(super) fn holding(name: &str, contents: &[u8]) -> io::Result<File> {
    let memory = File::from(memfd_create(name, MemfdFlags::CLOEXEC)?);
    memory.write_all_at(contents, 0)?;
    Ok(memory)
}

/// All that is in it; wiped when dropped, for keys pass through such memory.
pub(super) fn contents(memory: &File) -> io::Result<Zeroizing<Vec<u8>>> {
    let length = usize::try_from(memory.metadata()?.len()).map_err(io::Error::other)?;
    let mut contents = Zeroizing::new(vec![0; length]);
    memory.read_exact_at(&mut contents, 0)?;
    Ok(contents)
}
