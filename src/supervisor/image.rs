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

/// Another program than the one that serves, on its way to taking its place.
#[derive(Debug, Default)]
pub enum NextImage {
    #[default]
    None,
    /// For the next candidate that is started.
    Waiting(Image),
    /// The candidate of this number runs it, and is not ready yet.
    Trying(u64, Image),
}

impl NextImage {
    /// What candidate `number` is to run, where that is another program.
    pub fn try_with(&mut self, number: u64) -> Option<&Image> {
        *self = match std::mem::take(self) {
            Self::None => Self::None,
            Self::Waiting(image) | Self::Trying(_, image) => Self::Trying(number, image),
        };
        match self {
            Self::Trying(_, image) => Some(image),
            Self::None | Self::Waiting(_) => None,
        }
    }

    /// Takes what candidate `number` runs, now that it is ready or has ended.
    pub fn take(&mut self, number: u64) -> Option<Image> {
        match std::mem::take(self) {
            Self::Trying(of, image) if of == number => Some(image),
            other => {
                *self = other;
                None
            }
        }
    }
}

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
