//! `portcullis demo`: a show that needs nothing.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, value_parser};

use crate::demo::{self, Plan, Ports};

/// Run a self-contained show: own CA, demo hosts, backends, and certificates replaced under load
#[derive(Debug, Args)]
pub struct Demo {
    /// Port for plain HTTP; 0 lets the demo choose
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    http_port: u16,
    /// Port for HTTPS; 0 lets the demo choose
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    https_port: u16,
    /// The admin port; 0 lets the demo choose
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    admin_port: u16,
    /// Seconds between two rotations
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = value_parser!(u64).range(1..))]
    rotate_every: u64,
    /// End after this time; otherwise Ctrl-C does
    #[arg(long, value_name = "SECONDS")]
    duration: Option<u64>,
}

impl Demo {
    /// Runs until its end. The exit code tells whether anything failed.
    ///
    /// # Errors
    /// It could not start, or the gateway ended by itself.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let plan = Plan {
            ports: Ports { http: self.http_port, https: self.https_port, admin: self.admin_port },
            rotate_every: Duration::from_secs(self.rotate_every),
            duration: self.duration.map(Duration::from_secs),
        };
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default())?;
        let clean = runtime.block_on(demo::run(plan))?;
        Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
