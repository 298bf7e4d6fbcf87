//! `portcullis serve`: loads the settings and runs the gateway.

use std::process::ExitCode;

use crate::app;
use crate::settings::flags::ServeArgs;
use crate::telemetry::logging::Logging;

/// Runs until the gateway is told to end.
///
/// # Errors
/// Settings that cannot be used, or a gateway that could not start.
pub fn run(args: ServeArgs) -> anyhow::Result<ExitCode> {
    let inputs = args.inputs(std::env::vars_os());
    let loaded = inputs.load()?;
    let logging = Logging::start(&loaded.settings)?;
    app::serve(inputs, loaded, logging)?;
    Ok(ExitCode::SUCCESS)
}
