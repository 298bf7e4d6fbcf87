//! `portcullis restart`: has a running gateway start a new worker generation, and waits for what comes of it.
//!
//! The admin port only reads; it tells which process to ask, and the request is a signal, for which the system
//! checks who may send it.

use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::{Args, value_parser};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::admin::AdminArgs;

/// Start a new worker generation of the gateway on this machine
///
/// It takes over the sockets once it is ready: no connection is lost. Settings that need a restart and a program
/// that was replaced on disk are taken up. Exits with 1 when the new generation was given up; the old one then
/// goes on.
#[derive(Args, Clone, Debug)]
pub struct RestartArgs {
    #[command(flatten)]
    pub admin: AdminArgs,
    /// Seconds to wait for the new generation
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = value_parser!(u64).range(1..))]
    pub timeout: u64,
}

/// Why there is no new generation.
#[derive(Debug, thiserror::Error)]
pub enum RestartError {
    #[error("the admin port does not say which process supervises the gateway")]
    NoSupervisor,
    #[error("cannot signal process {pid}: {source}; is this its machine, container and user?")]
    Signal { pid: u64, source: std::io::Error },
    #[error("{0}")]
    GivenUp(String),
    #[error("no new generation serves after {0} s; portcullis status tells how it is")]
    Timeout(u64),
}

impl RestartArgs {
    /// Asks, waits and prints.
    ///
    /// # Errors
    /// There is no new generation.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        const POLL: Duration = Duration::from_millis(100);
        let before = self.admin.get("/api/v1/status")?;
        let (supervisor, old) = (before["supervisor"].as_u64().unwrap_or(0), serving(&before));
        hang_up(supervisor)?;
        let (started, limit) = (Instant::now(), Duration::from_secs(self.timeout));
        let mut begun = false;
        while started.elapsed() < limit {
            sleep(POLL);
            // Between two generations the admin port may be closing a connection.
            let Ok(status) = self.admin.get("/api/v1/status") else { continue };
            if serving(&status) > old {
                self.admin.print(&status, |status| format!("Generation {} serves.\n", serving(status)))?;
                return Ok(ExitCode::SUCCESS);
            }
            let starting = newest(&status, "starting") > old;
            match status["last_restart_error"].as_str() {
                // One from before is still told while nothing has begun.
                Some(error)
                    if !starting && (begun || before["last_restart_error"].as_str() != Some(error)) =>
                {
                    return Err(RestartError::GivenUp(error.into()).into());
                }
                _ => begun |= starting,
            }
        }
        Err(RestartError::Timeout(self.timeout).into())
    }
}

fn hang_up(supervisor: u64) -> Result<(), RestartError> {
    let pid = i32::try_from(supervisor).ok().and_then(Pid::from_raw).ok_or(RestartError::NoSupervisor)?;
    kill_process(pid, Signal::HUP)
        .map_err(|error| RestartError::Signal { pid: supervisor, source: error.into() })
}

/// The number of the newest generation that serves; 0 for none.
fn serving(status: &Value) -> u64 {
    newest(status, "serving")
}

fn newest(status: &Value, state: &str) -> u64 {
    let generations = status["generations"].as_array().map_or(&[][..], Vec::as_slice);
    let of_state = generations.iter().filter(|generation| generation["state"] == state);
    of_state.filter_map(|generation| generation["generation"].as_u64()).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_newest_generation_counts() {
        let status = json!({ "generations": [
            { "generation": 4, "state": "draining" },
            { "generation": 6, "state": "serving" },
            { "generation": 5, "state": "serving" },
            { "generation": 7, "state": "starting" },
        ]});
        assert_eq!((serving(&status), newest(&status, "starting")), (6, 7));
        assert_eq!(serving(&json!({})), 0);
    }

    #[test]
    fn no_process_is_signalled_that_was_not_named() {
        assert!(matches!(hang_up(0), Err(RestartError::NoSupervisor)));
        assert!(matches!(hang_up(u64::MAX), Err(RestartError::NoSupervisor)));
    }
}
