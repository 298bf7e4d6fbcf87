//! The executable that generations are started from, held open: a crashed generation is replaced by one of the
//! same program, whatever lies on disk by then, and a file that is being replaced is never run half written
//! unless an upgrade was asked for.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::channel::Channel;

/// An executable.
#[derive(Debug)]
pub struct Image(File);

/// The hidden subcommand that a generation runs.
const SUBCOMMAND: &str = "generation";

/// Variables by which systemd speaks to the supervisor alone.
const FOR_THE_SUPERVISOR: [&str; 4] = ["NOTIFY_SOCKET", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];

impl Image {
    /// The one that this process runs, and the path where an upgrade of it would lie.
    ///
    /// # Errors
    /// There is no `/proc`.
    pub fn own() -> io::Result<(Self, PathBuf)> {
        Ok((Self(File::open("/proc/self/exe")?), std::env::current_exe()?))
    }

    /// What lies at `path` now.
    pub fn at(path: &Path) -> io::Result<Self> {
        Ok(Self(File::open(path)?))
    }

    /// Starts a generation with the arguments of `serve`, and `channel` as its standard input. Returns its
    /// process id; its end is told by the kernel.
    pub fn start(&self, arguments: &[OsString], channel: Channel) -> io::Result<u32> {
        // Open in the child too until it has become the program.
        let mut command = Command::new(format!("/proc/self/fd/{}", self.0.as_raw_fd()));
        command.arg0("portcullis").arg(SUBCOMMAND).args(arguments).stdin(Stdio::from(channel.into_inner()));
        for name in FOR_THE_SUPERVISOR {
            command.env_remove(name);
        }
        Ok(command.spawn()?.id())
    }
}
