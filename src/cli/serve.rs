//! `portcullis serve`: starts the supervisor, which runs the gateway.

use std::process::ExitCode;

use crate::settings::flags::ServeArgs;
use crate::supervisor;
use crate::telemetry::logging::Logging;

/// Runs until the gateway is told to end.
///
/// # Errors
/// A supervisor that could not start. What is wrong with the settings is told by the worker generation.
pub fn run(args: ServeArgs) -> anyhow::Result<ExitCode> {
    // Only to log as the gateway will: what cannot be read here is a generation's error to report.
    let settings = args.inputs(std::env::vars_os()).load().map(|loaded| loaded.settings);
    let logging = Logging::start(&settings.unwrap_or_default())?;
    supervisor::run(std::env::args_os().skip_while(|argument| argument != "serve").skip(1).collect(), logging)
}
